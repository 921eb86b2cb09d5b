"""Gradients that users register for ops which declare none, in graphs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import opsmith
import pytest
import registered
from opsmith import Graph, Library

Given = list[Any]
X = np.array([1.0, 2.0, 3.0])


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What a test registers is gone after it."""
    with registered.forgotten():
        yield


@pytest.fixture
def testops() -> Library:
    """One op for each feature."""
    return opsmith.load(Path(os.environ["OPSMITH_LIB_DIR"]) / "libopsmith_testops.so")


def values(outputs: Any) -> Any:
    """What a graph computes with no feeds."""
    return opsmith.Session(outputs[0].graph).run(outputs)


def test_two_orders_through_a_chain(graph: Graph, testops: Library) -> None:
    x = graph.constant(X)
    # Made before the gradient is registered.
    y = testops.squares(opsmith.ops.sin(testops.squares(x)))
    with pytest.raises(opsmith.UnimplementedError, match="Squares: no gradient is declared"):
        opsmith.gradients(y, x)
    opsmith.register_gradient(testops.squares)(registered.of_squares)
    (first,) = opsmith.gradients(y, x)
    (second,) = opsmith.gradients(first, x)
    inner = X**2
    expected = 2 * X * np.sin(2 * inner)
    np.testing.assert_allclose(values([first])[0], expected)
    np.testing.assert_allclose(values([second])[0], 2 * np.sin(2 * inner) + 8 * inner * np.cos(2 * inner))


def test_a_gradient_is_placed_where_its_op_is(graph: Graph, testops: Library) -> None:
    opsmith.register_gradient(testops.squares)(registered.of_squares)
    x = graph.constant(X)
    with graph.device("cuda:3"):
        y = testops.squares(x)
    (gradient,) = opsmith.gradients(y.sum(), x)
    assert gradient is not None and gradient.device == "cuda:3"


def test_an_optimiser(graph: Graph, testops: Library) -> None:
    opsmith.register_gradient(testops.squares)(registered.of_squares)
    w = graph.variable(X)
    step = opsmith.optimizers.GradientDescent(0.25).minimize(testops.squares(w).sum())
    session = opsmith.Session(graph)
    session.run(graph.initializer())
    session.run(step)
    np.testing.assert_allclose(session.run(w), X / 2)


def test_a_composition_of_standard_operators(graph: Graph, testops: Library) -> None:
    opsmith.register_gradient(testops.lambda_)(registered.of_zero_out(opsmith.ops, graph.constant))
    x = graph.constant(np.array([[1.0, 2.0], [3.0, 4.0]], np.float32))
    (found,) = opsmith.gradients(testops.lambda_(x, 2), x)
    (default,) = opsmith.gradients(testops.lambda_(x), x)
    np.testing.assert_array_equal(values([found])[0], [[0.0, 0.0], [1.0, 0.0]])
    np.testing.assert_array_equal(values([default])[0], [[0.0, 1.0], [0.0, 0.0]])


def test_lists(graph: Graph, testops: Library) -> None:
    @opsmith.register_gradient(testops.pass_all)
    def gradient(inputs: Given, outputs: Given, attributes: dict[str, Any], grads: Given) -> Given:
        assert grads[0][1] is None and grads[1] is None and len(inputs[0]) == 3
        return [[grads[0][0], None, grads[0][2]]]

    x, whole = graph.constant(np.ones(2, np.float32)), graph.constant(np.array([1]))
    ys, _ = testops.pass_all([x, whole, x])
    (found,) = opsmith.gradients(ys[0], x)
    np.testing.assert_array_equal(values([found])[0], [1.0, 1.0])


@pytest.mark.parametrize("is_there", [True, False])
def test_an_optional_input(graph: Graph, testops: Library, is_there: bool) -> None:
    @opsmith.register_gradient(testops.add_optional)
    def gradient(inputs: Given, outputs: Given, attributes: dict[str, Any], grads: Given) -> Given:
        assert (inputs[1] is not None) == is_there
        return [grads[0], grads[0] if is_there else None]

    x, bias = graph.constant(X), graph.constant(X)
    found = opsmith.gradients(testops.add_optional(x, *([bias] if is_there else [])), [x, bias])
    assert found[0] is not None and (found[1] is not None) == is_there


@pytest.mark.parametrize("case", sorted(set(registered.MISFITS) - {"no tensor"}))
def test_a_result_that_does_not_fit(graph: Graph, testops: Library, case: str) -> None:
    make, message = registered.MISFITS[case]
    opsmith.register_gradient(testops.pairwise)(registered.misfit(make))
    x, y = (graph.constant(np.ones((rows, 4), np.float32)) for rows in (3, 5))
    with pytest.raises(opsmith.InvalidArgumentError, match=message):
        opsmith.gradients(testops.pairwise(x, y), [x, y])


def test_an_exception_is_passed_on(graph: Graph, testops: Library) -> None:
    @opsmith.register_gradient(testops.squares)
    def gradient(inputs: Given, outputs: Given, attributes: dict[str, Any], grads: Given) -> Given:
        raise ZeroDivisionError("mine")

    x = graph.constant(X)
    with pytest.raises(ZeroDivisionError, match="mine"):
        opsmith.gradients(testops.squares(x), x)
