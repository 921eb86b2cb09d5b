use opsmith::prelude::*;

#[pairwise(outputs = [sum, difference])]
fn two<S: Scalar>(x: S, y: S) -> (S, S) {
    (x + y, x - y)
}

fn main() {}
