"""A pairwise kernel that is written once, under TensorFlow: values, and gradients of two orders."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from conftest import load

RNG = np.random.default_rng(0)
X, Y = tf.constant(RNG.random((6, 20))), tf.constant(RNG.random((5, 20)))


def reference(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Euclidean distances."""
    return tf.sqrt(tf.reduce_sum((x[:, None] - y[None]) ** 2, -1))


def orders(function: object) -> list[tf.Tensor]:
    """Values, gradients, and gradients of a function of the gradients."""
    with tf.GradientTape() as outer:
        outer.watch([X, Y])
        with tf.GradientTape() as inner:
            inner.watch([X, Y])
            z = function(X, Y)
        first = inner.gradient(z, [X, Y])
        total = tf.reduce_sum(first[0] ** 2) + tf.reduce_sum(first[1] ** 3)
    return [z, *first, *outer.gradient(total, [X, Y])]


def test_two_orders_are_tensorflows() -> None:
    pairwise = load("pairwise")
    for function in [pairwise.euclidean, tf.function(pairwise.euclidean)]:
        for ours, theirs in zip(orders(function), orders(reference), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)
