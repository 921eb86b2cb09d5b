"""The operators of `examples/kernels` as any array library writes them, by way of all pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass
class Formula:
    """An op: the shapes of its floats, what comes after them, its attributes, and what it is."""

    shapes: list[tuple[int, ...]]
    value: Callable[..., Any]
    others: list[NDArray[np.int64]] = field(default_factory=list)
    attrs: dict[str, Any] = field(default_factory=dict)

    def numbers(self, seed: int = 0) -> list[NDArray[np.float64]]:
        """Inputs around 0."""
        generator = np.random.default_rng(seed)
        return [generator.standard_normal(shape) for shape in self.shapes]


def pairs(ns: Any, x: Any, y: Any) -> Any:
    """Squared distances of all rows."""
    d = x[..., :, None, :] - y[..., None, :, :]
    return ns.sum(d * d, -1)


def log_sum_exp(ns: Any, x: Any) -> Any:
    """Along the last dim."""
    largest = ns.amax(x, -1)
    return ns.log(ns.sum(ns.exp(x - largest[..., None]), -1)) + largest


def entropy(ns: Any, x: Any) -> Any:
    """Of a softmax."""
    log_p = x - log_sum_exp(ns, x)[..., None]
    return -ns.sum(ns.exp(log_p) * log_p, -1)


def dot(ns: Any, x: Any, y: Any) -> Any:
    """Of two rows."""
    return ns.sum(x * y, -1)


def cosine_distance(ns: Any, x: Any, y: Any) -> Any:
    """Of all rows."""
    x = x / ns.sqrt(dot(ns, x, x))[..., None]
    y = y / ns.sqrt(dot(ns, y, y))[..., None]
    return 1 - dot(ns, x[..., :, None, :], y[..., None, :, :])


def attention(ns: Any, causal: bool) -> Callable[..., Any]:
    """With all products in memory; a query that sees no key gets 0."""

    def value(query: Any, key: Any, values: Any, length: NDArray[np.int64]) -> Any:
        fit = dot(ns, query[..., :, None, :], key[..., None, :, :]) / query.shape[-1] ** 0.5
        i, j = np.arange(query.shape[-2])[:, None], np.arange(key.shape[-2])
        seen = np.broadcast_to(j < length[..., None, None], tuple(fit.shape))
        seen = ns.numbers((seen & (j <= i) if causal else seen).astype(np.float64))
        weight = ns.exp(fit) * seen
        total = ns.sum(weight, -1)[..., None]
        sums = ns.sum(weight[..., None] * values[..., None, :, :], -2)
        return sums / (total + ns.numbers((np.asarray(ns.plain(total)) == 0).astype(np.float64)))

    return value


def formulas(ns: Any) -> dict[str, Formula]:
    """For an array library: its functions, and `numbers`, which makes its array of one of NumPy."""
    two, lengths = [(5, 3), (6, 3)], np.array([6, 4])
    labels = np.array([0, 6, 3, 3])
    hot = np.eye(7)[labels]
    attended = [(2, 5, 3), (2, 6, 3), (2, 6, 4)]
    return {
        "rms_norm": Formula(
            [(4, 7), (7,)], lambda x, w: x / ns.sqrt(ns.sum(x * x, -1) / 7 + 1e-6)[..., None] * w
        ),
        "entropy": Formula([(4, 7)], lambda x: entropy(ns, x)),
        "cosine_similarity": Formula(
            [(4, 7), (7,)], lambda x, y: dot(ns, x, y) / ns.sqrt(dot(ns, x, x) * dot(ns, y, y))
        ),
        "cosine_distance": Formula(two, lambda x, y: cosine_distance(ns, x, y)),
        "rbf_kernel": Formula(two, lambda x, y: ns.exp(-0.4 * pairs(ns, x, y)), attrs={"gamma": 0.4}),
        "gaussian_convolution": Formula(
            [*two, (6, 2)],
            lambda x, y, b: ns.sum(ns.exp(-0.4 * pairs(ns, x, y))[..., None] * b, -2),
            attrs={"gamma": 0.4},
        ),
        "nearest_distance": Formula(two, lambda x, y: ns.amin(pairs(ns, x, y), -1)),
        "k_nearest_distances": Formula(
            two, lambda x, y: ns.sort(pairs(ns, x, y))[..., :3], attrs={"neighbours": 3}
        ),
        "chamfer": Formula(
            two,
            lambda x, y: (
                ns.sum(ns.amin(pairs(ns, x, y), -1), -1) / 5 + ns.sum(ns.amin(pairs(ns, x, y), -2), -1) / 6
            ),
        ),
        "sinkhorn_step": Formula(
            [*two, (6,)],
            lambda x, y, f: -0.7 * (log_sum_exp(ns, (f - pairs(ns, x, y)) / 0.7) - float(np.log(6))),
            attrs={"epsilon": 0.7},
        ),
        "attention": Formula(
            attended,
            lambda q, k, v: attention(ns, False)(q, k, v, lengths),
            [lengths],
        ),
        "cross_entropy": Formula(
            [(4, 7)], lambda x: log_sum_exp(ns, x) - ns.sum(x * ns.numbers(hot), -1), [labels]
        ),
    }
