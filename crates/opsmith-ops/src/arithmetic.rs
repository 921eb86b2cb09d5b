//! Arithmetic on two tensors that broadcast.

use opsmith::prelude::*;

/// The sum of two tensors, which broadcast by NumPy's rules.
#[pointwise(name = "Add")]
pub fn add<S: Scalar>(
    /// Any numbers.
    x: S,
    /// Any numbers.
    y: S,
) -> S {
    x + y
}

crate::define::ops! {
    /// The op `Add`.
    Add = add::def(), with add::COMPANIONS;
}
