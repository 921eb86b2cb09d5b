"""An op of a library as ONNX knows it: its arguments, its dtypes, and its schema for ONNX's own tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, TypeProto, defs, helper, numpy_helper

from opsmith._definition import Arg, Loaded, Op
from opsmith.onnx._attributes import DTYPES, EXACT, kind

_Schema = defs.OpSchema
_Option = _Schema.FormalParameterOption


def tensor_type(dtype: str) -> str:
    """`tensor(double)`."""
    return f"tensor({TensorProto.DataType.Name(DTYPES[dtype]).lower()})"


_ANY = [tensor_type(dtype) for dtype in DTYPES]


def is_packed(args: Sequence[Arg]) -> bool:
    """Whether the arguments are one list of any dtypes in ONNX, where only the last may be a list."""
    return any(arg.is_list for arg in args[:-1])


def counts(op: Op) -> list[str]:
    """The attributes that count the tensors of lists, which a node need not say where only one is open."""
    names = (arg.number_attr for arg in (*op.inputs, *op.outputs) if arg.number_attr is not None)
    return [name for name in dict.fromkeys(names) if op.attr(name).inferred]


def schema(loaded: Loaded, op: Op, outputs: int | None = None) -> _Schema:
    """The op's schema; with a number, that of a node with so many output tensors, each by itself."""
    types = _Types(op)
    inputs = types.parameters(op.inputs, "inputs")
    made = types.parameters(op.outputs, "outputs")
    if outputs is not None and any(arg.is_list for arg in op.outputs):
        made = [_Schema.FormalParameter(f"output_{i}", types.any(f"output_{i}")) for i in range(outputs)]
    attributes = [
        _Schema.Attribute(
            attr.name,
            _Schema.AttrType(kind(attr)),
            attr.doc,
            required=not attr.has_default and attr.type != "float",
        )
        for attr in op.call_attrs
    ]
    attributes += [
        _Schema.Attribute(
            attr.name + EXACT, _Schema.AttrType.TENSOR, "The same with 64 bits.", required=False
        )
        for attr in op.call_attrs
        if attr.type == "float"
    ]
    attributes += [
        _Schema.Attribute(name, _Schema.AttrType.INT, op.attr(name).doc, required=False)
        for name in counts(op)
    ]
    whole = _Schema(
        op.name,
        loaded.definition.name,
        1,
        op.doc,
        inputs=inputs,
        outputs=made,
        type_constraints=types.constraints(),
        attributes=attributes,
    )
    return whole.set_type_and_shape_inference_function(
        _inference(op, partial(loaded.native.infer_shapes, op.index))
    )


class _Types:
    """The dtypes of an op's arguments, by names: of its attributes, or made for what has none."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self.known: dict[str, list[str]] = {}

    def any(self, name: str) -> str:
        """A type of its own for an argument."""
        self.known[f"{name}_type"] = _ANY
        return f"{name}_type"

    def of(self, arg: Arg) -> str:
        if arg.dtype is not None:
            return tensor_type(arg.dtype)
        if arg.type_attr is None:
            return self.any(arg.name)
        attr = self.op.attr(arg.type_attr)
        allowed = DTYPES if attr.allowed is None else [name for name in attr.allowed if name in DTYPES]
        self.known[attr.name] = [tensor_type(dtype) for dtype in allowed]
        return attr.name

    def parameters(self, args: Sequence[Arg], whole: str) -> list[Any]:
        """The formal parameters."""
        if is_packed(args):
            return [self._parameter(whole, self.any(whole), "", _Option.Variadic, False)]
        return [
            self._parameter(arg.name, self.of(arg), arg.doc, _option(arg), arg.type_list_attr is None)
            for arg in args
        ]

    @staticmethod
    def _parameter(name: str, kind: str, doc: str, option: Any, same: bool) -> Any:
        return _Schema.FormalParameter(
            name,
            kind,
            doc,
            param_option=option,
            is_homogeneous=same,
            min_arity=0 if option != _Option.Single else 1,
        )

    def constraints(self) -> list[tuple[str, list[str], str]]:
        return [(name, types, "") for name, types in self.known.items()]


def _option(arg: Arg) -> Any:
    if arg.is_list:
        return _Option.Variadic
    return _Option.Optional if arg.optional or arg.saved else _Option.Single


def groups(op: Op, tensors: Sequence[Any], given: Callable[[str], int | None]) -> list[list[Any]]:
    """The tensors of each input. `given` has the value of an attribute that counts them, if the node has it.

    Raises ValueError where they do not add up.
    """
    sizes = [given(arg.number_attr) if arg.number_attr else None if arg.is_list else 1 for arg in op.inputs]
    open_ones = {
        arg.number_attr or arg.type_list_attr for arg, n in zip(op.inputs, sizes, strict=True) if n is None
    }
    rest, times = len(tensors) - sum(n or 0 for n in sizes), sizes.count(None)
    if len(open_ones) > 1 or (times and rest % times):
        raise ValueError("the numbers of tensors of the lists do not follow")
    parts, at = [], 0
    for size in sizes:
        end = at + (rest // times if size is None else size)
        parts.append(list(tensors[at:end]))
        at = end
    return parts


def _inference(op: Op, infer_shapes: Callable[[str], str]) -> Callable[[Any], None]:
    """What infers the dtypes and shapes of a node's outputs for ONNX's own tools."""

    def infer(context: Any) -> None:
        def given(name: str) -> Any:
            value = context.get_attribute(name)
            return None if value is None else helper.get_attribute_value(value)

        types = [
            context.get_input_type(i) if context.has_input(i) else None
            for i in range(context.get_num_inputs())
        ]
        present = [kind for at, kind in enumerate(types) if context.has_input(at)]
        if not all(_is_known(kind) for kind in present):
            # An op in front has no schema, or a dtype is none of ours: nothing follows.
            return
        parts = groups(op, types, lambda name: given(name))
        request = {
            "inputs": [_each(_dims, arg, part) for arg, part in zip(op.inputs, parts, strict=True)],
            "dtypes": [_each(_dtype, arg, part) for arg, part in zip(op.inputs, parts, strict=True)],
            "attrs": _values(op, given),
        }
        answer = json.loads(infer_shapes(json.dumps(request)))
        dtypes, shapes = (chain.from_iterable(answer[key]) for key in ("dtypes", "outputs"))
        flat = zip(dtypes, shapes, strict=True)
        for index, (dtype, shape) in enumerate(flat):
            if index < context.get_num_outputs() and dtype in DTYPES:
                context.set_output_type(index, helper.make_tensor_type_proto(DTYPES[dtype], _sizes(shape)))

    return infer


def _is_known(kind: TypeProto | None) -> bool:
    return kind is not None and kind.tensor_type.elem_type in DTYPES.values()


def _each(read: Callable[[TypeProto], Any], arg: Arg, part: list[TypeProto | None]) -> list[Any] | None:
    absent = not arg.is_list and (not part or part[0] is None)
    return None if absent else [read(each) for each in part if each is not None]


def _dtype(each: TypeProto) -> str:
    return next(name for name, code in DTYPES.items() if code == each.tensor_type.elem_type)


def _dims(each: TypeProto) -> list[Any] | None:
    if not each.tensor_type.HasField("shape"):
        return None
    return [
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
        for dim in each.tensor_type.shape.dim
    ]


def _sizes(shape: list[Any] | None) -> list[int | str | None] | None:
    """Dims as ONNX has them: what is computed from names is not known there."""
    return None if shape is None else [dim if isinstance(dim, int | str) else None for dim in shape]


def _values(op: Op, given: Callable[[str], Any]) -> dict[str, Any]:
    """A node's attributes as a request for shapes has them."""
    values: dict[str, Any] = {}
    for attr in op.attrs:
        value = given(attr.name)
        exact = given(attr.name + EXACT) if attr.type == "float" and value is None else None
        if exact is not None:
            values[attr.name] = numpy_helper.to_array(exact).tolist()
        elif isinstance(value, onnx.TensorProto) and attr.is_list:
            values[attr.name] = _plain(attr.type, numpy_helper.to_array(value).tolist())
        elif value is not None and not isinstance(value, onnx.TensorProto):
            values[attr.name] = _plain(attr.type, value)
    return values


def _plain(kind: str, value: Any) -> Any:
    if isinstance(value, list | tuple) and kind != "shape":
        return [_plain(kind, each) for each in value]
    if isinstance(value, bytes):
        return value.decode()
    if kind == "bool":
        return bool(value)
    if kind == "float":
        # The shortest decimal that 32 bits stand for, as libraries read it; JSON has no infinities.
        return float(str(np.float32(value))) if np.isfinite(value) else str(value)
    return [None if dim == -1 else dim for dim in value] if kind == "shape" else value
