use opsmith::prelude::*;

#[op(shape = "(n)->(n)")]
fn scale<T: Float>(x: ArrayView1<T>, factor: f64, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)")]
fn slices<T: Float>(x: &[T], z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)")]
fn dims<T: Float>(x: ndarray::ArrayView<T, Ix1>, z: ArrayViewMut1<T>) {}

fn main() {}
