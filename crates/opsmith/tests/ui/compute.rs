use opsmith::prelude::*;

#[op(shape = "(n)->(n)")]
fn last<T: Float>(x: ArrayView1<T>, z: ArrayViewMut1<T>, cx: &Compute) {}

#[op(shape = "(n)->(n)")]
fn saved_input<T: Float>(#[saved] x: ArrayView1<T>, z: ArrayViewMut1<T>) {}

fn main() {}
