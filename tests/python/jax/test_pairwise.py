"""A pairwise kernel that is written once, under JAX: values, and reverse mode of two orders."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from conftest import load

RNG = np.random.default_rng(0)
X, Y = jnp.asarray(RNG.random((6, 20))), jnp.asarray(RNG.random((5, 20)))


def reference(x: jax.Array, y: jax.Array) -> jax.Array:
    """Euclidean distances."""
    return jnp.sqrt(jnp.sum((x[:, None] - y[None]) ** 2, -1))


def test_two_orders_are_jaxs() -> None:
    pairwise = load("pairwise")

    def orders(function: object) -> list[jax.Array]:
        def first(x: jax.Array, y: jax.Array) -> list[jax.Array]:
            return jax.grad(lambda x, y: (function(x, y) ** 2).sum(), (0, 1))(x, y)

        def total(x: jax.Array, y: jax.Array) -> jax.Array:
            by_x, by_y = first(x, y)
            return (by_x**2).sum() + (by_y**3).sum()

        return [function(X, Y), *first(X, Y), *jax.grad(total, (0, 1))(X, Y)]

    for function in [pairwise.euclidean, jax.jit(pairwise.euclidean)]:
        for ours, theirs in zip(orders(function), orders(reference), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-10)
