//! Functions of the rows of tensors: each is the arithmetic of one row, and has kernels for four dtypes, gradients of two
//! orders and CUDA source by itself.

use opsmith::prelude::*;

/// The Euclidean norm of each row.
///
/// Its gradient is not a number where a row is all zeros, as the norm has none there.
#[reduce]
fn norm<R: Rows>(
    /// Any numbers.
    x: R::Each,
) -> R::One {
    (x * x).sum().sqrt()
}

/// The softmax of each row: `exp(x)` over its sum.
#[reduce]
fn softmax<R: Rows>(
    /// Any numbers.
    x: R::Each,
) -> R::Each {
    let e = (x - x.amax().detached()).exp();
    e / e.sum()
}

/// The logarithm of the sum of the exponentials of each row, without overflow.
#[reduce]
fn log_sum_exp<R: Rows>(
    /// Any numbers, infinities too.
    x: R::Each,
) -> R::One {
    let largest = x.amax().detached();
    // Of an infinite largest number nothing is subtracted, which would be no number.
    let shift = R::One::select(largest.abs().lt(R::One::of(f64::INFINITY)), largest, R::One::of(0.0));
    (x - shift).exp().sum().log() + shift
}

/// Each row moved and scaled to mean 0 and variance 1, then scaled and moved as `gamma` and `beta` say.
#[reduce]
fn layer_norm<R: Rows>(
    /// Any numbers.
    x: R::Each,
    /// What each position is multiplied by.
    gamma: R::Each,
    /// What is added to each position.
    beta: R::Each,
    /// What is added to the variance, so that it is not zero.
    #[attr(default = 1e-5, above = 0.0)]
    epsilon: R::One,
) -> R::Each {
    let centred = x - x.mean();
    let variance = (centred * centred).mean();
    centred * (variance + epsilon).rsqrt() * gamma + beta
}

/// The smallest and the largest number of each row.
#[reduce(outputs = [smallest, largest])]
fn range<R: Rows>(
    /// Any numbers; if one is NaN, so are both ends.
    x: R::Each,
) -> (R::One, R::One) {
    (x.amin(), x.amax())
}

opsmith::library! {
    name = "reductions",
    ops = [norm, softmax, log_sum_exp, layer_norm, range]
}
