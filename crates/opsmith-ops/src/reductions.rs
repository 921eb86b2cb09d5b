//! Sums, means and extremes over any dims, and functions of rows.

use opsmith::dtype::sets;
use opsmith::prelude::*;

use crate::card;
use crate::define::ops;
use crate::folds::{FoldKernel, Folding, Largest, Smallest, Total};

/// The sum over some dims, or over all.
///
/// Sums are folded by blocks, so that the error does not grow with the number of terms but with its logarithm; float16 and
/// bfloat16 are added up in float32, and sums of integers wrap around.
///
/// axes: The dims that are added up, counted from the end where negative; empty for all.
/// keep_dims: Whether they stay, as dims of 1.
#[reduce(axes = any)]
pub fn sum<R: Rows>(
    /// Any numbers.
    x: R::Each,
) -> R::One {
    x.sum()
}

/// The mean over some dims, or over all; NaN of no numbers.
///
/// axes: The dims that are averaged over, counted from the end where negative; empty for all.
/// keep_dims: Whether they stay, as dims of 1.
#[reduce(axes = any)]
pub fn mean<R: Rows>(
    /// Any numbers.
    x: R::Each,
) -> R::One {
    x.mean()
}

/// The largest number over some dims, or over all: NaN if one is NaN, and −∞ (of integers, the least there is) of no numbers.
///
/// Several numbers that are the largest share the gradient equally.
///
/// axes: The dims that are gone through, counted from the end where negative; empty for all.
/// keep_dims: Whether they stay, as dims of 1.
#[reduce(axes = any)]
pub fn max<R: Rows>(
    /// Any numbers.
    x: R::Each,
) -> R::One {
    x.amax()
}

/// The smallest number over some dims, or over all: NaN if one is NaN, and ∞ (of integers, the largest there is) of no numbers.
///
/// Several numbers that are the smallest share the gradient equally.
///
/// axes: The dims that are gone through, counted from the end where negative; empty for all.
/// keep_dims: Whether they stay, as dims of 1.
#[reduce(axes = any)]
pub fn min<R: Rows>(
    /// Any numbers.
    x: R::Each,
) -> R::One {
    x.amin()
}

/// The softmax: the exponential over the sum of the exponentials along the last dims.
///
/// axes: How many of the last dims are a row.
#[reduce(autocast = "float32")]
pub fn softmax<R: Rows>(
    /// Any numbers.
    x: R::Each,
) -> R::Each {
    let e = (x - x.amax().detached()).exp();
    e / e.sum()
}

/// The logarithm of the softmax along the last dims, without overflow.
///
/// axes: How many of the last dims are a row.
#[reduce(autocast = "float32")]
pub fn log_softmax<R: Rows>(
    /// Any numbers.
    x: R::Each,
) -> R::Each {
    let moved = x - x.amax().detached();
    moved - moved.exp().sum().log()
}

/// The op, with kernels for integers too.
fn of_integers<F: Folding>(def: OpDef) -> OpDef {
    let kernels = sets::INTEGER.iter();
    def.more_dtypes("T", sets::INTEGER)
        .kernels(
            kernels.map(|&dtype| KernelDef::cpu::<FoldKernel<F>>().strided().dtype_constraint("T", dtype)),
        )
        .kernels(card::kernels::<FoldKernel<F>>(|dtype| sets::INTEGER.contains(&dtype)))
}

ops! {
    /// The op `Sum`: [`sum`](fn@sum), of integers too.
    Sum = of_integers::<Total>(sum::def()), with sum::COMPANIONS;
    /// The op `Max`: [`max`](fn@max), of integers too.
    Max = of_integers::<Largest>(max::def()), with max::COMPANIONS;
    /// The op `Min`: [`min`](fn@min), of integers too.
    Min = of_integers::<Smallest>(min::def()), with min::COMPANIONS;
}

#[cfg(test)]
mod tests {
    use opsmith::ndarray::{Array, Array3};
    use opsmith::{infer_error, infer_ok, testing};

    use super::*;

    fn numbers() -> Array3<f64> {
        Array::from_shape_fn((3, 4, 5), |(i, j, k)| (i * 20 + j * 5 + k) as f64)
    }

    #[test]
    fn any_dims_are_added_up() -> Result<()> {
        let x = numbers();
        let outputs = testing::call::<Sum>().input(&x).attr("axes", vec![0, -1]).run()?;
        assert_eq!(outputs.array::<f64, Ix1>("y")?, x.sum_axis(Axis(2)).sum_axis(Axis(0)));
        let outputs = testing::call::<Sum>().input(&x).attr("axes", vec![1]).attr("keep_dims", true).run()?;
        assert_eq!(outputs.array::<f64, Ix3>("y")?, x.sum_axis(Axis(1)).insert_axis(Axis(1)));
        let turned = x.view().reversed_axes();
        let outputs = testing::call::<Sum>().input(&turned).attr("axes", vec![1]).run()?;
        assert_eq!(outputs.array::<f64, Ix2>("y")?, turned.sum_axis(Axis(1)));
        let outputs = testing::call::<Sum>().input(&x).run()?;
        assert_eq!(outputs.array::<f64, Ix0>("y")?[()], x.sum());
        Ok(())
    }

    #[test]
    fn long_rows_across_memory() -> Result<()> {
        for (rows, length) in [(70, 50), (40, 300), (3, 500)] {
            let x = Array::from_shape_fn((length, rows), |(i, j)| ((i * 31 + j * 7) % 101) as f64 - 50.0);
            for threads in [1, 3] {
                let call = testing::call::<Max>().input(&x).attr("axes", vec![0]).threads(threads);
                let expected = x.map_axis(Axis(0), |row| row.fold(f64::NEG_INFINITY, |a, &b| a.max(b)));
                assert_eq!(call.run()?.array::<f64, Ix1>("y")?, expected);
                let call = testing::call::<Sum>().input(&x).attr("axes", vec![-2]).threads(threads);
                assert_eq!(call.run()?.array::<f64, Ix1>("y")?, x.sum_axis(Axis(0)));
            }
        }
        Ok(())
    }

    #[test]
    fn rows_across_memory_are_those_along_it() -> Result<()> {
        for (length, rows) in [(57, 33), (300, 64), (2049, 130), (7000, 128), (513, 1400)] {
            let x = Array::from_shape_fn((length, rows), |(i, j)| {
                ((i * 7919 + j * 104_729) % 1009) as f32 / 7.0 - 70.0
            });
            let along = x.t().as_standard_layout().into_owned();
            let of = |x: &opsmith::ndarray::Array2<f32>, axis: i64, threads: usize| -> Result<_> {
                let call = testing::call::<Sum>().input(x).attr("axes", vec![axis]).threads(threads);
                call.run()?.array::<f32, Ix1>("y")
            };
            let expected = of(&x, 0, 1)?;
            assert_eq!(of(&x, 0, 3)?, expected, "the threads change nothing");
            // Terms may be added in another order.
            let bound = f32::EPSILON * 40.0 * length as f32;
            let other = of(&along, 1, 1)?;
            assert!(expected.iter().zip(&other).all(|(a, b)| (a - b).abs() <= bound), "{length} terms");
            let call = testing::call::<Min>().input(&x).attr("axes", vec![0]);
            let least = x.map_axis(Axis(0), |row| row.fold(f32::INFINITY, |a, &b| a.min(b)));
            assert_eq!(call.run()?.array::<f32, Ix1>("y")?, least);
            let middle = x.view().insert_axis(Axis(0));
            let outputs = testing::call::<Sum>().input(&middle).attr("axes", vec![1]).run()?;
            let middle = outputs.array::<f32, Ix2>("y")?;
            assert!(
                middle.row(0).iter().zip(&expected).all(|(a, b)| (a - b).abs() <= bound),
                "{length} terms"
            );
        }
        Ok(())
    }

    #[test]
    fn the_gradient_is_spread_over_the_dims() -> Result<()> {
        let x = numbers();
        let y_grad = Array::from_shape_fn((3, 5), |(i, k)| (i * 5 + k) as f64);
        let gradient = testing::Call::new(sum::COMPANIONS[0]()).input(&x).input(&y_grad);
        let outputs = gradient.attr("axes", vec![1]).run()?;
        let expected = Array::from_shape_fn((3, 4, 5), |(i, _, k)| y_grad[[i, k]]);
        assert_eq!(outputs.array::<f64, Ix3>("x_grad")?, expected);
        Ok(())
    }

    #[test]
    fn shapes() {
        infer_ok!(testing::shapes::<Sum>(), "[2,?,3]", "[]");
        infer_ok!(testing::shapes::<Sum>(), "?", "[]");
        infer_ok!(testing::shapes::<Sum>().attr("axes", vec![0].into()), "[2,?,3]", "[d0_1,d0_2]");
        infer_error!(
            testing::shapes::<Sum>().attr("axes", vec![1].into()),
            "`axes` must be different dims",
            "[2]"
        );
        let error = testing::call::<Sum>().input(&numbers()).attr("axes", vec![0, -3]).run().unwrap_err();
        assert!(error.message().contains("`axes` must be different dims of an input of rank 3, got [0, -3]"));
    }
}
