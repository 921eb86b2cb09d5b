//! Gradients that are wrong.

use opsmith::prelude::*;

/// `z = 2 x + x y`. The gradient by `y` has the wrong sign, that by `x` is right.
#[op(shape = "(n),(n)->(n)", gradient = wrong_sign_grad)]
pub(crate) fn wrong_sign<T: Float>(
    x: ArrayView1<T>,
    y: ArrayView1<T>,
    mut z: ArrayViewMut1<T>,
) -> Result<()> {
    for ((z, &x), &y) in z.iter_mut().zip(&x).zip(&y) {
        *z = x + x + x * y;
    }
    Ok(())
}

/// The gradient of `wrong_sign`.
#[op(shape = "(n),(n),(n)->(n),(n)")]
pub(crate) fn wrong_sign_grad<T: Float>(
    x: ArrayView1<T>,
    y: ArrayView1<T>,
    z_grad: ArrayView1<T>,
    mut x_grad: ArrayViewMut1<T>,
    mut y_grad: ArrayViewMut1<T>,
) -> Result<()> {
    for i in 0..x.len() {
        x_grad[i] = z_grad[i] * (T::one() + T::one() + y[i]);
        y_grad[i] = -z_grad[i] * x[i];
    }
    Ok(())
}

/// Two outputs, `x²` and `3 x`. The gradient forgets the second.
#[op(shape = "(n)->(n),(n)", gradient = ignored_output_grad)]
pub(crate) fn ignored_output<T: Float>(
    x: ArrayView1<T>,
    mut square: ArrayViewMut1<T>,
    mut triple: ArrayViewMut1<T>,
) -> Result<()> {
    for (i, &x) in x.iter().enumerate() {
        square[i] = x * x;
        triple[i] = x + x + x;
    }
    Ok(())
}

/// The gradient of `ignored_output`.
#[op(shape = "(n),(n)->(n)")]
pub(crate) fn ignored_output_grad<T: Float>(
    x: ArrayView1<T>,
    square_grad: ArrayView1<T>,
    mut x_grad: ArrayViewMut1<T>,
) -> Result<()> {
    for i in 0..x.len() {
        x_grad[i] = square_grad[i] * (x[i] + x[i]);
    }
    Ok(())
}

/// The soft threshold, which is `x` where `by` is 0: its slope is 1 then, also at 0, where the derived gradient is 0.
#[pointwise(orders = 1)]
pub(crate) fn shrunk<S: Scalar>(x: S, #[attr(default = 0.5, min = 0.0)] by: S) -> S {
    x.sign() * (x.abs() - by).max(S::of(0.0))
}

/// `y = x³`. Its gradient is right, the gradient of that is not.
#[op(shape = "(n)->(n)", gradient = wrong_second_grad)]
pub(crate) fn wrong_second<T: Float>(x: ArrayView1<T>, mut y: ArrayViewMut1<T>) -> Result<()> {
    y.assign(&x.mapv(|x| x * x * x));
    Ok(())
}

/// The gradient of `wrong_second`: `3 x² y_grad`.
#[op(shape = "(n),(n)->(n)", gradient = wrong_second_grad_grad)]
pub(crate) fn wrong_second_grad<T: Float>(
    x: ArrayView1<T>,
    y_grad: ArrayView1<T>,
    mut x_grad: ArrayViewMut1<T>,
) -> Result<()> {
    for i in 0..x.len() {
        x_grad[i] = (x[i] * x[i] + x[i] * x[i] + x[i] * x[i]) * y_grad[i];
    }
    Ok(())
}

/// The gradient of `wrong_second_grad`, by `x` a half of what it is.
#[op(shape = "(n),(n),(n)->(n),(n)")]
pub(crate) fn wrong_second_grad_grad<T: Float>(
    x: ArrayView1<T>,
    y_grad: ArrayView1<T>,
    x_grad_grad: ArrayView1<T>,
    mut x_grad: ArrayViewMut1<T>,
    mut y_grad_grad: ArrayViewMut1<T>,
) -> Result<()> {
    for i in 0..x.len() {
        let three = x[i] + x[i] + x[i];
        x_grad[i] = three * y_grad[i] * x_grad_grad[i];
        y_grad_grad[i] = three * x[i] * x_grad_grad[i];
    }
    Ok(())
}
