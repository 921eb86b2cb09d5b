use opsmith::prelude::*;

#[op(shape = "(n)->(n,k)")]
fn repeat<T: Float>(x: ArrayView1<T>, #[attr] count: usize, z: ArrayViewMut2<T>) {}

#[op(shape = "(n)->(n,scale)")]
fn scale<T: Float>(x: ArrayView1<T>, #[attr] scale: f64, z: ArrayViewMut2<T>) {}

fn main() {}
