"""What is raised inside of an object's own methods and is no answer reaches the caller as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import opsmith
import pytest

ops = opsmith.ops


def having(**methods: Callable[..., Any]) -> Any:
    """An object with these methods."""
    return type("Having", (), methods)()


X = np.ones(3)

# What is called with an object that has the methods, each of which raises.
PLACES: dict[str, tuple[list[str], Callable[[Any], object]]] = {
    "an input's __array__": (["__array__"], lambda value: ops.exp(value)),
    "an input's __array_interface__": (["__array_interface__"], lambda value: ops.exp(value)),
    "an input's __dlpack__": (["__dlpack__"], lambda value: ops.exp(value)),
    "an input's __dlpack_device__": (["__dlpack_device__", "__dlpack__"], lambda value: ops.exp(value)),
    "an input's __repr__": (["__repr__"], lambda value: ops.exp(value)),
    "a float's __float__": (["__float__"], lambda value: ops.elu(X, alpha=value)),
    "an int's __index__": (["__index__"], lambda value: ops.softmax(X, axes=value)),
    "an attribute's __repr__": (["__repr__"], lambda value: ops.softmax(X, axes=value)),
    "a list's __iter__": (["__iter__"], lambda value: ops.sum(X, axes=value)),
    "a list's __getitem__": (["__getitem__", "__len__"], lambda value: ops.sum(X, axes=value)),
    "a dtype's __str__": (["__str__"], lambda value: ops.cast(X, dtype=value)),
}


@pytest.mark.parametrize(
    "raised", [KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, RecursionError]
)
@pytest.mark.parametrize("place", PLACES)
def test_an_exception_that_is_no_answer_is_passed_on(place: str, raised: type[BaseException]) -> None:
    methods, call = PLACES[place]

    def fail(*_: object, **__: object) -> object:
        raise raised

    # NumPy and Python look for some of them as attributes, and call others.
    as_property = place.endswith(("__array_interface__",))
    value = having(**dict.fromkeys(methods, property(fail) if as_property else fail))
    with pytest.raises(raised):
        call(value)


@pytest.mark.parametrize("place", PLACES)
def test_any_other_exception_is_an_invalid_argument(place: str) -> None:
    methods, call = PLACES[place]

    def fail(*_: object, **__: object) -> object:
        raise ZeroDivisionError("not today")

    as_property = place.endswith(("__array_interface__",))
    value = having(**dict.fromkeys(methods, property(fail) if as_property else fail))
    with pytest.raises(opsmith.InvalidArgumentError):
        call(value)
