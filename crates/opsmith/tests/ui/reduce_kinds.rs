//! What there is one of for each row is not what varies along it.

use opsmith::prelude::*;

#[reduce]
fn not_folded<R: Rows>(x: R::Each) -> R::One {
    x * x
}

#[reduce]
fn folded<R: Rows>(x: R::Each) -> R::Each {
    x.sum()
}

#[reduce]
fn branches<R: Rows>(x: R::Each) -> R::One {
    if x.amax().gt(R::One::of(0.0)) { x.sum() } else { x.amin() }
}

fn main() {}
