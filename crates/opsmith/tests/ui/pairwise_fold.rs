use opsmith::prelude::*;

#[pairwise(fold = product)]
fn distance<S: Scalar>(x: S, y: S) -> S {
    (x - y).abs()
}

fn main() {}
