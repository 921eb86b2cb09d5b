use opsmith::prelude::*;

#[op(shape = "(n)->(n)")]
fn shift<T: Float>(x: ArrayView1<T>, #[attr(default = "one")] by: i64, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)")]
fn flip<T: Float>(x: ArrayView1<T>, #[attr(default = 1)] really: bool, z: ArrayViewMut1<T>) {}

fn main() {}
