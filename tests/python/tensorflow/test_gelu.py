"""GELU of both kinds in TensorFlow: against `tf.nn.gelu`, gradients of two orders, graphs."""

from __future__ import annotations

import numpy as np
import opsmith
import pytest
import tensorflow as tf
from conftest import load

KINDS = ["none", "tanh"]


@pytest.fixture(scope="session")
def library() -> opsmith.Library:
    """The example library."""
    return load("gelu")


@pytest.mark.parametrize("approximate", KINDS)
@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
def test_values_and_gradients_are_tensorflows(
    library: opsmith.Library, dtype: tf.DType, approximate: str
) -> None:
    rng = np.random.default_rng(0)
    x, upstream = (tf.cast(rng.normal(size=(40, 50)) * 3, dtype) for _ in range(2))
    wide = tf.cast(x, tf.float64)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([x, wide])
        y = library.gelu(x, approximate=approximate)
        expected = tf.nn.gelu(wide, approximate=approximate == "tanh")
    grad, their_grad = (
        tape.gradient(y, x, upstream),
        tape.gradient(expected, wide, tf.cast(upstream, tf.float64)),
    )
    eps = {tf.float16: 2**-10, tf.bfloat16: 2**-7, tf.float32: 2**-23, tf.float64: 2**-52}[dtype]
    for ours, theirs in ((y, expected), (grad, their_grad)):
        assert ours.dtype == dtype
        np.testing.assert_allclose(tf.cast(ours, tf.float64), theirs, rtol=2 * eps, atol=8e-6)


@pytest.mark.parametrize("approximate", KINDS)
def test_gradients_of_two_orders(library: opsmith.Library, approximate: str) -> None:
    x = tf.constant(np.random.default_rng(1).normal(size=(3, 4)))

    def first(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = library.gelu(x, approximate=approximate)
        return tape.gradient(y, x)

    for function in (lambda x: library.gelu(x, approximate=approximate), first):
        (theoretical,), (numerical,) = tf.test.compute_gradient(function, [x])
        np.testing.assert_allclose(theoretical, numerical, atol=1e-5)


def test_graphs_and_bad_input(library: opsmith.Library) -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32)])
    def twice(x: tf.Tensor) -> tf.Tensor:
        y = library.gelu(library.gelu(x), approximate="tanh")
        assert y.shape.as_list() == [None, 4]
        return y

    x = tf.random.normal([5, 4])
    np.testing.assert_allclose(twice(x), tf.nn.gelu(tf.nn.gelu(x, False), True), rtol=1e-5, atol=1e-6)
    assert twice(tf.zeros([0, 4])).shape == (0, 4)
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=r"'none', 'tanh'|none.*tanh"):
        library.gelu(x, approximate="erf")
