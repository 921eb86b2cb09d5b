use opsmith::prelude::*;

#[op(shape = "(n)->(n)")]
fn unknown<T: Float>(x: ArrayView1<T>, #[attr(minimum = 1)] by: i64, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)")]
fn empty_range<T: Float>(x: ArrayView1<T>, #[attr(min = 2, max = 1)] by: i64, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)")]
fn not_a_number<T: Float>(x: ArrayView1<T>, #[attr(min = 2)] by: bool, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)")]
fn both<T: Float>(x: ArrayView1<T>, #[attr(min = 0.0, above = 0.0)] by: f64, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)")]
fn not_a_float<T: Float>(x: ArrayView1<T>, #[attr(below = 2)] by: i64, z: ArrayViewMut1<T>) {}

fn main() {}
