use opsmith::prelude::*;

#[pairwise(finish = f64::sqrt)]
fn distance<S: Scalar>(x: S, y: S) -> S {
    (x - y) * (x - y)
}

fn main() {}
