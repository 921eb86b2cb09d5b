"""Masked averages and losses under JAX: values and gradients of dense masks, compiled calls, bad input."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import opsmith
import pytest
from conftest import load
from dense_masks import DELTAS, OPS, Case, Dense, bad_calls, random_cases, tolerance
from jax.test_util import check_grads

CASES = 2


@pytest.fixture(scope="module")
def masks() -> opsmith.Library:
    """The example library."""
    return load("masks")


def both(function: Callable[..., jax.Array], embedding: jax.Array, upstream: np.ndarray) -> tuple[Any, Any]:
    """The value and the gradient of a function of the embedding."""

    @jax.jit
    def compiled(embedding: jax.Array) -> tuple[jax.Array, jax.Array]:
        value, back = jax.vjp(lambda e: function(e), embedding)
        return value, back(upstream.astype(value.dtype))[0]

    return compiled(embedding)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("op", OPS)
def test_values_and_gradients_are_those_of_dense_masks(masks: opsmith.Library, op: str, dtype: Any) -> None:
    seen = 0
    for case in random_cases(CASES, dtype, seed=4):
        wide = Case(case.embedding.astype(float), case.rle_mask)
        dense = partial(getattr(Dense(wide, jnp, jnp.asarray), op), **OPS[op])
        ours = partial(getattr(masks, op), rle_mask=jnp.asarray(case.rle_mask), **OPS[op])
        upstream = np.random.default_rng(seen).standard_normal(jax.eval_shape(dense, wide.embedding).shape)
        got, grad = both(ours, jnp.asarray(case.embedding), upstream)
        expected, expected_grad = both(dense, jnp.asarray(wide.embedding), upstream)
        np.testing.assert_allclose(got, expected, **tolerance(op, dtype))
        assert grad.dtype == dtype
        np.testing.assert_allclose(grad, expected_grad, **tolerance(op, dtype))
        seen += 1
    assert seen == CASES


@pytest.mark.parametrize("op", OPS)
def test_gradients_are_those_of_differences(masks: opsmith.Library, op: str) -> None:
    case = next(random_cases(1, seed=5))
    embedding, rle_mask = jnp.asarray(case.embedding), jnp.asarray(case.rle_mask)

    def function(embedding: Any) -> jax.Array:
        return getattr(masks, op)(jnp.asarray(embedding), rle_mask, **OPS[op])

    # The loss of places is float32, but a square: differences are exact at any distance.
    steps = {"eps": 0.5, "atol": 1e-3, "rtol": 1e-3} if op == "average_embedding_mask" else {}
    check_grads(function, (embedding,), order=1, modes=["rev"], **steps)
    if op != "discriminative_loss":
        value = function(embedding)
        upstream = jnp.asarray(np.random.default_rng(6).standard_normal(value.shape), value.dtype)
        check_grads(
            lambda e, g: jax.vjp(function, e)[1](g)[0], (embedding, upstream), order=1, modes=["rev"], **steps
        )


def test_compiled(masks: opsmith.Library) -> None:
    @jax.jit
    def step(embedding: jax.Array, rle_mask: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.value_and_grad(lambda e: masks.discriminative_loss(e, rle_mask, **DELTAS).sum())(embedding)

    for case in random_cases(3, np.float32, seed=6):
        loss, grad = step(case.embedding, case.rle_mask)
        expected = masks.discriminative_loss(case.embedding, case.rle_mask, **DELTAS).sum()
        np.testing.assert_allclose(loss, expected, rtol=1e-6)
        assert grad.shape == case.embedding.shape


def test_bad_input(masks: opsmith.Library) -> None:
    seen = 0
    for what, embedding, rle_mask, message in bad_calls():
        for op, attrs in OPS.items():
            with pytest.raises(Exception) as caught:
                jax.block_until_ready(
                    getattr(masks, op)(jnp.asarray(embedding), jnp.asarray(rle_mask), **attrs)
                )
            assert message in str(caught.value), what
            seen += 1
    assert seen == 24


def test_no_elements_and_nan(masks: opsmith.Library) -> None:
    rle_mask = jnp.zeros((2, 3, 0, 2), jnp.int64)
    assert masks.masked_averages(jnp.zeros((2, 0, 5, 4)), rle_mask).tolist() == [[[0] * 4] * 3] * 2
    embedding = jnp.asarray([[[[1.0], [3.0], [np.nan]]], [[[1.0], [np.nan], [np.nan]]]])
    mean = masks.masked_averages(embedding, jnp.asarray([[[[0, 2]]], [[[0, 2]]]])).ravel()
    assert mean[0] == 2 and np.isnan(mean[1])
