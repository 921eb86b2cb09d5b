//! The operators of comparison give a `bool`, which there is not.

use opsmith_body::Scalar;

fn relu<S: Scalar>(x: S) -> S {
    if x > S::of(0.0) { x } else { S::of(0.0) }
}

fn main() {}
