use opsmith::prelude::*;

#[op(shape = "(n,p),(m,p)->(n,m)")]
fn distance<T: Float>(x: ArrayView2<T>, z: ArrayViewMut2<T>) {}

#[op(shape = "(n,p)->(n),(p)")]
fn sums<T: Float>(x: ArrayView2<T>, rows: ArrayViewMut1<T>) {}

fn main() {}
