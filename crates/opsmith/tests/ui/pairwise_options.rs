//! What `#[pairwise]` says of options that are none.

use opsmith::prelude::*;

#[pairwise(finish = |z| z.sqrt())]
fn closure<S: Scalar>(x: S, y: S) -> S {
    x * y
}

#[pairwise(finish = "sqrt")]
fn text<S: Scalar>(x: S, y: S) -> S {
    x * y
}

#[pairwise(fold = sum, fold = max)]
fn two_folds<S: Scalar>(x: S, y: S) -> S {
    x * y
}

#[pairwise(shape = "(n,p),(m,p)->(n,m)")]
fn unknown_option<S: Scalar>(x: S, y: S) -> S {
    x * y
}

#[pairwise(finish = root(y, 2.0))]
fn called<S: Scalar>(x: S, y: S) -> S {
    (x - y) * (x - y)
}

fn main() {}
