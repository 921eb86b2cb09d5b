//! Operators over named axes: each is the arithmetic of its numbers, and has kernels for four dtypes, gradients of three orders and CUDA
//! source by itself. What has a number for every pair of rows is never in memory.

use opsmith::prelude::*;

/// Squared Euclidean distances along an axis.
#[inline(always)]
fn squared<S: Indexed>(x: S, y: S, axis: opsmith::Axis) -> S {
    ((x - y) * (x - y)).sum(axis)
}

/// Each row over the root of the mean of its squares, times `weight`.
#[body("(c),(c)->(c)")]
fn rms_norm<S: Indexed>(
    /// Any numbers.
    x: S,
    /// What each position is multiplied by.
    weight: S,
    /// What is added to the mean, so that it is not zero.
    #[attr(default = 1e-6, above = 0.0)]
    epsilon: S,
) -> S {
    x * ((x * x).mean(c) + epsilon).rsqrt() * weight
}

/// The entropy of the softmax of each row, in nats.
#[body("(c)->()")]
fn entropy<S: Indexed>(
    /// Logits; one of −∞ has no part.
    logits: S,
) -> S {
    let log_p = logits - logits.log_sum_exp(c);
    let p = log_p.exp();
    -S::select(p.eq(S::of(0.0)), S::of(0.0), p * log_p).sum(c)
}

/// The cosine of the angle of two rows; 0 of a row of zeros.
#[body("(k),(k)->()")]
fn cosine_similarity<S: Indexed>(
    /// Rows.
    x: S,
    /// As many, or one for all.
    y: S,
    /// The least that a length counts.
    #[attr(default = 1e-8, above = 0.0)]
    epsilon: S,
) -> S {
    let length = |x: S| (x * x).sum(k).sqrt().max(epsilon);
    (x * y).sum(k) / (length(x) * length(y))
}

/// 1 less the cosine of the angle of every two rows.
#[body("(i,k),(j,k)->(i,j)")]
fn cosine_distance<S: Indexed>(
    /// Rows that are not zeros.
    x: S,
    /// Others.
    y: S,
) -> S {
    S::of(1.0) - (x * y).sum(k) * ((x * x).sum(k) * (y * y).sum(k)).rsqrt()
}

/// exp(−γ |xᵢ − yⱼ|²), for every two rows.
#[body("(i,k),(j,k)->(i,j)")]
fn rbf_kernel<S: Indexed>(
    /// Rows.
    x: S,
    /// Others.
    y: S,
    /// How fast it falls with the distance.
    #[attr(default = 1.0)]
    gamma: S,
) -> S {
    (squared(x, y, k) * -gamma).exp()
}

/// Σⱼ exp(−γ |xᵢ − yⱼ|²) bⱼ.
#[body("(i,k),(j,k),(j,e)->(i,e)")]
fn gaussian_convolution<S: Indexed>(
    /// Where it is evaluated.
    x: S,
    /// Where the weights are.
    y: S,
    /// The weights.
    b: S,
    /// How fast a weight's part falls with the distance.
    #[attr(default = 1.0)]
    gamma: S,
) -> S {
    ((squared(x, y, k) * -gamma).exp() * b).sum(j)
}

/// The row of `y` that is nearest to each row of `x`: the first of equals. Of centres, it is the assignment of k-means.
#[body("(i,k),(j,k)->(i)")]
fn nearest<S: Indexed>(
    /// Rows.
    x: S,
    /// Those among which the nearest is looked for; one at least.
    y: S,
) -> S::Index {
    squared(x, y, k).argmin(j)
}

/// The squared distance from each row of `x` to the nearest row of `y`.
#[body("(i,k),(j,k)->(i)")]
fn nearest_distance<S: Indexed>(
    /// Rows.
    x: S,
    /// Those among which the nearest is looked for.
    y: S,
) -> S {
    squared(x, y, k).amin(j)
}

/// The rows of `y` that are nearest to each row of `x`, the nearest first.
#[body("(i,k),(j,k)->(i,r = neighbours)")]
fn k_nearest<S: Indexed>(
    /// Rows.
    x: S,
    /// Those among which the nearest are looked for; `neighbours` at least.
    y: S,
    /// How many, at most 64.
    #[attr(default = 5)]
    neighbours: usize,
) -> S::Index {
    squared(x, y, k).smallest(j, r).1
}

/// The squared distances from each row of `x` to those rows, the least first.
#[body("(i,k),(j,k)->(i,r = neighbours)")]
fn k_nearest_distances<S: Indexed>(
    /// Rows.
    x: S,
    /// Those among which the nearest are looked for; `neighbours` at least.
    y: S,
    /// How many, at most 64.
    #[attr(default = 5)]
    neighbours: usize,
) -> S {
    squared(x, y, k).smallest(j, r).0
}

/// The Chamfer distance of two sets of points: the mean squared distance to the nearest point of the other, both ways.
#[body("(i,k),(j,k)->()")]
fn chamfer<S: Indexed>(
    /// Points.
    x: S,
    /// Others.
    y: S,
) -> S {
    let distance = squared(x, y, k);
    distance.amin(j).mean(i) + distance.amin(i).mean(j)
}

/// A step of Sinkhorn's algorithm: the potential of the rows of `x` from that of the rows of `y`, of equal weights and squared distances as
/// costs.
#[body("(i,k),(j,k),(j)->(i)")]
fn sinkhorn_step<S: Indexed>(
    /// Points.
    x: S,
    /// Others.
    y: S,
    /// The potential of those.
    potential: S,
    /// The strength of the entropy.
    #[attr(default = 1.0, above = 0.0)]
    epsilon: S,
) -> S {
    let mean = ((potential - squared(x, y, k)) / epsilon).log_sum_exp(j) - S::count(j).log();
    -mean * epsilon
}

/// Attention: the mean of the values, weighted by the softmax of the products of query and keys over the root of their width.
///
/// A query that sees no key gets 0.
#[body("(i,k),(j,k),(j,e),()->(i,e)")]
fn attention<S: Indexed>(
    /// Queries.
    query: S,
    /// Keys.
    key: S,
    /// A value for each key.
    value: S,
    /// How many of the keys there are; the others are not seen. One number, or one for each dim in front.
    length: S::Index,
    /// Whether a query sees the keys up to its own position only.
    #[attr(default = false)]
    causal: bool,
) -> S {
    let fit = (query * key).sum(k) * S::count(k).rsqrt();
    let is_there = S::index(j).lt(length);
    let is_seen = if causal { is_there & S::index(j).le(S::index(i)) } else { is_there };
    let fit = S::select(is_seen, fit, S::of(f64::NEG_INFINITY));
    let largest = fit.amax(j).detached();
    let weight = (fit - S::select(largest.gt(S::of(f64::NEG_INFINITY)), largest, S::of(0.0))).exp();
    let total = weight.sum(j);
    // The first key is seen if any is. Where none is, 0.
    S::select(length.number().gt(S::of(0.0)), (weight * value).sum(j) / total, S::of(0.0))
}

/// The cross entropy of each row of logits and its label.
#[body("(c),()->()")]
fn cross_entropy<S: Indexed>(
    /// Logits.
    logits: S,
    /// The position of the right one.
    label: S::Index,
) -> S {
    let shifted = logits - logits.amax(c).detached();
    let loss = shifted.exp().sum(c).log() - shifted;
    S::select(S::index(c).eq(label), loss, S::of(0.0)).sum(c)
}

opsmith::library! {
    name = "kernels",
    ops = [
        rms_norm, entropy, cosine_similarity, cosine_distance, rbf_kernel, gaussian_convolution, nearest, nearest_distance, k_nearest,
        k_nearest_distances, chamfer, sinkhorn_step, attention, cross_entropy
    ]
}
