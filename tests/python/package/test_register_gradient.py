"""What `opsmith.register_gradient` refuses, with no framework."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import opsmith
import pytest
import registered

LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", Path(__file__).parents[3] / "target" / "release"))


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What a test registers is gone after it."""
    with registered.forgotten():
        yield


@pytest.fixture
def testops() -> opsmith.Library:
    """One op for each feature."""
    return opsmith.load(LIBRARIES / "libopsmith_testops.so")


def test_a_decorator_gives_the_function_back(testops: opsmith.Library) -> None:
    assert opsmith.register_gradient(testops.squares)(registered.of_squares) is registered.of_squares


def test_ops_that_say_what_their_gradient_is() -> None:
    distances = opsmith.load(LIBRARIES / "libdistances.so")
    message = "PairwiseManhattanDistance: declares a gradient, the op PairwiseManhattanDistanceGrad"
    for replace in (False, True):
        with pytest.raises(opsmith.AlreadyExistsError, match=message):
            opsmith.register_gradient(distances.pairwise_manhattan_distance, replace=replace)
    with pytest.raises(opsmith.AlreadyExistsError, match="ArgMax: declares that it is not differentiable"):
        opsmith.register_gradient(opsmith.ops.arg_max)


def test_twice(testops: opsmith.Library) -> None:
    opsmith.register_gradient(testops.squares)(registered.of_squares)
    with pytest.raises(
        opsmith.AlreadyExistsError, match="Squares: already has a registered gradient, `of_squares`"
    ):
        opsmith.register_gradient(testops.squares)(registered.of_squares)
    opsmith.register_gradient(testops.squares, replace=True)(registered.of_squares)


def test_ops_that_can_have_none(testops: opsmith.Library) -> None:
    with pytest.raises(opsmith.InvalidArgumentError, match="Increment: changes `x` in place"):
        opsmith.register_gradient(testops.increment)
    with pytest.raises(opsmith.InvalidArgumentError, match="Make: has no inputs"):
        opsmith.register_gradient(testops.make)


@pytest.mark.parametrize("given", [None, "squares", len, opsmith.load, lambda x: x])
def test_what_is_no_function_of_a_library(given: Any) -> None:
    with pytest.raises(opsmith.InvalidArgumentError, match="takes a function of a library"):
        opsmith.register_gradient(given)


def test_what_is_no_gradient(testops: opsmith.Library) -> None:
    with pytest.raises(opsmith.InvalidArgumentError, match="Squares: its gradient must be a function, got 2"):
        opsmith.register_gradient(testops.squares)(2)  # type: ignore[type-var]
