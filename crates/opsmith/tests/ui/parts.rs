//! Signatures whose dims consist of parts, and functions that they do not fit.

use opsmith::prelude::*;

#[body("(3 * s + f,b),(f)->(b)")]
fn unsized_parts<S: Indexed>(w: [S; 4], x: S) -> S {
    w[0].sum(s)
}

#[body("(3 * s,s + f),(s),(f)->()")]
fn same_axis<S: Indexed>(w: [[S; 2]; 3], x: S, y: S) -> S {
    w[0][0].sum(s)
}

#[body("(3 * s,b),(s)->(b)")]
fn whole<S: Indexed>(w: S, x: S) -> S {
    w.sum(s)
}

#[body("(s,b),(s)->(b)")]
fn parted<S: Indexed>(w: [S; 2], x: S) -> S {
    w[0].sum(s)
}

#[body("(s)->(s + s)")]
fn output<S: Indexed>(x: S) -> S {
    x
}

#[body("(s * t),(s),(t)->()")]
fn product<S: Indexed>(w: S, x: S, y: S) -> S {
    w.sum(s)
}

#[body("(3 * (s + t)),(s),(t)->()")]
fn nested<S: Indexed>(w: S, x: S, y: S) -> S {
    w.sum(s)
}

#[body("(0 * s),(s)->()")]
fn none<S: Indexed>(w: S, x: S) -> S {
    w.sum(s)
}

#[body("(100 * s),(s)->()")]
fn many<S: Indexed>(w: [S; 100], x: S) -> S {
    w[0].sum(s)
}

#[body("(3 * s = 4),(s)->()")]
fn sized<S: Indexed>(w: [S; 3], x: S) -> S {
    w[0].sum(s)
}

#[body("(r = s,s = r)->()")]
fn circular<S: Indexed>(x: S) -> S {
    x.sum(r).sum(s)
}

#[body("(s)->()")]
fn attribute<S: Indexed>(x: S, #[attr] scale: [S; 2]) -> S {
    x.sum(s)
}

#[pointwise]
fn elsewhere<S: Scalar>(x: [S; 2]) -> S {
    x[0]
}

fn main() {}
