use opsmith::prelude::*;

#[op(shape = "(n)->(n)", dtypes(T = [f32, i32]))]
fn copy<T: Float>(x: ArrayView1<T>, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)", dtypes(S = [f32]))]
fn other<T: Float>(x: ArrayView1<T>, z: ArrayViewMut1<T>) {}

#[op(shape = "(n)->(n)", dtypes(T = [f32, f33]))]
fn unknown<T: Float>(x: ArrayView1<T>, z: ArrayViewMut1<T>) {}

fn main() {}
