//! Plain floats are no numbers of bodies.

use opsmith_body::Scalar;

fn square<S: Scalar>(x: S) -> S {
    x * x
}

fn main() {
    square(2.0f32);
}
