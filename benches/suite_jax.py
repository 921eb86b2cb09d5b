"""JAX: a call with nothing to compute, and pairwise Manhattan distances at n = m = p = 512.

A tiny call has inputs of shape (1, 1), float32. Its peers are JAX's own functions of two arrays, called in
the same way (under `jax.jit`, and without it); the cheapest counts. The distances' peer is broadcasting
under `jax.jit`. Every call waits for its result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from harness import OURS, Case, Options, Target

TITLE = "JAX"

SIZE = 512
TINY = 1.2
"""How much a tiny call may cost beside the cheapest of JAX's own."""


def cases(options: Options) -> Iterator[Case]:
    """Tiny calls with and without `jax.jit`, then distances."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import opsmith

    ours = opsmith.load(options.library("distances")).pairwise_manhattan_distance
    x, y = (jax.random.uniform(jax.random.key(seed), (1, 1)) for seed in (0, 1))
    peers = {"jnp.add": jnp.add, "jnp.multiply": jnp.multiply, "jnp.subtract": jnp.subtract}
    contenders = {OURS: ours, **peers}
    target = [Target(TINY, tuple(peers))]
    jitted = {name: waiting(jax.jit(function), x, y) for name, function in contenders.items()}
    yield Case("tiny call under jax.jit", jitted, target)
    eager = {name: waiting(function, x, y) for name, function in contenders.items()}
    yield Case("tiny call", eager, target)

    x, y = (jax.random.uniform(jax.random.key(seed), (SIZE, SIZE)) for seed in (0, 1))
    broadcasting = jax.jit(lambda x, y: jnp.abs(x[:, None, :] - y[None, :, :]).sum(-1))
    np.testing.assert_allclose(ours(x, y), broadcasting(x, y), rtol=1e-5)
    contenders = {OURS: waiting(ours, x, y), "jax.jit": waiting(broadcasting, x, y)}
    yield Case("distances", contenders, [Target(0.35, ("jax.jit",))])


def waiting(function: Callable[..., Any], x: Any, y: Any) -> Callable[[], object]:
    """The function on these inputs, until the answer is there."""
    return lambda: function(x, y).block_until_ready()
