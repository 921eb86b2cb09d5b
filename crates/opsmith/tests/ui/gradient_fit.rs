//! A gradient op whose arguments do not fit is told where it is named.

use opsmith::prelude::*;

#[op(shape = "(n)->(n)", gradient = scale_grad)]
fn scale<T: Float>(_x: ArrayView1<T>, #[attr] _by: f64, _z: ArrayViewMut1<T>) {}

/// It takes `y_grad` where the output is `z`.
#[op(shape = "(n),(n)->(n)")]
fn scale_grad<T: Float>(_x: ArrayView1<T>, _y_grad: ArrayView1<T>, _x_grad: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)", gradient = shift_grad)]
fn shift<T: Float>(_x: ArrayView1<T>, _z: ArrayViewMut1<T>) {}

/// It gives a gradient of an output.
#[op(shape = "(n)->(n)")]
fn shift_grad<T: Float>(_z_grad: ArrayView1<T>, _z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)", gradient = power_grad)]
fn power<T: Float>(_x: ArrayView1<T>, #[attr] _p: i64, _z: ArrayViewMut1<T>) {}

/// Its attribute is of another type.
#[op(shape = "(n),(n)->(n)")]
fn power_grad<T: Float>(_x: ArrayView1<T>, _z_grad: ArrayView1<T>, #[attr] _p: f64, _x_grad: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)", gradient = keep_grad)]
fn keep<T: Float>(_x: ArrayView1<T>, _z: ArrayViewMut1<T>) {}

/// Nobody gives its attribute.
#[op(shape = "(n)->(n)")]
fn keep_grad<T: Float>(_z_grad: ArrayView1<T>, #[attr] _exact: bool, _x_grad: ArrayViewMut1<T>) {}

fn main() {}
