"""Shapes and dtypes as the library infers them from a whole call: more than TensorFlow itself can, whose
shape functions see no attributes but types."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf  # type: ignore[import-untyped]

from opsmith import _language
from opsmith._definition import Op
from opsmith.tensorflow._op import Value

Infer = Callable[[str], str]
"""What infers shapes: it takes and gives JSON."""


def depend_on_attributes(op: Op) -> bool:
    """Whether TensorFlow's own inference may lack what it needs to tell the shapes of the outputs."""
    counts = {arg.number_attr or arg.type_list_attr for arg in op.inputs if arg.is_list}
    optional = sum(arg.optional for arg in op.inputs)
    return (
        any(attr.type != "type" or attr.is_list for attr in op.call_attrs)
        or any(output.optional for output in op.outputs)
        or len(counts) + optional > 1
    )


def infer(op: Op, infer_shapes: Infer, inputs: Sequence[Value], attrs: dict[str, Value]) -> Any:
    """The shapes of the outputs. Raises `opsmith.Error` for inputs and attributes that do not fit the op."""
    groups = [
        None if value is None else list(value) if arg.is_list else [value]
        for arg, value in zip(op.inputs, inputs, strict=True)
    ]
    request = {
        "inputs": [group and [_dims(x.shape) for x in group] for group in groups],
        "dtypes": [group and [x.dtype.name for x in group] for group in groups],
        "attrs": {name: _json(op.attr(name).type, value) for name, value in attrs.items()},
    }
    return json.loads(infer_shapes(json.dumps(request)))["outputs"]


def narrow(
    op: Op, infer_shapes: Infer, inputs: Sequence[Value], attrs: dict[str, Value], outputs: Sequence[Value]
) -> None:
    """Tell the outputs, which are symbolic, the shapes that follow from the whole call."""
    for value, shapes in zip(outputs, infer(op, infer_shapes, inputs, attrs), strict=True):
        group = value if isinstance(value, list | tuple) else [value]
        for tensor, shape in zip(group, shapes, strict=True):
            if shape is not None:
                tensor.set_shape([dim if isinstance(dim, int) else None for dim in shape])


def _dims(shape: tf.TensorShape) -> list[int | None] | None:
    return None if shape.rank is None else shape.as_list()


def _json(kind: str, value: Value) -> Value:
    """An attribute as the request has it."""
    if kind == "tensor":
        # A text in the language that definitions write defaults in is the only way to give one.
        return f"[{', '.join(map(_text, value))}]" if isinstance(value, list) else _text(value)
    if isinstance(value, list):
        return [_json(kind, element) for element in value]
    match kind:
        case "float":
            return value if math.isfinite(value) else str(value)
        case "type":
            return value.name
        case "shape":
            return _dims(value)
        case _:
            return value


def _text(tensor: Any) -> str:
    """A `TensorProto` as text."""
    array, dtype = tf.make_ndarray(tensor), tf.as_dtype(tensor.dtype)
    if dtype == tf.string:
        return _language.tensor_of_strings(array.shape, (x.decode(errors="replace") for x in array.flat))
    return _language.tensor(dtype.name, array.shape, array.tobytes())
