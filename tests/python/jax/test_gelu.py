"""GELU of both kinds in JAX: against `jax.nn.gelu`, gradients of two orders, jit and vmap."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import opsmith
import pytest
from conftest import load
from jax.test_util import check_grads

KINDS = ["none", "tanh"]


@pytest.fixture(scope="session")
def library() -> opsmith.Library:
    """The example library."""
    return load("gelu")


@pytest.mark.parametrize("approximate", KINDS)
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64])
def test_values_and_gradients_are_those_of_jax(
    library: opsmith.Library, dtype: type, approximate: str
) -> None:
    rng = np.random.default_rng(0)
    x, upstream = (jnp.asarray(rng.normal(size=(40, 50)) * 3).astype(dtype) for _ in range(2))
    y, back = jax.vjp(jax.jit(lambda x: library.gelu(x, approximate=approximate)), x)
    expected, their_back = jax.vjp(
        lambda x: jax.nn.gelu(x, approximate=approximate == "tanh"), x.astype(jnp.float64)
    )
    eps = float(jnp.finfo(dtype).eps)
    for ours, theirs in ((y, expected), (back(upstream)[0], their_back(upstream.astype(jnp.float64))[0])):
        assert ours.dtype == x.dtype
        np.testing.assert_allclose(ours.astype(jnp.float64), theirs, rtol=2 * eps, atol=8e-6)


@pytest.mark.parametrize("approximate", KINDS)
def test_gradients_of_two_orders(library: opsmith.Library, approximate: str) -> None:
    x = jnp.asarray(np.random.default_rng(1).normal(size=(3, 4)))
    check_grads(lambda x: library.gelu(x, approximate=approximate), (x,), order=2, modes=["rev"])


def test_batches_empty_and_wrong(library: opsmith.Library) -> None:
    x = jnp.asarray(np.random.default_rng(2).normal(size=(3, 4)))
    slopes = jax.vmap(jax.vmap(jax.grad(lambda x: library.gelu(x, approximate="tanh"))))(x)
    expected = jax.vmap(jax.vmap(jax.grad(lambda x: jax.nn.gelu(x, approximate=True))))(x)
    np.testing.assert_allclose(slopes, expected, rtol=1e-12, atol=1e-12)
    assert library.gelu(jnp.zeros((0, 3))).shape == (0, 3)
    with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match="'none', 'tanh'"):
        library.gelu(x, approximate="erf")
