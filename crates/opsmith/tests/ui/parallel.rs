//! Free axes are dims of the shape signature, once each, that every output has.

use opsmith::prelude::*;

#[op(shape = "(n,p)->(n)", parallel = "q")]
fn unknown(_x: ArrayView2<f32>, _y: ArrayViewMut1<f32>) {}

#[op(shape = "(n,p)->(n)", parallel = "n, n")]
fn twice(_x: ArrayView2<f32>, _y: ArrayViewMut1<f32>) {}

#[op(shape = "(n,p)->(n)", parallel = "n, p")]
fn lacking(_x: ArrayView2<f32>, _y: ArrayViewMut1<f32>) {}

fn main() {}
