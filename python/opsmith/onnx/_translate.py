"""What PyTorch's exporter makes of a library's ops: a node each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import onnxscript
import torch
from onnxscript import ir

from opsmith._definition import Loaded, Op
from opsmith._errors import UnimplementedError
from opsmith.onnx import check, flatten
from opsmith.onnx._attributes import protos
from opsmith.onnx._schema import schema
from opsmith.torch._op import TorchOp


def table(loaded: Loaded) -> Iterator[tuple[torch._ops.OpOverload, Callable[..., Any]]]:
    """The overload of each op that PyTorch has, and its translation."""
    namespace = getattr(torch.ops, loaded.definition.name)
    for op in loaded.definition.ops:
        if hasattr(namespace, op.snake_name):
            overload = getattr(namespace, op.snake_name).default
            yield overload, _translation(loaded, op, overload)


def _translation(loaded: Loaded, op: Op, overload: torch._ops.OpOverload) -> Callable[..., Any]:
    bound = TorchOp(op, overload)
    names = [argument.name for argument in overload._schema.arguments]

    def translate(*args: Any, **kwargs: Any) -> Any:
        check(op)
        # The exporter gives positional arguments by position, whatever they are called.
        call = bound.bind(args, {name: value for name, value in kwargs.items() if value is not None})
        lists = [output for output in op.outputs if output.is_list]
        if lists and len(op.outputs) > 1:
            raise UnimplementedError.of(
                op.name,
                None,
                f"PyTorch's exporter cannot take output `{lists[0].name}`, a list beside others",
            )
        count = _length(op, call.inputs, call.attrs) if lists else len(op.outputs)
        inputs, attrs = flatten(op, call.inputs, call.attrs)
        attributes = {each.name: ir.serde.deserialize_attribute(each) for each in protos(op, attrs)}
        outputs = onnxscript.evaluator.default().eval(schema(loaded, op, count), inputs, attributes)
        return [outputs] if lists and count == 1 else outputs

    translate.__name__ = op.snake_name
    translate.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    )
    return translate


def _length(op: Op, inputs: Any, attrs: dict[str, Any]) -> int:
    """How many tensors the list has that is the op's only output."""
    output = op.outputs[0]
    counter = output.number_attr or output.type_list_attr
    for arg, value in zip(op.inputs, inputs, strict=True):
        if counter in (arg.number_attr, arg.type_list_attr) and arg.is_list:
            return len(value)
    value = attrs.get(str(counter), op.attr(str(counter)).default)
    return value if isinstance(value, int) else len(value)
