//! What `#[pointwise]` says of functions that are no bodies.

use opsmith::prelude::*;

#[pointwise]
fn not_generic(x: f32) -> f32 {
    x
}

#[pointwise]
fn other_bound<T: Float>(x: T) -> T {
    x
}

#[pointwise]
fn two_types<S: Scalar, R: Scalar>(x: S, y: R) -> S {
    x
}

#[pointwise]
fn no_input<S: Scalar>(#[attr] a: S) -> S {
    a
}

#[pointwise]
fn no_output<S: Scalar>(x: S) {}

#[pointwise]
fn plain_parameter<S: Scalar>(x: S, slope: f64) -> S {
    x * slope
}

#[pointwise]
fn text_attribute<S: Scalar>(x: S, #[attr] mode: &str) -> S {
    x
}

#[pointwise]
fn owned_text<S: Scalar>(x: S, #[attr(one_of = ["a", "b"])] mode: String) -> S {
    x
}

#[pointwise]
fn two_outputs<S: Scalar>(x: S) -> (S, S) {
    (x, x)
}

#[pointwise(outputs = [a, b, c])]
fn three_names<S: Scalar>(x: S) -> (S, S) {
    (x, x)
}

#[pointwise(output = x)]
fn same_name<S: Scalar>(x: S) -> S {
    x
}

#[pointwise(dtypes = [f32, i32])]
fn of_integers<S: Scalar>(x: S) -> S {
    x
}

#[pointwise(orders = 5)]
fn many_orders<S: Scalar>(x: S) -> S {
    x
}

#[pointwise(shape = "(n)->(n)")]
fn unknown_option<S: Scalar>(x: S) -> S {
    x
}

#[pointwise]
fn masked<S: Scalar>(x: S, mask: S::Mask) -> S {
    S::select(mask, x, S::of(0.0))
}

#[pointwise(name = "Once", name = "Twice")]
fn twice_named<S: Scalar>(x: S) -> S {
    x
}

fn main() {}
