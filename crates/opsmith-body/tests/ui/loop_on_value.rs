//! A loop as long as a value says.

use opsmith_body::Scalar;

fn newton<S: Scalar>(x: S) -> S {
    let mut root = x;
    while (root * root - x).abs().gt(S::of(1e-6)) {
        root = (root + x / root) * 0.5;
    }
    root
}

fn main() {}
