//! The CUDA kernels without a card: compiled, and run on the processor against the kernels of the CPU.

use opsmith::cuda::Launch;
use opsmith::ndarray::{Array, Array4, Dimension, ShapeBuilder};
use opsmith::prelude::*;
use opsmith::testing::{Call, call};

use crate::{masked_averages, masked_averages_grad, masked_averages_grad_grad};

/// Batch, x, y, d and masks.
const SIZES: [[usize; 5]; 9] = [
    [1, 1, 1, 1, 1],
    [2, 3, 9, 2, 3],
    [1, 7, 70, 3, 4],
    [1, 2, 5, 300, 2],
    [1, 2, 3, 1, 600],
    [2, 4, 6, 3, 0],
    [1, 0, 4, 2, 3],
    [1, 3, 4, 0, 2],
    [0, 3, 4, 2, 2],
];

/// Integers, so that sums of them are exact; not row-major.
fn numbers<T: Float, D: Dimension>(shape: impl ShapeBuilder<Dim = D>) -> Array<T, D> {
    let mut next = 0i32;
    Array::from_shape_simple_fn(shape, || {
        next = (next * 31 + 7) % 101;
        T::from(next - 50).unwrap_or_else(T::zero)
    })
}

/// Runs that overlap, some of them empty or with an end before the start; every third mask has none.
fn masks<S: Integer + From<i32>>([batch, x, y, _, masks]: [usize; 5]) -> Array4<S> {
    Array4::from_shape_fn((batch, masks, x, 2), |(b, m, x, end)| {
        let place = if m % 3 == 2 { 0 } else { (b * 5 + m * 7 + x * 3 + end * 11) % (y + 1) };
        <S as From<i32>>::from(place as i32)
    })
}

fn compare<'a, T: Float>(form: impl Fn() -> Call<'a>, output: &str, what: [usize; 5]) -> Result<()> {
    let Some(own) = form().run_cuda_on_processor()? else { return Ok(()) };
    let (own, expected) = (own.array::<T, IxDyn>(output)?, form().run()?.array::<T, IxDyn>(output)?);
    assert_eq!(own.shape(), expected.shape());
    let bound = T::epsilon() * T::from(16).unwrap_or_else(T::one);
    for (own, expected) in own.iter().zip(&expected) {
        let same = (*own - *expected).abs() <= bound * (T::one() + expected.abs());
        assert!(same, "{output} of {what:?}: {own:?} where {expected:?} is expected");
    }
    Ok(())
}

fn all_orders<T: Float + crate::Real, S: Integer + From<i32>>() -> Result<()> {
    for size in SIZES {
        let [batch, x, y, d, count] = size;
        let (embedding, rle) = (numbers::<T, _>((batch, x, y, d).f()), masks::<S>(size));
        let upstream = numbers::<T, _>((batch, count, d).f());
        compare::<T>(|| call::<masked_averages>().input(&embedding).input(&rle), "mean", size)?;
        let grad = || call::<masked_averages_grad>().input(&embedding).input(&rle).input(&upstream);
        compare::<T>(grad, "embedding_grad", size)?;
        let second = || call::<masked_averages_grad_grad>().input(&rle).input(&embedding);
        compare::<T>(second, "mean_grad_grad", size)?;
    }
    Ok(())
}

#[test]
fn means_and_gradients_are_those_of_the_cpu() -> Result<()> {
    all_orders::<f32, i32>()?;
    all_orders::<f64, i64>()
}

#[test]
fn runs_that_leave_their_column_make_a_mask_nan() -> Result<()> {
    let embedding = numbers::<f32, _>((1, 2, 4, 1));
    let mut rle = masks::<i32>([1, 2, 4, 1, 2]);
    rle[[0, 0, 0, 0]] = -3;
    rle[[0, 0, 0, 1]] = i32::MAX;
    let form = || call::<masked_averages>().input(&embedding).input(&rle);
    assert_eq!(form().run().map(drop).unwrap_err().code(), Code::OutOfRange);
    let Some(own) = form().run_cuda_on_processor()? else { return Ok(()) };
    let mean = own.array::<f32, Ix3>("mean")?;
    assert!(mean[[0, 0, 0]].is_nan() && mean[[0, 1, 0]].is_finite(), "{mean}");
    let upstream = numbers::<f32, _>((1, 2, 1));
    let grad = call::<masked_averages_grad>().input(&embedding).input(&rle).input(&upstream);
    if let Some(own) = grad.run_cuda_on_processor()? {
        let grad = own.array::<f32, Ix4>("embedding_grad")?;
        assert!(grad.slice(s![0, 0, .., 0]).iter().all(|number| number.is_nan()), "{grad}");
    }
    Ok(())
}

/// For all dtypes and both indices.
#[test]
fn every_kernel_compiles() -> Result<()> {
    fn every<T: Float + crate::Real, S: Integer + From<i32>>() -> Result<()> {
        let Some(nvrtc) = opsmith::cuda::testing::nvrtc() else { return Ok(()) };
        let mut compile = |launch: &mut Launch<'_>| {
            for index in [", int>", ", long long>"] {
                let name = launch.kernel.rsplit_once(", ").map_or("", |(name, _)| name);
                launch.kernel = format!("{name}{index}");
                opsmith::cuda::testing::compile_everywhere(nvrtc, launch)?;
            }
            Ok(())
        };
        let (embedding, rle) = (numbers::<T, _>((1, 1, 1, 1)), masks::<S>([1; 5]));
        let upstream = numbers::<T, _>((1, 1, 1));
        call::<masked_averages>().input(&embedding).input(&rle).launches(&mut compile)?;
        let grad = call::<masked_averages_grad>().input(&embedding).input(&rle).input(&upstream);
        grad.launches(&mut compile).map(drop)
    }
    every::<f32, i32>()?;
    every::<f32, i64>()?;
    every::<f64, i32>()?;
    every::<f64, i64>()
}
