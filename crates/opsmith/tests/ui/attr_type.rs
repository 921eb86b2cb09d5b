use opsmith::prelude::*;

#[op(shape = "(n)->(n)")]
fn shift<T: Float>(x: ArrayView1<T>, #[attr] by: i8, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)")]
fn array<T: Float>(#[attr] x: ArrayView1<T>, z: ArrayViewMut1<T>) {}

fn main() {}
