"""Gradients of ops that users have registered as functions of tensors, called on outputs of graphs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from opsmith import _attributes, _registered
from opsmith._definition import Arg, Op
from opsmith._library import definition_of, loaded
from opsmith.graph._graph import Graph, _numpy_dtype
from opsmith.graph._output import Operation, Output, call

if TYPE_CHECKING:
    from opsmith import _native


def composing(graph: Graph) -> _native.Compose:
    """What gives the gradients that are registered for ops of this graph."""
    return partial(_compose, graph)


def _compose(
    graph: Graph, native: _native.GraphOperation, grads: Sequence[_native.GraphOutput | None]
) -> list[_native.GraphOutput | None] | None:
    op = _op(native.library, native.kind)
    function = None if op is None else _registered.find(native.library or "", op)
    if op is None or function is None:
        return None
    # A registered gradient is where the op is that it is of.
    with graph.device(native.device):
        return _gradients(graph, native, grads, op, function)


def _gradients(
    graph: Graph,
    native: _native.GraphOperation,
    grads: Sequence[_native.GraphOutput | None],
    op: Op,
    function: Callable[..., Any],
) -> list[_native.GraphOutput | None]:
    operation = Operation(graph, native)
    inputs, outputs = operation.inputs, operation.outputs
    arriving = [
        _arriving(output, None if grad is None else Output(graph, grad))
        for output, grad in zip(outputs, grads, strict=True)
    ]
    found = _registered.evaluate(
        op,
        function,
        _grouped(op.inputs, inputs, native.input_counts),
        list(_grouped(op.outputs, outputs, native.output_counts)),
        _attribute_values(op, json.loads(native.attributes)),
        [
            None if position in op.constants else group
            for position, group in enumerate(_grouped(op.outputs, arriving, native.output_counts))
        ],
        _mismatch,
    )
    return [None if gradient is None else gradient._native for group in found for gradient in group]


def _op(library: str | None, name: str) -> Op | None:
    """The op of this name of a loaded library."""
    for each in loaded():
        definition = definition_of(each)
        if definition.name == library:
            return definition.op(name)
    return None


def _grouped(args: Sequence[Arg], values: Sequence[Any], counts: Sequence[int]) -> list[Any]:
    """The tensors as the function takes them: one by itself, or a list."""
    rest = iter(values)
    groups = [[next(rest) for _ in range(count)] for count in counts]
    return [
        group if arg.is_list else (group[0] if group else None)
        for arg, group in zip(args, groups, strict=True)
    ]


def _arriving(output: Output, grad: Output | None) -> Output | None:
    if not _is_float(output):
        return None
    return call("zeros_like", output) if grad is None else grad


def _is_float(output: Output) -> bool:
    return "float" in output.dtype or "complex" in output.dtype


def _mismatch(tensor: Output, gradient: object) -> str | None:
    """What is wrong with the gradient of an output."""
    if not _is_float(tensor):
        return f"must be None, for the input is {tensor.dtype}"
    if not isinstance(gradient, Output):
        return f"must be an output of the graph or None, got {type(gradient).__name__}"
    if gradient.dtype == tensor.dtype and _may_be(gradient.shape, tensor.shape):
        return None
    return f"must be {_description(tensor)} as the input is, got {_description(gradient)}"


def _may_be(a: tuple[int | None, ...] | None, b: tuple[int | None, ...] | None) -> bool:
    """Whether the shapes, as far as they are known, can be the same."""
    if a is None or b is None:
        return True
    return len(a) == len(b) and all(x is None or y is None or x == y for x, y in zip(a, b, strict=True))


def _description(output: Output) -> str:
    return f"{output.dtype} of shape {'?' if output.shape is None else list(output.shape)}"


def _attribute_values(op: Op, values: dict[str, Any]) -> dict[str, Any]:
    return {
        attr.name: _attributes.convert(op, attr, values[attr.name], _CONVERSIONS) for attr in op.call_attrs
    }


def _tensor(value: dict[str, Any]) -> Any:
    values = _attributes.tensor_values(value)
    return np.array(values, _numpy_dtype(value["dtype"])).reshape(value["shape"])


_CONVERSIONS: Mapping[str, Callable[[Any], Any]] = {
    **_attributes.PLAIN,
    "type": str,
    "shape": _attributes.dims,
    "tensor": _tensor,
}
