//! Sums of matrix products on a card.

use std::marker::PhantomData;

use opsmith::cuda::{CudaCall, CudaFloat, DeviceArray, DeviceView, Source};
use opsmith::prelude::*;

use super::Backend;

/// Products are the only kernels here, and none of the op's own.
static NONE: Source = Source::new("matmul.cu", "");

/// Tensors on a card.
pub(super) struct OnCard<T>(PhantomData<fn() -> T>);

impl<T: CudaFloat> Backend for OnCard<T> {
    type Stack<'a> = DeviceArray<'a, T>;

    fn input<'a>(context: &OpKernelContext<'a>, name: &'static str) -> Result<Option<DeviceArray<'a, T>>> {
        let input = context.optional_input(name)?.map(DeviceView::<T>::new).transpose()?;
        Ok(input.map(|input| input.array()))
    }

    fn shape<'s>(stack: &'s DeviceArray<'_, T>) -> &'s [usize] {
        stack.shape()
    }

    fn transposed<'a>(stack: &Self::Stack<'a>) -> Result<Self::Stack<'a>> {
        stack.clone().t()
    }

    fn make(
        context: &OpKernelContext<'_>,
        name: &'static str,
        (shape, transposed): (&[usize], bool),
        _: &[usize],
        terms: &[(DeviceArray<'_, T>, DeviceArray<'_, T>)],
    ) -> Result<()> {
        let call = CudaCall::new(context, &NONE);
        let output = call.output::<T>(name, shape)?;
        let output = if transposed { output.array().t()? } else { output.array() };
        let pairs: Vec<_> = terms.iter().map(|(a, b)| (a, b)).collect();
        if pairs.is_empty() {
            // A product without an inner dim is zero.
            let (a, b) =
                (output.clone().part(shape.len() - 1, 0..0)?, output.clone().part(shape.len() - 2, 0..0)?);
            return call.gemm(1.0, &a, &b, 0.0, &output);
        }
        call.gemm_pairs(1.0, &pairs, 0.0, &output)
    }
}
