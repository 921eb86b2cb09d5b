//! Outputs whose shape is found, where that does not fit.

use opsmith::prelude::*;

#[op(shape = "(?)->(n)")]
fn of_an_input<T: Float>(x: ArrayView1<T>, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(?)")]
fn memory<T: Float>(x: ArrayView1<T>, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)")]
fn known<T: Float>(x: ArrayView1<T>, z: &mut Array1<T>) {}

#[op(shape = "(n)->(?,n)")]
fn rank<T: Float>(x: ArrayView1<T>, z: &mut Array1<T>) {}

#[op(shape = "(n)->(?)")]
fn list<T: Float>(x: &[ArrayView1<T>], z: Vec<&mut Array1<T>>) {}

#[op(shape = "(n)->(?)", cuda = "numbers.cu")]
fn on_a_card<T: Float>(x: ArrayView1<T>, z: &mut Array1<T>) {}

fn main() {}
