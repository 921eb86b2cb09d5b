//! Distances of all pairs of rows, one line of arithmetic each: kernels for every float type, processor and device, and
//! gradients of three orders, come from it.

use opsmith::prelude::*;

/// Pairwise Manhattan (L1) distances between the rows of `x` and the rows of `y`: `z[i, j] = Σₖ |x[i, k] − y[j, k]|`.
#[pairwise]
fn manhattan<S: Scalar>(x: S, y: S) -> S {
    (x - y).abs()
}

/// Squared Euclidean distances: `z[i, j] = Σₖ (x[i, k] − y[j, k])²`.
#[pairwise]
fn squared_euclidean<S: Scalar>(x: S, y: S) -> S {
    (x - y) * (x - y)
}

/// Euclidean distances. Like that of a square root, the gradient is infinite or NaN where rows are equal.
#[pairwise(finish = Scalar::sqrt)]
fn euclidean<S: Scalar>(x: S, y: S) -> S {
    (x - y) * (x - y)
}

/// Chebyshev distances: the largest `|x[i, k] − y[j, k]|`.
#[pairwise(fold = max)]
fn chebyshev<S: Scalar>(x: S, y: S) -> S {
    (x - y).abs()
}

/// Canberra distances: the sum of `|x − y| / (|x| + |y|)`, where 0/0 counts as 0.
#[pairwise]
fn canberra<S: Scalar>(x: S, y: S) -> S {
    S::select(x.eq(S::of(0.0)) & y.eq(S::of(0.0)), S::of(0.0), (x - y).abs() / (x.abs() + y.abs()))
}

/// Minkowski distances of an order: the sum of `|x − y|` to the power of the order, whose root is the caller's.
#[pairwise]
fn minkowski_power<S: Scalar>(x: S, y: S, #[attr(default = 3.0, above = 0.0)] order: S) -> S {
    (x - y).abs().pow(order)
}

/// The mean squared difference of rows.
#[pairwise(fold = mean)]
fn mean_squared<S: Scalar>(x: S, y: S) -> S {
    (x - y) * (x - y)
}

opsmith::library! {
    name = "pairwise",
    ops = [manhattan, squared_euclidean, euclidean, chebyshev, canberra, minkowski_power, mean_squared],
}
