//! Lists of tensors that cannot be.

use opsmith::prelude::*;

#[op(shape = "(n)->(n)")]
fn read_only<T: Float>(x: &[ArrayView1<T>], z: &[ArrayViewMut1<T>]) {}

#[op(shape = "(n)->(n)")]
fn written<T: Float>(x: &mut [ArrayView1<T>], z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)")]
fn absent<T: Float>(x: Option<&[ArrayView1<T>]>, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)")]
fn nested<T: Float>(x: Vec<Option<ArrayView1<T>>>, z: ArrayViewMut1<T>) {}

#[op(shape = "(n),(n)->(n)")]
fn unclear<T: Float>(x: &[ArrayView1<T>], y: &[ArrayView1<T>], z: Vec<ArrayViewMut1<T>>) {}

#[op(shape = "(n)->(n)")]
fn no_length<T: Float>(x: ArrayView1<T>, z: Vec<ArrayViewMut1<T>>) {}

#[op(shape = "(n)->(n)", cuda = "numbers.cu")]
fn on_a_card<T: Float>(x: &[ArrayView1<T>], z: ArrayViewMut1<T>) {}

fn main() {}
