"""Random bodies over named axes against JAX: values, and gradients."""

from __future__ import annotations

from typing import Any

import axes_bodies
import jax
import jax.numpy as jnp
import numpy as np
import opsmith
import pytest

BODIES = axes_bodies.bodies()


@pytest.fixture(scope="module")
def library() -> opsmith.Library:
    """All random bodies."""
    return axes_bodies.build()


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.name)
def test_a_body_is_jaxs(body: axes_bodies.Body, library: opsmith.Library) -> None:
    """Under `jit`, with the gradient of all inputs."""
    op, arrays = getattr(library, body.name), axes_bodies.Arrays(axes_bodies.SIZES, jnp)
    inputs = [jnp.asarray(array) for array in body.numbers(axes_bodies.SIZES, 0)]
    weights = np.random.default_rng(1).uniform(-1, 1, 64)

    def weighted(outputs: Any) -> Any:
        outputs = outputs if isinstance(outputs, (tuple, list)) else [outputs]
        return sum((z * weights[: z.size].reshape(z.shape)).sum() for z in outputs)

    def own(*inputs: Any) -> Any:
        return weighted(op(*inputs))

    def expected(*inputs: Any) -> Any:
        return weighted(body.expected(arrays, list(inputs)))

    every = tuple(range(len(inputs)))
    actual = jax.jit(jax.value_and_grad(own, every))(*inputs)
    value = jax.jit(jax.value_and_grad(expected, every))(*inputs)
    np.testing.assert_allclose(actual[0], value[0], 1e-9)
    for one, other in zip(actual[1], value[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
