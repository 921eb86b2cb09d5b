//! Calls of the same shapes are settled, and others not.

use std::sync::atomic::{AtomicUsize, Ordering};

use ndarray::{Ix1, Ix2, IxDyn};

use super::tests::{Lender, op, run};
use super::{
    Compute, OpKernel, OpKernelConstruction, OpKernelContext, Rest, Settled, SettledCall, SettledTensors,
};
use crate::kernel::{CallInputs, Dense};
use crate::tensor::{TensorView, row_major_strides};
use crate::{DType, Device, DeviceKind, Request, Result, ensure};

/// Gives its input, and counts the calls that were computed.
struct Same;

/// The same of so many numbers, plus what makes it wrong.
struct SettledSame(usize, f32);

/// As `Same`, but what it settles is wrong.
struct Liar;

/// Gives its input. Settled calls give it plus 100, and fail at 9, or ask for a view that does not fit, or write nothing.
struct Asks<const WHAT: usize>;

/// What gives the input plus 100.
const VIEWS: usize = 6;

fn plus_100(tensors: &SettledTensors<'_>) -> Result<()> {
    let (x, mut z) = (tensors.view::<f32, IxDyn>(0)?, tensors.output_view::<f32, IxDyn>(0)?);
    ensure!(!x.iter().any(|x| *x == 9.0), InvalidArgument, "no 9");
    assert!(
        tensors.output_wanted(0) && !tensors.output_wanted(1) && tensors.output_view::<f32, Ix1>(0).is_err()
    );
    z.assign(&x.mapv(|x| x + 100.0));
    Ok(())
}

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
    Some(Settled { outputs: [(0, shape.into())].into_iter().collect(), rest: Rest::Call(Box::new(call)) })
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

impl<const WHAT: usize> OpKernel for Asks<WHAT> {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Asks)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        copy(context)
    }

    fn settle(&self, context: &OpKernelContext<'_>) -> Option<Settled> {
        Some(context.settled())
    }

    fn compute_settled(&self, _: &Compute<'_>, tensors: &SettledTensors<'_>) -> Result<()> {
        match WHAT {
            0 => tensors.view::<f32, Ix2>(0).map(|_| ()),
            1 => tensors.view::<f64, Ix1>(0).map(|_| ()),
            2 => tensors.output_view::<i32, Ix1>(0).map(|_| ()),
            3 => tensors.output_view::<f32, Ix1>(1).map(|_| ()),
            4 => tensors.optional_view::<f32, Ix1>(1).map(|_| ()),
            VIEWS => plus_100(tensors),
            _ => Ok(()),
        }
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
fn a_kernel_computes_its_settled_calls_by_views() {
    let (op, counting) =
        (op::<Asks<VIEWS>>("float"), |from: usize, len| (from..from + len).map(|i| i as f32).collect());
    let call = |data: &[f32], shape: &[usize]| {
        let lender = Lender::default();
        let outcome = run(&op, view(data, shape, &row_major_strides(shape)), &lender);
        outcome.map(|()| lender.last::<f32>(shape.iter().product()))
    };
    let first: Vec<f32> = counting(1, 6);
    assert_eq!(call(&first, &[2, 3]).unwrap(), first);
    // Settled calls add 100 here, so that they show.
    let second: Vec<f32> = counting(21, 6);
    assert_eq!(call(&second, &[2, 3]).unwrap(), counting(121, 6) as Vec<f32>);
    assert_eq!(call(&first[..1], &[]).unwrap(), [1.0]);
    assert_eq!(call(&first[1..], &[]).unwrap(), [102.0]);
    let error = call(&counting(4, 6) as &Vec<f32>, &[2, 3]).unwrap_err();
    assert_eq!(error.message(), "Test: no 9");
}

#[test]
fn views_that_do_not_fit_a_settled_call_are_errors() {
    fn again<const WHAT: usize>() -> String {
        let (op, data) = (op::<Asks<WHAT>>("float"), [1f32, 2.0]);
        let call = || run(&op, view(&data, &[2], &[1]), &Lender::default());
        call().unwrap();
        call().unwrap_err().message().to_owned()
    }
    for (message, what) in [again::<0>(), again::<1>(), again::<2>(), again::<4>()].into_iter().zip(0..) {
        assert_eq!(message, "Test: a settled call has another tensor here", "{what}");
    }
    assert_eq!(again::<3>(), "Test: a settled call has no such output");
    if cfg!(debug_assertions) {
        assert!(again::<5>().ends_with("the kernel wrote none of its elements"), "{}", again::<5>());
    }
}

#[test]
#[cfg(debug_assertions)]
fn a_call_that_is_settled_wrongly_is_told() {
    let (op, data) = (op::<Liar>("float"), [1f32, 2.0]);
    let error = run(&op, view(&data, &[2], &[1]), &Lender::default()).unwrap_err();
    assert_eq!(error.message(), "Test: the settled call gives something else than the kernel");
}
