use opsmith::prelude::*;

#[op(shape = "(n)->(n)")]
fn twice<T: Float>(a: ArrayView1<T>, #[attr] _a: i64, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)", name = "copy-it")]
fn copy<T: Float>(x: ArrayView1<T>, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)")]
fn pattern<T: Float>((x, _): (ArrayView1<T>, i64), z: ArrayViewMut1<T>) {}

fn main() {}
