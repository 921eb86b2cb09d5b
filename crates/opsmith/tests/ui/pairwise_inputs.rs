use opsmith::prelude::*;

#[pairwise]
fn three<S: Scalar>(x: S, y: S, w: S) -> S {
    (x - y) * w
}

fn main() {}
