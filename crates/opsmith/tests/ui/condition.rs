//! A condition on a number is told by the macro, and the op is still there for what names it; one on an attribute is none.

use opsmith::prelude::*;

#[pointwise]
fn larger<S: Scalar>(x: S, y: S) -> S {
    if x > y { x } else { y }
}

#[pointwise]
fn relu<S: Scalar>(x: S, #[attr(default = 0.0)] limit: S) -> S {
    let y = x * 2.0;
    if limit.ge(y) { limit } else { y }
}

#[reduce]
fn halved<R: Rows>(x: R::Each) -> R::Each {
    while S::of(1.0) <= x {}
    match x == x.mean() {
        _ => x,
    }
}

#[pairwise]
fn powered<S: Scalar>(x: S, y: S, #[attr(default = 2)] p: i64, #[attr(default = true)] sign: bool) -> S {
    let d = if sign { x - y } else { (x - y).abs() };
    match p {
        1 => d,
        p if p < 0 => d * 0.0,
        _ => d * d,
    }
}

opsmith::library! { name = "conditions", ops = [larger, relu, halved, powered] }

fn main() {}
