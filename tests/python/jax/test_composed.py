"""Compositions of ops in JAX: an LLTM against the hand-written one, and a gradient that is a composition."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import opsmith
import pytest
from conftest import load
from jax.test_util import check_grads
from lltm_reference import numbers, sizes, upstream


@pytest.fixture(scope="module")
def composed() -> opsmith.Library:
    """The example library."""
    return load("composed")


def test_the_lltm_of_ops_is_the_hand_written_one(composed: opsmith.Library) -> None:
    lltm = load("lltm")
    for shape in sizes():
        inputs = [jnp.asarray(x) for x in numbers(*shape)]
        incoming = tuple(jnp.asarray(x) for x in upstream(shape[0], shape[2]))
        found = []
        for op in (composed.lltm_of_ops, lltm.lltm):
            outputs, backward = jax.vjp(lambda *x, op=op: tuple(op(*x)), *inputs)
            found.append([*outputs, *backward(incoming)])
        for left, right in zip(*found, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-11, atol=1e-12)


def test_gradients_of_two_orders(composed: opsmith.Library) -> None:
    inputs = [jnp.asarray(x) for x in numbers(3, 2, 4)]
    check_grads(lambda *x: tuple(composed.lltm_of_ops(*x)), inputs, order=2, modes=["rev"])
    check_grads(lambda *x: tuple(composed.lltm_of_ops(*x)), inputs, order=1, modes=["fwd"])


def test_a_gradient_that_is_a_composition(composed: opsmith.Library) -> None:
    x = jnp.array([[5.0, 4, 3], [2, 1, 0]])
    gradient = jax.jit(jax.grad(lambda x: composed.zero_out(x).sum()))(x)
    np.testing.assert_array_equal(gradient, [[1, 0, 0], [0, 0, 0]])
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"to_zero|zeroed_grad"):
        composed.zero_out_grad(jnp.ones(2), jnp.ones(3))
