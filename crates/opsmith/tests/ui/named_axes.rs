//! Bodies over named axes whose signatures do not fit.

use opsmith::prelude::*;

#[body]
fn unsaid<S: Indexed>(x: S) -> S {
    x
}

#[body("(i,j)->(k)")]
fn nowhere<S: Indexed>(x: S) -> S {
    x.sum(j)
}

#[body("(i,i)->(i)")]
fn twice<S: Indexed>(x: S) -> S {
    x
}

#[body("(i),(j)->(i)")]
fn too_many<S: Indexed>(x: S) -> S {
    x
}

#[body("(3,i)->(i)")]
fn fixed<S: Indexed>(x: S) -> S {
    x
}

#[body("(i;j)->(i)")]
fn unread<S: Indexed>(x: S) -> S {
    x
}

#[body("(i,j)->(i),(i)", outputs = [z, at])]
fn both<S: Indexed>(x: S) -> (S, S::Index) {
    (x.amax(j), x.argmax(j))
}

#[body("(i,j)->(i)", orders = 1)]
fn position<S: Indexed>(x: S) -> S::Index {
    x.argmax(j)
}

#[body("(i,j),(i)->(i)")]
fn label<S: Indexed>(x: S::Index, y: S::Mask) -> S {
    S::select(y, x.number(), S::of(0.0)).sum(j)
}

#[body("(i,j)->(i)")]
fn attribute<S: Indexed>(x: S, #[attr] y: S::Index) -> S {
    x.sum(j)
}

#[body("(i,j),(i)->(i)")]
fn indexed<S: Indexed>(x: S, label: S::Index) -> S {
    x[label]
}

#[body("(i,j)->(i)")]
fn literal<S: Indexed>(x: S) -> S {
    1.0 - x.sum(j)
}

#[body("(i,j)->(i)")]
fn other_axis<S: Indexed>(x: S) -> S {
    let size = S::count(n);
    x.sum(kk) / size
}

#[body("(i,j)->(i)")]
fn known_axis<S: Indexed>(x: S) -> S {
    let last = j;
    x.sum(last)
}

#[body("(i,c),(i)->(i)")]
fn at_label<S: Indexed>(x: S, label: S::Index) -> S {
    x.at(c, label)
}

#[body("(i,j)->(i),(i)")]
fn nameless<S: Indexed>(x: S) -> (S, S) {
    (x.sum(j), x.amax(j))
}

#[body("(i,j)->(i)")]
fn other_bound<S: Scalar>(x: S) -> S {
    x.sum(j)
}

#[body("(i,j)->(i),(i)", outputs = [at, found])]
fn mixed<S: Indexed>(x: S) -> (S::Index, S::Mask) {
    (x.argmax(j), x.gt(S::of(0.0)).any(j))
}

#[body("(i,j)->(i)")]
fn largest<S: Indexed>(x: S) -> S {
    x.max(j)
}

#[body("(i,j)->()")]
fn several<S: Indexed>(x: S) -> S {
    x.sum(i, j)
}

#[body("(i,j)->(i)")]
fn of_mask<S: Indexed>(x: S) -> S {
    x.gt(S::of(0.0)).sum(j)
}

fn main() {}
