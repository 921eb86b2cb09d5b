use opsmith::prelude::*;

#[op(shape = "(n)->(n)")]
fn low<T: Float>(x: ArrayView1<T>, #[attr(default = 0, min = 1, max = 9)] by: i64, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)")]
fn high<T: Float>(x: ArrayView1<T>, #[attr(default = 9.5, max = 9.0)] by: f64, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)")]
fn negative<T: Float>(x: ArrayView1<T>, #[attr(default = -1)] count: usize, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)")]
fn other<T: Float>(
    x: ArrayView1<T>,
    #[attr(default = "max", one_of = ["sum", "mean"])] mode: &str,
    z: ArrayViewMut1<T>,
) {
}

fn main() {}
