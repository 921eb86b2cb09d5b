//! Literals and comparisons of numbers in bodies: the message is how to write them.

use opsmith::prelude::*;

#[pointwise]
fn clipped<S: Scalar>(x: S, #[attr(default = 0.0)] limit: S) -> S {
    let scaled = 2.0 * x;
    let shifted = (1.0 - scaled) * (x - 1);
    let above = S::select(x > S::of(0.0), x, shifted);
    let between = S::select(0.0 < x && x <= limit * 2.0, above, 0.0);
    S::max(between.max(0.0), -1)
}

#[pointwise]
fn grown<S: Scalar>(x: S) -> S {
    let mut y = x.exp();
    y *= 2;
    let inside = y.gt(x);
    if inside && y.lt(S::of(9.0)) { y } else { x }
}

#[reduce]
fn centred<R: Rows>(x: R::Each) -> R::Each {
    let mean = x.mean();
    let spread = 1 / mean.max(1e-3);
    let e = if true { (x - mean) * spread } else { x };
    R::Each::select(x > mean, e, 3.0 - e)
}

#[pairwise]
fn hinge<S: Scalar>(x: S, y: S) -> S {
    let d = x - y;
    if d == S::of(0.0) { d } else { (-1.0 * d).abs() }
}

#[body("(i,c),(i),(c)->(i)")]
fn picked<S: Indexed>(x: S, label: S::Index, keep: S::Mask) -> S {
    let at = S::index(c);
    let hit = S::select(at == label, x, S::of(0.0));
    let later = S::select(S::index(i) > 2 && keep, x, hit);
    let above = S::select(label >= x, x, later).sum(c) + at * 2.0;
    let first = S::select(at.lt(1), x, later.sum(c) + S::select(2 != x.argmax(c), x, above));
    if S::index(c) < label { first } else { above }
}

#[body("(3 * i),(i,k),(i,r = 2)->(i,r)")]
fn weighed<S: Indexed>(w: [S; 3], x: S, y: S) -> S {
    let (nearest, at) = x.smallest(k, r);
    let [first, ..] = w;
    let (kept, lost) = (w[1], 1.0 - w[1]);
    let sum = (1.0 - nearest) + (2 - first) * kept + S::select(at < 2, lost, 1.0 / lost);
    sum * (1.0 - S::count(k)) + 1.0 - y
}

#[pointwise]
fn plain<S: Scalar>(x: S, #[attr(default = 1.0)] delta: f64) -> S {
    let half = -0.5;
    let d = (half * delta * x).min(delta);
    S::select(d <= delta, d, 2.0 * half)
}

#[pointwise]
fn renamed<S: Scalar>(x: S) -> S {
    let y = x.ln();
    y.powf(2.0).clamp(S::of(0.0), S::of(1.0))
}

opsmith::library! { name = "numbers", ops = [clipped, grown, centred, hinge, picked, weighed, plain, renamed] }

fn main() {}
