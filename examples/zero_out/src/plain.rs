//! The first op: one dtype, no attributes; a kernel for each device.

use opsmith::cuda::{CudaCall, Source};
use opsmith::prelude::*;

use crate::launches::keep;

/// `ZeroOut(to_zero: int32) -> (zeroed: int32)`: any rank, output shaped like the input.
///
/// The first element, in row-major order, is kept. An empty input gives an empty output.
pub struct ZeroOut;

impl OpDefinition for ZeroOut {
    fn def() -> OpDef {
        OpDef::new("ZeroOut")
            .input("to_zero: int32")
            .output("zeroed: int32")
            .shape_fn(shape_fns::unchanged)
            .kernel(KernelDef::cpu::<ZeroOut>())
            .kernel(KernelDef::cuda::<ZeroOutOnCuda>().capturable())
            .not_differentiable()
            .doc(
                "Copies the input and sets every element but the first to zero.\n\
                 \n\
                 to_zero: Of any shape; an empty one gives an empty output.\n\
                 zeroed: Of the same shape.",
            )
    }
}

impl OpKernel for ZeroOut {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(ZeroOut)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let to_zero = context.slice::<i32>("to_zero")?;
        let mut output = context.allocate_output("zeroed", context.input("to_zero")?.shape())?;
        let zeroed = output.as_slice_mut::<i32>()?;
        zeroed.fill(0);
        if let (Some(kept), Some(&first)) = (zeroed.first_mut(), to_zero.first()) {
            *kept = first;
        }
        Ok(())
    }
}

/// The CUDA source, as `#[op(cuda = "zero_out.cu")]` would write it.
static SOURCE: Source = Source::new("zero_out.cu", include_str!("zero_out.cu")).beside(file!());

/// The kernel of [`ZeroOut`] on a card.
struct ZeroOutOnCuda;

impl OpKernel for ZeroOutOnCuda {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(ZeroOutOnCuda)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let call = CudaCall::new(context, &SOURCE);
        let to_zero = call.input::<i32>("to_zero")?;
        let zeroed = call.output::<i32>("zeroed", to_zero.shape())?;
        // One row, all of it.
        keep(&call, &to_zero, to_zero.num_elements().max(1), 0, &zeroed)
    }
}

/// `ZeroOutVector`: as [`ZeroOut`], for vectors only.
///
/// The shape function refuses other ranks where shapes are inferred. The kernel does it again: it is also called
/// where nothing was inferred, or where the rank was not known then.
pub struct ZeroOutVector;

impl OpDefinition for ZeroOutVector {
    fn def() -> OpDef {
        OpDef::new("ZeroOutVector")
            .input("to_zero: int32")
            .output("zeroed: int32")
            .shape_fn(|c: &mut InferenceContext<'_>| {
                let vector = c.with_rank(c.input(0)?, 1)?;
                c.set_output(0, vector)
            })
            .kernel(KernelDef::cpu::<ZeroOutVector>())
            .not_differentiable()
            .doc(
                "Copies a vector and sets every element but the first to zero.\n\
                 \n\
                 to_zero: A vector.\n\
                 zeroed: Of the same shape.",
            )
    }
}

impl OpKernel for ZeroOutVector {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(ZeroOutVector)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        // A view of one dim: another rank is an error that names the op, the input and both ranks.
        let to_zero = context.view::<i32, Ix1>("to_zero")?;
        let mut zeroed = context.output_view::<i32, Ix1>("zeroed", to_zero.shape())?;
        zeroed.fill(0);
        if let (Some(kept), Some(&first)) = (zeroed.first_mut(), to_zero.first()) {
            *kept = first;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use opsmith::ndarray::{Array1, arr0};
    use opsmith::{infer_error, infer_ok, testing};

    use super::*;

    #[test]
    fn keeps_the_first_element_of_any_shape() {
        let x = array![[5, 4, 3], [2, 1, 7]];
        let zeroed = testing::call::<ZeroOut>().input(&x).run().unwrap().array::<i32, Ix2>("zeroed").unwrap();
        assert_eq!(zeroed, array![[5, 0, 0], [0, 0, 0]]);
        let scalar = arr0(9);
        let zeroed = testing::call::<ZeroOut>().input(&scalar).run().unwrap();
        assert_eq!(zeroed.array::<i32, Ix0>("zeroed").unwrap(), scalar);
    }

    #[test]
    fn an_empty_input_gives_an_empty_output() {
        let empty = Array1::<i32>::zeros(0);
        let outputs = testing::call::<ZeroOut>().input(&empty).run().unwrap();
        assert_eq!(outputs.array::<i32, Ix1>("zeroed").unwrap(), empty);
        assert!(testing::call::<ZeroOutVector>().input(&empty).run().is_ok());
    }

    #[test]
    fn reads_a_strided_input_in_its_logical_order() {
        let x = array![[1, 2, 3], [4, 5, 6]];
        let columns = x.slice(s![.., ..;-1]);
        let outputs = testing::call::<ZeroOut>().input(&columns.t()).run().unwrap();
        assert_eq!(outputs.array::<i32, Ix2>("zeroed").unwrap(), array![[3, 0], [0, 0], [0, 0]]);
    }

    #[test]
    fn the_kernel_checks_dtype_and_rank_too() {
        let floats = array![1f32, 2.];
        let error = testing::call::<ZeroOut>().input(&floats).run().unwrap_err();
        assert_eq!(error.message(), "ZeroOut: input `to_zero` is float32, but must be int32");
        let matrix = array![[1, 2]];
        let error = testing::call::<ZeroOutVector>().input(&matrix).run().unwrap_err();
        assert_eq!(
            error.message(),
            "ZeroOutVector: input `to_zero`: expected rank 1, got rank 2 (shape [1, 2])"
        );
    }

    #[test]
    fn shapes() {
        let op = testing::shapes::<ZeroOut>();
        infer_ok!(op, "?", "in0");
        infer_ok!(op, "[2,?]", "[2,d0_1]");
        infer_ok!(op, "[]", "[]");
        let op = testing::shapes::<ZeroOutVector>();
        infer_ok!(op, "?", "[?]");
        infer_ok!(op, "[n]", "[n]");
        infer_error!(op, "input `to_zero` must have rank 1, got rank 2", "[1,2]");
    }
}
