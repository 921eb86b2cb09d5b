use opsmith::prelude::*;

#[op(shape = "(n)->(n)")]
fn words<T: Float>(x: ArrayView1<String>, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)")]
fn nothing<T: Float>(x: ArrayView1, z: ArrayViewMut1<T>) {}

fn main() {}
