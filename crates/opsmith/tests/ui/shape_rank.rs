use opsmith::prelude::*;

#[op(shape = "(n,p),(m,p)->(n,m)")]
fn distance<T: Float>(x: ArrayView2<T>, y: ArrayView3<T>, z: ArrayViewMut2<T>) {}

#[op(shape = "(n)->()")]
fn sum<T: Float>(x: ArrayView1<T>, z: Option<ArrayViewMut1<T>>) {}

fn main() {}
