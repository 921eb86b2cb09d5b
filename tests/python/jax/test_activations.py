"""Pointwise ops that are written once, in JAX: values, gradients of two orders, jit, what does not fit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import opsmith
import pytest
from conftest import load
from jax.test_util import check_grads


@pytest.fixture(scope="session")
def activations() -> opsmith.Library:
    """The example library."""
    return load("activations")


def numbers(*shape: int, seed: int = 0) -> jax.Array:
    """Some numbers, the same in every run."""
    return jnp.asarray(np.random.default_rng([seed, *shape]).normal(size=shape))


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64])
def test_values(activations: opsmith.Library, dtype: type) -> None:
    x = numbers(9, 31).astype(dtype)
    y = jax.jit(activations.gelu)(x)
    assert y.dtype == x.dtype
    eps = float(jnp.finfo(dtype).eps)
    exact = jax.nn.gelu(x.astype(jnp.float64), approximate=False)
    np.testing.assert_allclose(y.astype(jnp.float64), exact, rtol=4 * eps, atol=4 * eps)


def test_gradients_of_two_orders(activations: opsmith.Library) -> None:
    check_grads(activations.gelu, (numbers(4, 5),), order=2, modes=["rev"])
    check_grads(activations.swiglu, (numbers(5), numbers(3, 5)), order=2, modes=["rev"])
    cell = [numbers(3, 4, seed=seed) for seed in range(4)]
    check_grads(activations.lltm_cell, cell, order=2, modes=["rev"])


def test_broadcasting(activations: opsmith.Library) -> None:
    gate, x = numbers(7, 1), numbers(4, 1, 6)
    np.testing.assert_allclose(activations.swiglu(gate, x), jax.nn.silu(gate) * x, rtol=1e-13)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"INVALID_ARGUMENT: .*or one of them be 1"):
        activations.swiglu(numbers(2), numbers(3))
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"INVALID_ARGUMENT: .*must be one of"):
        activations.gelu(jnp.arange(3))
