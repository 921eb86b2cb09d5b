#![allow(unused_variables)]

use opsmith::prelude::*;

fn copy_grad() {}

struct Other;

#[op(shape = "(n)->(n)", gradient = copy_grad)]
fn copy<T: Float>(x: ArrayView1<T>, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)", gradient = Other)]
fn other<T: Float>(x: ArrayView1<T>, z: ArrayViewMut1<T>) {}

fn main() {}
