use opsmith::prelude::*;

#[op(shape = "(n)->(n)", differentiable)]
fn copy<T: Float>(x: ArrayView1<T>, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)", shape = "(n)->(n)")]
fn twice<T: Float>(x: ArrayView1<T>, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)", gradient = copy, not_differentiable)]
fn both<T: Float>(x: ArrayView1<T>, z: ArrayViewMut1<T>) {}

fn main() {}
