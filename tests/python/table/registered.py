"""What the tests of registered gradients share: gradients of ops of `opsmith_testops` for any framework."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import opsmith
from opsmith import _registered

Gradient = Callable[[list[Any], list[Any], dict[str, Any], list[Any]], list[Any]]


@contextlib.contextmanager
def forgotten() -> Iterator[None]:
    """What is registered within it is gone after it."""
    before = dict(_registered._registered)
    try:
        yield
    finally:
        _registered._registered.clear()
        _registered._registered.update(before)


def of_squares(
    inputs: list[Any], outputs: list[Any], attributes: dict[str, Any], grads: list[Any]
) -> list[Any]:
    """Of `Squares`: smooth, so that it can be differentiated again."""
    return [inputs[0] * grads[0] * 2.0]


def of_zero_out(ops: opsmith.Library, constant: Callable[[Any], Any]) -> Gradient:
    """Of zero_out, given to `Lambda`: the element at the place `from` gets the gradient that arrives for it,
    all others get zero. A composition of `ops`; `constant` makes an array the caller's."""

    def gradient(
        inputs: list[Any], outputs: list[Any], attributes: dict[str, Any], grads: list[Any]
    ) -> list[Any]:
        place, vector = attributes["from"], constant(np.array([-1]))
        flat = ops.reshape(grads[0], vector)
        value = ops.slice(flat, constant(np.array([place])), constant(np.array([1])))
        size = ops.shape(flat, dtype="int64")
        dense = ops.sparse_to_dense(value, constant(np.array([[place]])), size)
        return [ops.reshape(dense, ops.shape(inputs[0], dtype="int64"))]

    return gradient


def of_pairwise(distances: opsmith.Library) -> Gradient:
    """Of `Pairwise`, by an op of another library, which has a gradient in turn."""

    def gradient(
        inputs: list[Any], outputs: list[Any], attributes: dict[str, Any], grads: list[Any]
    ) -> list[Any]:
        return list(distances.pairwise_manhattan_distance_grad(*inputs, grads[0]))

    return gradient


MISFITS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "no list": (lambda x, y: x, "must return a list of 2 gradients, one for each input, got a"),
    "nothing": (lambda x, y: None, "must return a list of 2 gradients, one for each input, got None"),
    "too few": (lambda x, y: [x], "must return a list of 2 gradients, one for each input, got a list of 1"),
    "another shape": (lambda x, y: [x, x], r"Pairwise: the registered gradient of input `y` must be float32"),
    "no tensor": (
        lambda x, y: [x, 0.5],
        "gradient of input `y` must be a (tensor|JAX array) or None, got float",
    ),
}
"""What a gradient of `Pairwise` makes of float32 inputs of other shapes, and what the error says."""


def misfit(make: Callable[[Any, Any], Any]) -> Gradient:
    """A gradient of `Pairwise` whose result does not fit."""
    return lambda inputs, outputs, attributes, grads: make(*inputs)
