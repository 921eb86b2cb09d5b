"""Gradients that users register for ops which declare none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import opsmith
import pytest
import registered
import tensorflow as tf

Given = list[Any]
X = tf.constant(np.random.default_rng(0).random(4))


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What a test registers is gone after it."""
    with registered.forgotten():
        yield


@pytest.fixture(params=["function", "tf.load_op_library", "tf.function"])
def squares(request: pytest.FixtureRequest, testops: opsmith.Library) -> Callable[..., Any]:
    """An op with a registered gradient, called in each way."""
    opsmith.register_gradient(testops.squares)(registered.of_squares)
    if request.param == "tf.load_op_library":
        return tf.load_op_library(testops.__file__).testops_squares
    # With a size that is not known.
    signature = [tf.TensorSpec([None], tf.float64)]
    return testops.squares if request.param == "function" else tf.function(testops.squares, signature)


def test_two_orders(squares: Callable[..., Any]) -> None:
    def gradient(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = squares(x)
        return tape.gradient(y, x)

    for function in (squares, gradient):
        theoretical, numerical = tf.test.compute_gradient(function, [X])
        np.testing.assert_allclose(theoretical[0], numerical[0], atol=1e-6)
    np.testing.assert_array_equal(gradient(X), 2.0 * X)


def test_graphs(testops: opsmith.Library) -> None:
    opsmith.register_gradient(testops.squares)(registered.of_squares)

    @tf.function
    def both(x: tf.Tensor) -> Any:
        first = tf.gradients(tf.sin(testops.squares(x)), x)[0]
        return first, tf.gradients(first, x)[0]

    first, second = both(X)
    np.testing.assert_allclose(first, tf.cos(X**2) * 2 * X)
    np.testing.assert_allclose(second, 2 * tf.cos(X**2) - 4 * X**2 * tf.sin(X**2))


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function])
def test_a_composition_of_standard_operators(
    testops: opsmith.Library, ops: opsmith.Library, wrap: Callable[..., Any]
) -> None:
    opsmith.register_gradient(testops.lambda_)(registered.of_zero_out(ops, tf.constant))
    x = tf.Variable([[1.0, 2.0], [3.0, 4.0]])

    def gradients() -> Any:
        with tf.GradientTape(persistent=True) as tape:
            y, default = testops.lambda_(x, 2) * x.value(), testops.lambda_(x)
        return tape.gradient(y, x), tape.gradient(default, x)

    found, default = wrap(gradients)()
    np.testing.assert_array_equal(found, [[1.0, 2.0], [6.0, 4.0]])
    np.testing.assert_array_equal(default, [[0.0, 1.0], [0.0, 0.0]])


def test_by_an_op_of_another_library(testops: opsmith.Library, distances: opsmith.Library) -> None:
    opsmith.register_gradient(testops.pairwise)(registered.of_pairwise(distances))
    rng = np.random.default_rng(1)
    x, y = tf.constant(rng.random((3, 4))), tf.constant(rng.random((5, 4)))
    for function in (testops.pairwise, lambda x, y: tf.function(testops.pairwise)(x, y)):
        theoretical, numerical = tf.test.compute_gradient(function, [x, y])
        for got, expected in zip(theoretical, numerical, strict=True):
            np.testing.assert_allclose(got, expected, atol=1e-6)


def test_lists(testops: opsmith.Library) -> None:
    @opsmith.register_gradient(testops.pass_all)
    def gradient(inputs: Given, outputs: Given, attributes: dict[str, Any], grads: Given) -> Given:
        assert [len(group) for group in (inputs[0], outputs[0], grads[0])] == [3, 3, 3] and attributes == {}
        assert grads[0][1] is None and grads[1] is None
        # Of what nobody used, zeros.
        assert grads[0][2].shape == (2,) and not np.any(grads[0][2])
        return [[3.0 * grads[0][0], None, None]]

    x, whole = tf.Variable([1.0, 2.0]), tf.constant([1], tf.int64)
    with tf.GradientTape() as tape:
        ys, _ = testops.pass_all([x, whole, x])
        y = ys[0]
    np.testing.assert_array_equal(tape.gradient(y, x), [3.0, 3.0])


@pytest.mark.parametrize("is_there", [True, False])
def test_an_optional_input(testops: opsmith.Library, is_there: bool) -> None:
    @opsmith.register_gradient(testops.add_optional)
    def gradient(inputs: Given, outputs: Given, attributes: dict[str, Any], grads: Given) -> Given:
        assert (inputs[1] is not None) == is_there
        return [grads[0], grads[0] if is_there else None]

    bias = tf.Variable(X)
    with tf.GradientTape() as tape:
        tape.watch(X)
        y = testops.add_optional(X, *([bias] if is_there else []))
    of_x, of_bias = tape.gradient(y, [X, bias])
    np.testing.assert_array_equal(of_x, tf.ones_like(X))
    assert (of_bias is not None) == is_there


def test_outputs_that_are_not_wanted(testops: opsmith.Library) -> None:
    seen = []

    @opsmith.register_gradient(testops.extremes)
    def gradient(inputs: Given, outputs: Given, attributes: dict[str, Any], grads: Given) -> Given:
        seen.append((outputs, grads))
        return [tf.cast(inputs[0] == outputs[0], tf.float32) * grads[0]]

    x = tf.Variable([3.0, 1.0, 2.0])
    with tf.GradientTape() as tape:
        least = tf.load_op_library(testops.__file__).testops_extremes(x, wanted=5)[0]
    np.testing.assert_array_equal(tape.gradient(least, x), [0.0, 1.0, 0.0])
    outputs, grads = seen[0]
    assert outputs[1] is None and outputs[2].dtype == tf.int64 and grads[1] is None and grads[2] is None


def test_attributes_are_values(testops: opsmith.Library) -> None:
    seen = []

    @opsmith.register_gradient(testops.add_constant)
    def gradient(inputs: Given, outputs: Given, attributes: dict[str, Any], grads: Given) -> Given:
        seen.append(list(attributes))
        return [grads[0] * attributes["value"]]

    x, value = tf.Variable([1.0, 1.0, 1.0]), np.array([1.0, 2.0, 3.0], np.float32)
    with tf.GradientTape() as tape:
        y = testops.add_constant(x, value=value)
    np.testing.assert_array_equal(tape.gradient(y, x), value)
    assert seen[0] == ["value"]


@pytest.mark.parametrize("case", registered.MISFITS)
def test_a_result_that_does_not_fit(testops: opsmith.Library, case: str) -> None:
    make, message = registered.MISFITS[case]
    opsmith.register_gradient(testops.pairwise)(registered.misfit(make))
    x, y = tf.Variable(tf.ones((3, 4))), tf.Variable(tf.ones((5, 4)))

    def backward() -> Any:
        with tf.GradientTape() as tape:
            z = testops.pairwise(x, y)
        return tape.gradient(z, [x, y])

    for function in (backward, tf.function(backward, autograph=False)):
        with pytest.raises(opsmith.InvalidArgumentError, match=message):
            function()


def test_a_gradient_of_an_integer(testops: opsmith.Library) -> None:
    opsmith.register_gradient(testops.pass_all)(lambda inputs, *_: [inputs[0]])
    x = tf.Variable([1.0])
    with tf.GradientTape() as tape:
        ys, _ = testops.pass_all([x, tf.constant([1], tf.int64)])
    with pytest.raises(opsmith.InvalidArgumentError, match=r"`xs\[1\]` must be None, for the input is int64"):
        tape.gradient(ys[0], x)


def test_replaced_and_raising(testops: opsmith.Library) -> None:
    def tripled(inputs: Given, outputs: Given, attributes: dict[str, Any], grads: Given) -> Given:
        return [3.0 * grads[0]]

    def raising(inputs: Given, outputs: Given, attributes: dict[str, Any], grads: Given) -> Given:
        raise ZeroDivisionError("mine")

    def backward() -> Any:
        with tf.GradientTape() as tape:
            tape.watch(X)
            y = testops.squares(X)
        return tape.gradient(y, X)

    with pytest.raises(LookupError, match="Squares: has no gradient"):
        backward()
    opsmith.register_gradient(testops.squares)(registered.of_squares)
    opsmith.register_gradient(testops.squares, replace=True)(tripled)
    np.testing.assert_array_equal(backward(), tf.fill((4,), tf.constant(3.0, tf.float64)))
    opsmith.register_gradient(testops.squares, replace=True)(raising)
    with pytest.raises(ZeroDivisionError, match="mine"):
        backward()
