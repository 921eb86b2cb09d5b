use opsmith::prelude::*;

#[op(shape = "(n)->(n)")]
fn copy<T: Clone + Send>(x: ArrayView1<T>, z: ArrayViewMut1<T>) {}

fn main() {}
