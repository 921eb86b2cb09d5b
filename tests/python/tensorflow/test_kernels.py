"""The operators of `examples/kernels` against TensorFlow: values, gradients, and gradients of these."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import kernel_formulas
import numpy as np
import opsmith
import pytest
import tensorflow as tf
from conftest import load

TENSORFLOW = SimpleNamespace(
    exp=tf.exp,
    log=tf.math.log,
    sqrt=tf.sqrt,
    sum=tf.reduce_sum,
    amax=tf.reduce_max,
    amin=tf.reduce_min,
    sort=tf.sort,
    numbers=tf.convert_to_tensor,
    plain=lambda x: x.numpy(),
)
FORMULAS = kernel_formulas.formulas(TENSORFLOW)


@pytest.fixture(scope="module")
def kernels() -> opsmith.Library:
    """The example library."""
    return load("kernels")


def orders(value: Callable[..., Any], inputs: list[Any]) -> list[Any]:
    """The values, the gradients of a weighted sum, and those of the sum of their squares."""
    with tf.GradientTape() as outer:
        outer.watch(inputs)
        with tf.GradientTape() as inner:
            inner.watch(inputs)
            z = value(*inputs)
            weights = tf.reshape(tf.sin(1.0 + tf.range(tf.size(z, tf.int64), dtype=tf.float64)), tf.shape(z))
            weighted = tf.reduce_sum(z * weights)
        first = inner.gradient(weighted, inputs)
        squares = tf.add_n([tf.reduce_sum(g * g) for g in first])
    return [z, *first, *outer.gradient(squares, inputs)]


@pytest.mark.parametrize("op", FORMULAS)
def test_of_two_orders(kernels: opsmith.Library, op: str) -> None:
    formula = FORMULAS[op]
    inputs = [tf.constant(array) for array in formula.numbers(7)]
    others = [tf.constant(array) for array in formula.others]
    function = getattr(kernels, op)
    actual = orders(lambda *x: function(*x, *others, **formula.attrs), inputs)
    for own, expected in zip(actual, orders(formula.value, inputs), strict=True):
        np.testing.assert_allclose(own, tf.convert_to_tensor(expected), rtol=1e-9, atol=1e-9)
