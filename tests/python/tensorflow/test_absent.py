"""Derivatives along one input where partial derivatives along another are infinite or NaN, against those of
TensorFlow."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import opsmith
import pytest
import tensorflow as tf

HARD = [-2.0, -1.0, 0.0, 0.5, 2.0, 3.0]
GRID = np.array(list(itertools.product(HARD, HARD))).T
PLAIN = {"pow": tf.pow, "div": tf.divide, "mul": tf.multiply}
CASES = [("pow", 0), ("div", 0), ("div", 1), ("mul", 0), ("mul", 1)]
"""Along the exponent of a negative base TensorFlow gives 0, where there is no derivative."""
Function = Callable[[Any], Any]


def taped(f: Function) -> Function:
    """The derivative of the sum, by a tape."""

    def derivative(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        return tape.gradient(y, x, unconnected_gradients="zero")

    return derivative


def jacobian(f: Function) -> Function:
    """The derivative of each number by its own, in a batch."""

    def derivative(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        return tf.linalg.diag_part(tape.jacobian(y, x, unconnected_gradients="zero"))

    return derivative


def in_graph(f: Function) -> Function:
    """The second derivative, by `tf.gradients` of its own."""

    @tf.function
    def derivative(x: Any) -> Any:
        (first,) = tf.gradients(f(x), x)
        return tf.gradients(first, x, unconnected_gradients="zero")[0]

    return derivative


MODES: dict[str, Callable[[Function], Function]] = {
    "one tape": taped,
    "two tapes": lambda f: taped(taped(f)),
    "two tapes in a function": lambda f: tf.function(taped(taped(f))),
    "jacobian": lambda f: jacobian(taped(f)),
    "tf.gradients twice": in_graph,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("op", "place"), CASES)
def test_as_tensorflow(ops: opsmith.Library, op: str, place: int, mode: str) -> None:
    x, other = tf.constant(GRID[place]), tf.constant(GRID[1 - place])

    def along(function: Callable[[Any, Any], Any]) -> Function:
        def of(x: Any) -> Any:
            return function(x, other) if place == 0 else function(other, x)

        return of

    found, expected = (MODES[mode](along(f))(x).numpy() for f in (getattr(ops, op), PLAIN[op]))
    finite = np.isfinite(expected)
    assert finite.sum() >= 15
    np.testing.assert_allclose(found[finite], expected[finite], rtol=1e-9, atol=1e-12)
