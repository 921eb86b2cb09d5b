//! A body is compiled for many elements at a time, so it selects and does not branch.

use opsmith::prelude::*;

#[pointwise]
fn relu<S: Scalar>(x: S) -> S {
    if x.gt(S::of(0.0)) { x } else { S::of(0.0) }
}

#[pointwise]
fn halved<S: Scalar>(x: S) -> S {
    let mut y = x;
    while y.gt(S::of(1.0)) {
        y = y * 0.5;
    }
    y
}

fn main() {}
