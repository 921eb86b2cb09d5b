#![allow(unused_variables)]

use opsmith::prelude::*;

trait Signed: Number {}

impl Signed for f32 {}

#[op(shape = "(n)->(n)", dtypes(T = [f32, u8]))]
fn negate<T: Signed>(x: ArrayView1<T>, z: ArrayViewMut1<T>) {}

fn main() {}
