#![allow(unused_variables)]

use opsmith::prelude::*;

#[op(shape = "(n)->()")]
fn sum<T: Float>(x: ArrayView1<T>, z: ArrayViewMut0<T>) -> T {
    x.sum()
}

#[op(shape = "(n)->()")]
fn other_error<T: Float>(x: ArrayView1<T>, z: ArrayViewMut0<T>) -> std::result::Result<(), String> {
    Ok(())
}

fn main() {}
