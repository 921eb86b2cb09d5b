"""A reduction that is written once, under TensorFlow: values, and gradients of two orders."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from conftest import load

X = tf.constant(np.random.default_rng(0).random((6, 20)))


def orders(function: object) -> list[tf.Tensor]:
    """Values, the gradient, and the gradient of a function of the gradient."""
    with tf.GradientTape() as outer:
        outer.watch(X)
        with tf.GradientTape() as inner:
            inner.watch(X)
            total = tf.reduce_sum(function(X) ** 2)
        first = inner.gradient(total, X)
        second = tf.reduce_sum(first**3)
    return [function(X), first, outer.gradient(second, X)]


def test_two_orders_are_tensorflows() -> None:
    softmax = load("reductions").softmax
    for function in [softmax, tf.function(softmax)]:
        for ours, theirs in zip(orders(function), orders(tf.nn.softmax), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-13)
