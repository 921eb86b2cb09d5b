//! Calls of the same shapes are settled, and others not.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::tests::{Lender, op, run};
use super::{Compute, OpKernel, OpKernelConstruction, OpKernelContext, Settled, SettledCall};
use crate::kernel::{CallInputs, Dense};
use crate::tensor::{TensorView, row_major_strides};
use crate::{DType, Device, DeviceKind, Request, Result};

/// Gives its input, and counts the calls that were computed.
struct Same;

/// The same of so many numbers, plus what makes it wrong.
struct SettledSame(usize, f32);

/// As `Same`, but what it settles is wrong.
struct Liar;

static COMPUTED: AtomicUsize = AtomicUsize::new(0);
static SETTLED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: it copies as many numbers as there are.
unsafe impl SettledCall for SettledSame {
    unsafe fn run(&self, _: &Compute<'_>, inputs: &[*const u8], outputs: &[*mut u8]) -> Result<()> {
        SETTLED.fetch_add(1, Ordering::Relaxed);
        for index in 0..self.0 {
            // SAFETY: promised by the caller.
            unsafe {
                outputs[0].cast::<f32>().add(index).write(*inputs[0].cast::<f32>().add(index) + self.1)
            };
        }
        Ok(())
    }
}

fn copy(context: &OpKernelContext<'_>) -> Result<()> {
    context.set_output(0, context.input(0)?)
}

fn settled(context: &OpKernelContext<'_>, error: f32) -> Option<Settled> {
    let shape = context.input_shape(0).ok()?;
    let call = SettledSame(shape.iter().product(), error);
    Some(Settled { outputs: [(0, shape.into())].into_iter().collect(), call: Box::new(call) })
}

impl OpKernel for Same {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Same)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        COMPUTED.fetch_add(1, Ordering::Relaxed);
        copy(context)
    }

    fn settle(&self, context: &OpKernelContext<'_>) -> Option<Settled> {
        settled(context, 0.0)
    }
}

impl OpKernel for Liar {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Liar)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        copy(context)
    }

    fn settle(&self, context: &OpKernelContext<'_>) -> Option<Settled> {
        settled(context, 1.0)
    }
}

fn view<'a>(data: &'a [f32], shape: &'a [usize], strides: &'a [isize]) -> TensorView<'a> {
    let reach: usize =
        shape.iter().zip(strides).map(|(&dim, &stride)| (dim - 1) * stride.unsigned_abs()).sum();
    assert!(reach < data.len());
    // SAFETY: the elements are within the slice.
    unsafe { TensorView::from_raw_parts(data.as_ptr().cast(), DType::Float32, Device::CPU, shape, strides) }
}

#[test]
fn calls_of_the_same_shapes_are_settled() {
    let (op, data) = (op::<Same>("float"), [1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let counts = || (COMPUTED.load(Ordering::Relaxed), SETTLED.load(Ordering::Relaxed));
    let call = |shape: &[usize], strides: &[isize]| {
        let before = counts();
        let lender = Lender::default();
        run(&op, view(&data, shape, strides), &lender).unwrap();
        let made = lender.last::<f32>(shape.iter().product());
        let after = counts();
        (made, after.0 - before.0)
    };
    // The first call is computed, and with debug assertions compared; the next ones are settled.
    assert_eq!(call(&[2, 3], &[3, 1]), (data[..6].to_vec(), 1));
    assert_eq!(call(&[2, 3], &[3, 1]), (data[..6].to_vec(), 0));
    // Elements elsewhere, other dims, another rank.
    assert_eq!(call(&[2, 3], &[1, 2]), (vec![1.0, 3.0, 5.0, 2.0, 4.0, 6.0], 1));
    assert_eq!(call(&[3, 2], &[2, 1]), (data[..6].to_vec(), 1));
    assert_eq!(call(&[6], &[1]), (data[..6].to_vec(), 1));
    assert_eq!(call(&[], &[]), (data[..1].to_vec(), 1));
    for (shape, strides) in [(&[2, 3][..], &[3, 1][..]), (&[3, 2], &[2, 1]), (&[6], &[1]), (&[], &[])] {
        assert_eq!(call(shape, strides).1, 0, "{shape:?}");
    }
    // Of more shapes none is kept.
    assert_eq!((call(&[8], &[1]).1, call(&[8], &[1]).1), (1, 1));
    // Elements that are not aligned are copied first.
    let mut bytes = [0_u8; 28];
    for (place, number) in bytes[1..].chunks_exact_mut(4).zip(data) {
        place.copy_from_slice(&number.to_ne_bytes());
    }
    let shape = [2_usize, 3];
    let strides = row_major_strides(&shape);
    let views = [Some(view(&data, &shape, &strides))];
    let inputs = CallInputs { flat: &views, counts: &[1] };
    let plan = op.plan(&Request { inputs, attrs: &[], device: DeviceKind::Cpu }).unwrap();
    for (first, computed) in [(bytes[1..].as_ptr(), 1), (data.as_ptr().cast(), 0)] {
        let (before, lender) = (counts(), Lender::default());
        let input = |_| Some(Dense { data: first, shape: &shape });
        // SAFETY: there are as many elements.
        unsafe { plan.run_dense(&op, input, u64::MAX, &lender) }.unwrap();
        assert_eq!((lender.last::<f32>(6), counts().0 - before.0), (data[..6].to_vec(), computed));
    }
}

#[test]
#[cfg(debug_assertions)]
fn a_call_that_is_settled_wrongly_is_told() {
    let (op, data) = (op::<Liar>("float"), [1f32, 2.0]);
    let error = run(&op, view(&data, &[2], &[1]), &Lender::default()).unwrap_err();
    assert_eq!(error.message(), "Test: the settled call gives something else than the kernel");
}
