"""Compositions of ops in TensorFlow: an LLTM, and zero_out's gradient as its guide shows it."""

from __future__ import annotations

import numpy as np
import opsmith
import pytest
import tensorflow as tf
from conftest import load
from lltm_reference import numbers, sizes


@pytest.fixture(scope="module")
def composed() -> opsmith.Library:
    """The example library."""
    return load("composed")


def test_the_lltm_of_ops_is_the_hand_written_one(composed: opsmith.Library) -> None:
    lltm = load("lltm")
    for shape in sizes():
        inputs = [tf.constant(x) for x in numbers(*shape)]
        found = []
        for op in (composed.lltm_of_ops, lltm.lltm):
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                outputs = op(*inputs)
            found.append([*outputs, *tape.gradient(outputs, inputs)])
        for left, right in zip(*found, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-11, atol=1e-12)


def test_second_gradients(composed: opsmith.Library) -> None:
    lltm = load("lltm")
    inputs = [tf.constant(x) for x in numbers(3, 2, 4)]
    found = []
    for op in (composed.lltm_of_ops, lltm.lltm_cell):
        with tf.GradientTape() as outer:
            outer.watch(inputs)
            with tf.GradientTape() as inner:
                inner.watch(inputs)
                loss = tf.reduce_sum(op(*inputs)[0] ** 2)
            squares = sum(tf.reduce_sum(g**2) for g in inner.gradient(loss, inputs))
        found.append(outer.gradient(squares, inputs))
    for left, right in zip(*found, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-10)


def test_a_gradient_that_is_a_composition(composed: opsmith.Library) -> None:
    x = tf.constant([[5.0, 4, 3], [2, 1, 0]])

    @tf.function
    def gradient(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            z = composed.zero_out(x)
        return tape.gradient(z, x)

    np.testing.assert_array_equal(gradient(x), [[1, 0, 0], [0, 0, 0]])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Slice"):
        composed.zero_out_grad(tf.ones(0), tf.ones(0))
