//! What `#[reduce]` says of functions that are no reductions.

use opsmith::prelude::*;

#[reduce]
fn of_numbers<S: Scalar>(x: S) -> S {
    x
}

#[reduce]
fn not_generic(x: f32) -> f32 {
    x
}

#[reduce]
fn no_rows<R: Rows>(x: R::One) -> R::One {
    x
}

#[reduce]
fn neither_kind<R: Rows>(x: R) -> R::One {
    x.sum()
}

#[reduce]
fn no_number<R: Rows>(x: R::Each) -> f64 {
    1.0
}

#[reduce]
fn own_axes<R: Rows>(x: R::Each, #[attr] axes: i64) -> R::One {
    x.sum()
}

#[reduce(output = axes)]
fn axes_result<R: Rows>(x: R::Each) -> R::One {
    x.sum()
}

#[reduce]
fn many_attributes<R: Rows>(x: R::Each, #[attr] a: R::Each) -> R::One {
    (x * a).sum()
}

#[reduce(axes = 2)]
fn not_any_axes<R: Rows>(x: R::Each) -> R::One {
    x.sum()
}

#[reduce(axes = any)]
fn any_axes_of_two<R: Rows>(x: R::Each, y: R::Each) -> R::One {
    (x * y).sum()
}

#[reduce(axis = 2)]
fn unknown_option<R: Rows>(x: R::Each) -> R::One {
    x.sum()
}

#[reduce(orders = -1)]
fn negative_orders<R: Rows>(x: R::Each) -> R::One {
    x.sum()
}

fn main() {}
