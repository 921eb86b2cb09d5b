"""Random bodies over named axes against TensorFlow: values, and gradients."""

from __future__ import annotations

from typing import Any

import axes_bodies
import numpy as np
import opsmith
import pytest
import tensorflow as tf

BODIES = axes_bodies.bodies()


@pytest.fixture(scope="module")
def library() -> opsmith.Library:
    """All random bodies."""
    return axes_bodies.build()


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.name)
def test_a_body_is_tensorflows(body: axes_bodies.Body, library: opsmith.Library) -> None:
    """With the gradient of all inputs."""
    op, arrays = getattr(library, body.name), axes_bodies.TensorFlow(axes_bodies.SIZES, tf)
    inputs = [tf.constant(array) for array in body.numbers(axes_bodies.SIZES, 0)]
    found = []
    for function in (lambda: op(*inputs), lambda: body.expected(arrays, inputs)):
        with tf.GradientTape() as tape:
            for array in inputs:
                tape.watch(array)
            result: Any = function()
            outputs = list(result) if isinstance(result, (tuple, list)) else [result]
        weights = [tf.cast(tf.reshape(tf.range(tf.size(z)), tf.shape(z)), tf.float64) - 1.5 for z in outputs]
        gradients = tape.gradient(
            outputs, inputs, output_gradients=weights, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        found.append([*outputs, *gradients])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
