use opsmith::prelude::*;

#[pairwise]
fn distance<S: Scalar>(x: S, y: S) -> S {
    if x.gt(y) { x - y } else { y - x }
}

fn main() {}
