"""A reduction that is written once, under JAX: values, and reverse mode of two orders."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from conftest import load

X = jnp.asarray(np.random.default_rng(0).random((6, 20)))


def test_two_orders_are_jaxs() -> None:
    softmax = load("reductions").softmax

    def orders(function: object) -> list[jax.Array]:
        def first(x: jax.Array) -> jax.Array:
            return jax.grad(lambda x: (function(x) ** 2).sum())(x)

        return [function(X), first(X), jax.grad(lambda x: (first(x) ** 3).sum())(X)]

    for function in [softmax, jax.jit(softmax)]:
        for ours, theirs in zip(orders(function), orders(jax.nn.softmax), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
