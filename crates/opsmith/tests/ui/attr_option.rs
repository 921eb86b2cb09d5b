use opsmith::prelude::*;

#[op(shape = "(n)->(n)")]
fn unknown<T: Float>(x: ArrayView1<T>, #[attr(minimum = 1)] by: i64, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)")]
fn empty_range<T: Float>(x: ArrayView1<T>, #[attr(min = 2, max = 1)] by: i64, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)")]
fn not_a_number<T: Float>(x: ArrayView1<T>, #[attr(min = 2)] by: bool, z: ArrayViewMut1<T>) {}

fn main() {}
