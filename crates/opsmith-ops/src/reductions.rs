//! Sums, means and extremes over dims.

use opsmith::prelude::*;

/// The sum over some dims, or over all.
#[reduce(axes = any, name = "Sum")]
pub fn sum<R: Rows>(
    /// Any numbers.
    x: R::Each,
) -> R::One {
    x.sum()
}

crate::define::ops! {
    /// The op `Sum`.
    Sum = sum::def(), with sum::COMPANIONS;
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
