//! Activation functions and the pointwise part of a recurrent cell.
//!
//! An Opsmith library whose kernels are written once: each function is the vectorised CPU kernel for four dtypes, the
//! CUDA source, and by its derivative the gradients of three orders.

use opsmith::prelude::*;

/// The Gaussian error linear unit, x Φ(x).
#[pointwise]
fn gelu<S: Scalar>(x: S) -> S {
    x * x.normal_cdf()
}

/// The leaky rectified linear unit: `x` where it is positive, else `x` times `slope`.
#[pointwise]
fn leaky_relu<S: Scalar>(x: S, #[attr(default = 0.01)] slope: S) -> S {
    S::select(x.gt(S::of(0.0)), x, x * slope)
}

/// The sigmoid linear unit of `gate`, times `x`: the activation of gated feed-forward layers.
///
/// Both broadcast; so `gate` may be a bias, and its gradient is summed.
#[pointwise]
fn swiglu<S: Scalar>(gate: S, x: S) -> S {
    gate * gate.sigmoid() * x
}

/// The entropy −x log x of a probability, 0 for 0.
#[pointwise]
fn entropy<S: Scalar>(x: S) -> S {
    S::select(x.eq(S::of(0.0)), S::of(0.0), -x * x.log())
}

/// What comes after the matrix product of a cell of a long-term memory without a forget gate.
#[pointwise(outputs = [hidden, cell])]
fn lltm_cell<S: Scalar>(
    /// The input gate, before its sigmoid.
    g0: S,
    /// The output gate, before its sigmoid.
    g1: S,
    /// The candidate, before its exponential linear unit.
    g2: S,
    /// The state of the cell before.
    old_cell: S,
) -> (S, S) {
    let cell = old_cell + g2.elu() * g0.sigmoid();
    (cell.tanh() * g1.sigmoid(), cell)
}

opsmith::library! { name = "activations", ops = [gelu, leaky_relu, swiglu, entropy, lltm_cell] }
