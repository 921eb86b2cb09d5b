use opsmith::prelude::*;

#[op(shape = "(...,n)->(...,n)")]
fn double<T: Float>(x: ArrayViewD<T>, z: ArrayViewMut1<T>) {}

fn main() {}
