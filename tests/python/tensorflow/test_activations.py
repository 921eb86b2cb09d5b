"""Pointwise ops that are written once, in TensorFlow: values, gradients, graphs, what does not fit."""

from __future__ import annotations

import numpy as np
import opsmith
import pytest
import tensorflow as tf
from conftest import load
from scipy.special import ndtr


@pytest.fixture(scope="session")
def activations() -> opsmith.Library:
    """The example library."""
    return load("activations")


def numbers(*shape: int, seed: int = 0) -> tf.Tensor:
    """Some numbers, the same in every run."""
    return tf.constant(np.random.default_rng([seed, *shape]).normal(size=shape))


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
def test_values(activations: opsmith.Library, dtype: tf.DType) -> None:
    x = tf.cast(numbers(9, 31), dtype)
    y = activations.gelu(x)
    assert y.dtype == dtype
    eps = {tf.float16: 2**-10, tf.bfloat16: 2**-7, tf.float32: 2**-23, tf.float64: 2**-52}[dtype]
    wide = tf.cast(x, tf.float64).numpy()
    exact = wide * ndtr(wide)
    np.testing.assert_allclose(tf.cast(y, tf.float64).numpy(), exact, rtol=4 * eps, atol=4 * eps)


def test_gradients_of_two_orders(activations: opsmith.Library) -> None:
    for op, inputs in (
        (activations.gelu, [numbers(3, 4)]),
        (activations.swiglu, [numbers(4), numbers(3, 4)]),
        (lambda *x: activations.lltm_cell(*x)[0], [numbers(2, 3, seed=seed) for seed in range(4)]),
    ):
        theoretical, numerical = tf.test.compute_gradient(op, inputs)
        for left, right in zip(theoretical, numerical, strict=True):
            np.testing.assert_allclose(left, right, atol=1e-5)

        def first(*x: tf.Tensor, op: object = op) -> tf.Tensor:
            with tf.GradientTape() as tape:
                tape.watch(x)
                total = tf.reduce_sum(op(*x) ** 2)
            return tape.gradient(total, x)[0]

        theoretical, numerical = tf.test.compute_gradient(first, inputs)
        for left, right in zip(theoretical, numerical, strict=True):
            np.testing.assert_allclose(left, right, atol=1e-4)


def test_shapes_in_graphs(activations: opsmith.Library) -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32), tf.TensorSpec([4], tf.float32)])
    def both(x: tf.Tensor, gate: tf.Tensor) -> tf.Tensor:
        y = activations.swiglu(gate, x)
        assert y.shape.as_list() == [None, 4]
        return y

    x, gate = tf.cast(numbers(3, 4), tf.float32), tf.cast(numbers(4), tf.float32)
    np.testing.assert_allclose(both(x, gate), tf.nn.silu(gate) * x, rtol=1e-5, atol=1e-6)


def test_temporaries_become_outputs(activations: opsmith.Library) -> None:
    """TensorFlow gives the memory of what nobody reads again to an output, also while it broadcasts."""

    @tf.function
    def chain(x: tf.Tensor, gate: tf.Tensor) -> tf.Tensor:
        for _ in range(3):
            x = activations.swiglu(gate * 2, activations.gelu(x + 1))
        return x

    x, gate = numbers(40, 50), numbers(50)
    expected, wide = x.numpy(), gate.numpy() * 2
    for _ in range(3):
        expected = wide / (1 + np.exp(-wide)) * (expected + 1) * ndtr(expected + 1)
    np.testing.assert_allclose(chain(x, gate).numpy(), expected, rtol=1e-12, atol=1e-12)


def test_what_does_not_fit_is_told(activations: opsmith.Library) -> None:
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match="or one of them be 1"):
        activations.swiglu(numbers(2), numbers(3))


def test_outputs_take_the_memory_of_temporaries(activations: opsmith.Library) -> None:
    """What nobody else reads is changed in place: values are those of inputs that are kept."""
    shapes = [((1000,), (1000,)), ((300, 7), (7,)), ((1, 129), (40, 1)), ((), (5, 3))]
    cells = [numbers(40, 33, seed=seed) for seed in range(4)]

    @tf.function
    def fresh(op: object, zero: tf.Tensor, *x: tf.Tensor) -> object:
        return op(*[t + zero for t in x])

    zero = tf.zeros((), tf.float64)

    for gate, x in ((numbers(*a), numbers(*b, seed=1)) for a, b in shapes):
        expected = activations.swiglu(gate, x)
        np.testing.assert_array_equal(fresh(activations.swiglu, zero, gate, x), expected)
        gradients = activations.swiglu_grad(gate, x, expected)
        for ours, theirs in zip(
            fresh(activations.swiglu_grad, zero, gate, x, expected), gradients, strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)
    for ours, theirs in zip(
        fresh(activations.lltm_cell, zero, *cells), activations.lltm_cell(*cells), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
