use opsmith::prelude::*;

#[op(shape = "(n,p),(m;p)->(n,m)")]
fn distance<T: Float>(x: ArrayView2<T>, y: ArrayView2<T>, z: ArrayViewMut2<T>) {}

fn main() {}
