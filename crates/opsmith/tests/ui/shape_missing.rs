use opsmith::prelude::*;

#[op(not_differentiable)]
fn double<T: Float>(x: ArrayView1<T>, z: ArrayViewMut1<T>) {}

#[op("(n)->(n)", not_differentiable)]
fn triple<T: Float>(x: ArrayView1<T>, z: ArrayViewMut1<T>) {}

fn main() {}
