//! A branch on a value: there is no one value when a body is compiled for many elements, or traced.

use opsmith_body::Scalar;

fn relu<S: Scalar>(x: S) -> S {
    if x.gt(S::of(0.0)) { x } else { S::of(0.0) }
}

fn main() {}
