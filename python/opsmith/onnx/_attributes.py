"""Attributes as nodes of ONNX have them, which is how a library reads them there.

A float has 32 bits in ONNX. One that needs more is a tensor, by its name with `_float64` behind it; a flag is
an int, a dtype its name, a shape ints, -1 for a dim that is not known; texts are a tensor, which releases of
ONNX Runtime before 1.25 can read too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from opsmith import _attributes, _language
from opsmith._definition import Attr, Op
from opsmith._errors import InvalidArgumentError

DTYPES: dict[str, int] = {
    "float32": TensorProto.FLOAT,
    "uint8": TensorProto.UINT8,
    "int8": TensorProto.INT8,
    "uint16": TensorProto.UINT16,
    "int16": TensorProto.INT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "string": TensorProto.STRING,
    "bool": TensorProto.BOOL,
    "float16": TensorProto.FLOAT16,
    "float64": TensorProto.DOUBLE,
    "uint32": TensorProto.UINT32,
    "uint64": TensorProto.UINT64,
    "bfloat16": TensorProto.BFLOAT16,
}
"""ONNX's number of each dtype that Opsmith and ONNX Runtime have."""

EXACT = "_float64"
"""What is behind the name of a float attribute that is a tensor."""

_KINDS = {
    "int": (AttributeProto.INT, AttributeProto.INTS),
    "float": (AttributeProto.FLOAT, AttributeProto.FLOATS),
    "bool": (AttributeProto.INT, AttributeProto.INTS),
    "string": (AttributeProto.STRING, AttributeProto.TENSOR),
    "type": (AttributeProto.STRING, AttributeProto.TENSOR),
    "shape": (AttributeProto.INTS, AttributeProto.STRING),
    "tensor": (AttributeProto.TENSOR, AttributeProto.STRING),
}


def kind(attr: Attr) -> int:
    """The type of ONNX's attribute."""
    return int(_KINDS[attr.type][attr.is_list])


def protos(op: Op, attrs: Mapping[str, Any]) -> Iterator[AttributeProto]:
    """The attributes of a node, from values by the definition's names, as Python users write them; `None` is
    the default."""
    for name, value in attrs.items():
        attr = next((attr for attr in op.attrs if attr.name == name), None)
        if attr is None:
            known = ", ".join(attr.name for attr in op.call_attrs) or "none"
            raise InvalidArgumentError.of(op.name, None, f"has no attribute `{name}`; it has: {known}")
        if value is not None:
            yield _proto(op, attr, value)


def _proto(op: Op, attr: Attr, value: Any) -> AttributeProto:
    given = _attributes.convert(op, attr, value, {**_attributes.PLAIN, **_CONVERSIONS})
    name = attr.name
    match attr.type, attr.is_list:
        case "float", _:
            if not _fits(attr, given):
                return helper.make_attribute(name + EXACT, _tensor(np.array(given, np.float64)))
        case "bool", True:
            given = [int(each) for each in given]
        case "bool", False:
            given = int(given)
        case "string" | "type", True:
            given = _tensor(np.array(given, dtype=object))
        case "shape", False:
            if given is None:
                raise InvalidArgumentError.of(
                    op.name, None, f"attribute `{name}` cannot have an unknown rank in ONNX"
                )
            given = [-1 if dim is None else dim for dim in given]
        case "tensor", False:
            given = _tensor(given)
        case "shape", True:
            given = f"[{', '.join(map(_language.shape, given))}]"
        case "tensor", True:
            given = f"[{', '.join(_language.tensor(x.dtype.name, x.shape, x.tobytes()) for x in given)}]"
    return helper.make_attribute(name, given, attr_type=kind(attr))


def _fits(attr: Attr, value: float | Sequence[float]) -> bool:
    """Whether the shortest decimals that give the floats of 32 bits are the values, and do not stand for the
    default."""
    if isinstance(value, Sequence):
        default = attr.default if attr.has_default and len(attr.default) == len(value) else None
        return all(map(_is_short, value)) and not _stands_for(default, value)
    return _is_short(value) and not _stands_for([attr.default] if attr.has_default else None, [value])


def _is_short(value: float) -> bool:
    with np.errstate(over="ignore"):
        return not np.isfinite(value) or float(str(np.float32(value))) == value


def _stands_for(default: Sequence[Any] | None, values: Sequence[float]) -> bool:
    if default is None:
        return False
    wide = [float(each) for each in default]
    with np.errstate(over="ignore"):
        same = np.array_equal(np.float32(wide), np.float32(list(values)), equal_nan=True)
    return same and wide != list(values)


def _tensor(array: np.ndarray) -> TensorProto:
    return numpy_helper.from_array(array)


def _dtype(value: Any) -> str:
    if isinstance(value, str) and value in DTYPES:
        return value
    # The dtypes of PyTorch say `torch.float32`.
    name = str(value).removeprefix("torch.") if type(value).__module__ == "torch" else np.dtype(value).name
    if name not in DTYPES:
        raise ValueError(name)
    return name


def _array(value: Any) -> np.ndarray:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    return array.astype(object) if array.dtype.kind in "US" else array


_CONVERSIONS = {"type": _dtype, "shape": _attributes.dims, "tensor": _array}
