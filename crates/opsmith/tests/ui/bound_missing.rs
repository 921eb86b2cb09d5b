use opsmith::prelude::*;

#[op(shape = "(n)->(n)")]
fn copy<T>(x: ArrayView1<T>, z: ArrayViewMut1<T>) {}

fn main() {}
