"""TensorFlow: a library's ops as TensorFlow's own, with gradients and static shapes from the definition.

This module imports TensorFlow, so nothing may import it before the user has done so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import tensorflow as tf  # type: ignore[import-untyped]

from opsmith._definition import Loaded, Op
from opsmith._docs import docstring
from opsmith._errors import AlreadyExistsError
from opsmith._forks import LOADING
from opsmith._library import wire_waiting
from opsmith.tensorflow import _calls, _gradients, _loading
from opsmith.tensorflow._calls import PLAIN, framework_error
from opsmith.tensorflow._op import TfOp

__all__ = ["PLAIN", "call", "framework_error", "mark", "open_first", "wire"]


@dataclass(frozen=True)
class _Wired:
    loaded: Loaded
    functions: dict[str, Callable[..., Any]]


_wired: dict[str, _Wired] = {}


def open_first(path: str) -> None:
    """Let TensorFlow open the library at `path` before anybody else does, for only then does
    `tf.load_op_library` have functions for its ops. What is wrong with the file is told by who opens it
    next."""
    with contextlib.suppress(tf.errors.OpError):
        tf.load_op_library(path)


def mark(function: Callable[..., Any]) -> None:
    """Tell AutoGraph to leave a generated function as it is, which has no source in a file."""
    function.autograph_info__ = {}  # type: ignore[attr-defined]


def wire(loaded: Loaded) -> dict[str, Callable[..., Any]]:
    """Register the ops of a library with TensorFlow, and what the definition says about them.

    Gives, by the op's CamelCase name, functions that take inputs and attributes in the definition's order
    and a name for the op, and give all outputs. Doing it twice is fine. Raises
    `opsmith.AlreadyExistsError` when another library of this name is there, and
    `opsmith.UnimplementedError` when the library was built without TensorFlow.
    """
    definition = loaded.definition
    with LOADING:
        known = _wired.get(definition.name)
        if known is None:
            known = _wired[definition.name] = _wire(loaded)
        elif known.loaded.definition != definition:
            raise AlreadyExistsError(
                f"library `{definition.name}` is registered with TensorFlow already, and differs"
            )
        return known.functions


def call(
    loaded: Loaded, op: Op, inputs: Sequence[Any], attrs: Sequence[Any] | None, name: str | None = None
) -> Any:
    """Call an op on inputs of which at least one is TensorFlow's; arrays, lists and scalars become tensors
    beside it."""
    return wire(loaded)[op.name](*inputs, *(attrs if attrs is not None else op.default_attrs), name)


def _wire(loaded: Loaded) -> _Wired:
    definition = loaded.definition
    loaded.native.register_framework("tensorflow")
    wrappers = _loading.wrappers(loaded)
    ops = {op.name: TfOp(op, *found) for op in definition.ops if (found := wrappers.get(op.name))}
    functions = {}
    for op in definition.ops:
        tf_op = ops.get(op.name)
        if tf_op is None:
            functions[op.name] = _unavailable(op)
            continue
        tf_op.wrapper.__doc__ = docstring(op)
        gradient = ops.get(op.gradient.op) if op.gradient is not None else None
        _gradients.register(definition.name, tf_op, gradient)
        functions[op.name] = _calls.function(loaded, tf_op)
    return _Wired(loaded, functions)


def _unavailable(op: Op) -> Callable[..., NoReturn]:
    why = op.unsupported.get("tensorflow", "TensorFlow has not registered it")

    def unavailable(*_: object) -> NoReturn:
        raise tf.errors.UnimplementedError(None, None, f"{op.name}: is not available in TensorFlow: {why}")

    return unavailable


wire_waiting(__name__)
