use opsmith::prelude::*;

#[op(shape = "(n)->(n)", autocast = "half")]
fn unknown<T: Float>(x: ArrayView1<T>, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)", autocast = "lower")]
fn not_so_low<T: Float>(x: ArrayView1<T>, z: ArrayViewMut1<T>) {}

#[pointwise(dtypes = [f64], autocast = "float32")]
fn wide<S: Scalar>(x: S) -> S {
    x
}

fn main() {}
