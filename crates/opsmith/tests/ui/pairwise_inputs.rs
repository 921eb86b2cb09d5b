use opsmith::prelude::*;

#[pairwise]
fn three<S: Scalar>(x: S, y: S, w: S) -> S {
    (x - y) * w
}

#[pairwise]
fn chosen<S: Scalar>(x: S, y: S, #[attr(one_of = ["a", "b"])] mode: &str) -> S {
    x - y
}

fn main() {}
