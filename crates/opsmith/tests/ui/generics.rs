use opsmith::prelude::*;

#[op(shape = "(n)->(n)")]
fn lifetime<'a, T: Float>(x: ArrayView1<'a, T>, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)")]
fn constant<T: Float, const N: usize>(x: ArrayView1<T>, z: ArrayViewMut1<T>) {}

fn main() {}
