"""Calls of ops on outputs of a graph: each adds a node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from opsmith import _dispatch
from opsmith._definition import Loaded, Op
from opsmith.graph._graph import Graph, graph_of
from opsmith.graph._output import Operation, Output, Variable, place

PLAIN = frozenset({Output, Variable})


def wire(loaded: Loaded) -> dict[str, Callable[..., Any]]:
    """By the op's CamelCase name, functions of inputs, attributes and a name, in the definition's
    order, that give all outputs."""
    return {op.name: partial(_call, loaded, op) for op in loaded.definition.ops}


def call(
    loaded: Loaded, op: Op, inputs: Sequence[Any], attrs: Sequence[Any] | None, name: str | None = None
) -> Any:
    """Call an op on inputs of which at least one is an output of a graph; the others become constants."""
    return _call(loaded, op, *inputs, *(attrs if attrs is not None else op.default_attrs), name)


def _call(loaded: Loaded, op: Op, *arguments: Any) -> Any:
    given, attrs, name = arguments[: len(op.inputs)], arguments[len(op.inputs) : -1], arguments[-1]
    # Tensors of frameworks are refused; whatever else is no output becomes a constant.
    _dispatch.adapter_for(op, given)
    graph = graph_of(list(_outputs(given)))
    dtypes = _dtypes(op, given)
    inputs = []
    for arg, value in zip(op.inputs, given, strict=True):
        dtype = arg.dtype or dtypes.get(arg.type_attr or "") or op.dtype_of_empty(arg, value)
        convert = partial(_native_output, graph, dtype)
        inputs.append(
            None if value is None else [convert(item) for item in value] if arg.is_list else convert(value)
        )
    named = {attr.name: value for attr, value in zip(op.call_attrs, attrs, strict=False) if value is not None}
    native_op = loaded.native.op(op.index)
    native = graph._native.call(native_op, tuple(inputs), named, name, graph._controls, place())
    graph._called(native_op, native, inputs, named)
    return _result(op, Operation(graph, native))


def _outputs(values: Sequence[Any]) -> list[Output]:
    found = []
    for value in values:
        if isinstance(value, Output):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += [item for item in value if isinstance(item, Output)]
    return found


def _dtypes(op: Op, values: Sequence[Any]) -> dict[str, str]:
    """The dtypes that outputs of the graph give to the type attributes."""
    dtypes: dict[str, str] = {}
    for arg, value in zip(op.inputs, values, strict=True):
        if arg.type_attr is not None:
            for output in _outputs([value]):
                dtypes.setdefault(arg.type_attr, output.dtype)
    return dtypes


def _native_output(graph: Graph, dtype: str | None, value: Any) -> Any:
    # Python's numbers and lists take the dtype of what stands beside them; arrays have their own.
    has_dtype = hasattr(value, "dtype")
    return graph.convert(value, None if has_dtype else dtype)._native


def _result(op: Op, operation: Operation) -> Any:
    outputs = operation.outputs
    if not op.outputs:
        # There is nothing to take: the operation is what can be run.
        return operation
    if len(op.outputs) == 1 and not op.outputs[0].is_list:
        return outputs[0]
    grouped: list[Any] = []
    at = 0
    for arg, count in zip(op.outputs, operation._native.output_counts, strict=True):
        grouped.append(outputs[at : at + count] if arg.is_list else outputs[at])
        at += count
    return grouped[0] if len(grouped) == 1 else tuple(grouped)
