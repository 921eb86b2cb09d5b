"""The functions that TensorFlow generates for a library's ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf  # type: ignore[import-untyped]

# There is no public way to a registered op, nor to functions for ops that `tf.load_op_library` has not seen.
from tensorflow.core.framework import op_def_pb2  # type: ignore[import-untyped]
from tensorflow.python.framework import _pywrap_python_op_gen, op_def_registry  # type: ignore[import-untyped]

from opsmith._definition import Definition, Loaded

Found = tuple[Any, Callable[..., Any]]
"""An op's `OpDef`, and its function."""


def wrappers(loaded: Loaded) -> dict[str, Found]:
    """For each op that TensorFlow has, by its CamelCase name, its `OpDef` and a function that calls it.

    The functions are those of `tf.load_op_library`; where somebody else has opened the file before, so that
    there are none, they are generated in the same way.
    """
    definition = loaded.definition
    op_defs = {
        op.name: op_def
        for op in definition.ops
        if (op_def := op_def_registry.get(qualified_name(definition, op.name))) is not None
    }
    functions = _by_name(vars(tf.load_op_library(loaded.native.path)))
    missing = [op_def for op_def in op_defs.values() if _key(op_def.name) not in functions]
    if missing:
        source = _pywrap_python_op_gen.GetPythonWrappers(op_def_pb2.OpList(op=missing).SerializeToString())
        names: dict[str, Any] = {"__name__": f"opsmith.tensorflow.{definition.name}"}
        exec(compile(source, f"<opsmith {definition.name}>", "exec"), names)
        functions |= _by_name(names)
    return {name: (op_def, functions[_key(op_def.name)]) for name, op_def in op_defs.items()}


def qualified_name(definition: Definition, op: str) -> str:
    """The op's name in TensorFlow: `Distances>PairwiseManhattanDistance`."""
    words = [word for word in definition.namespace.split("_") if word]
    namespace = "".join(word[0].upper() + word[1:] for word in words)
    return f"{namespace}>{op}" if namespace else op


def _by_name(names: dict[str, Any]) -> dict[str, Callable[..., Any]]:
    # Classes for the same ops are called as these, with capitals.
    return {_key(name): value for name, value in names.items() if callable(value) and name == name.lower()}


def _key(name: str) -> str:
    """What TensorFlow's own change of an op's name into a function's leaves as it is."""
    return name.replace(">", "").replace("_", "").lower()
