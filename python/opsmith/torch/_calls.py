"""Calls of ops from the generated wrappers: arguments as Python users give them become what the schema
takes."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from opsmith import _attributes, _dispatch
from opsmith._definition import Arg, Attr, Loaded, Op
from opsmith._errors import InvalidArgumentError, ResourceExhaustedError
from opsmith.torch import _eager
from opsmith.torch._op import TorchOp, Value, device_of


def function(loaded: Loaded, op: TorchOp, gradient: TorchOp | None) -> Callable[..., Value]:
    """A function of the op's inputs and attributes, in the definition's order, that gives all outputs. It
    takes a name as the other frameworks' do, and has no use for it.

    Its source is made for the op: a call costs little more than one through `torch.ops`, or less.
    """
    inputs = [f"x{i}" for i in range(len(op.definition.inputs))]
    attrs = {attr.name: f"a{i}" for i, attr in enumerate(op.definition.call_attrs)}
    positional = [*inputs, *(attrs[attr.name] for attr in op.tensor_attrs)]
    keyword = [f"{name}={attrs[attr.name]}" for name, attr in op.keyword_attrs.items()]
    arguments = ", ".join(positional + keyword)
    names: dict[str, Any] = {
        "overload": op.overload,
        "Tensor": torch.Tensor,
        "PLAIN": _eager.PLAIN,
        "general": partial(_dispatch.call, loaded, op.definition),
        "beside": partial(_beside_tensors, _kinds_of(op.definition)),
        "tensors": partial(tensors, op.definition),
        "compiling": torch.compiler.is_dynamo_compiling,
    }
    lines = [f"def call({', '.join([*inputs, *attrs.values(), 'name=None'])}):"]
    defaults = _default_dtypes(op.definition)
    lines += _conversions(op.definition, names, defaults)
    eager = _eager.names(op, gradient, defaults)
    if eager is not None:
        names |= eager
        plain = [_eager.is_plain(arg, x) for arg, x in zip(op.definition.inputs, inputs, strict=True)]
        lines.append(f"    if {' and '.join(plain)}:")
        lines += textwrap.indent(_eager.source(op, "record" in eager), "    ").splitlines()
    checks = [_is_tensor(arg, x) for arg, x in zip(op.definition.inputs, inputs, strict=True)]
    if checks:
        given = f"({', '.join(attrs.values())},)" if attrs else "None"
        listed = f"({', '.join(inputs)},)"
        lines.append(f"    if not ({' and '.join(checks)}):")
        # The package's dispatch is not for Dynamo to trace.
        lines.append("        if not compiling():")
        lines.append(f"            ready = beside({listed})")
        lines.append(f"            if ready is None: return general({listed}, {given})")
        lines.append(f"            return call(*ready{''.join(f', {a}' for a in attrs.values())})")
        lines.append(f"        {listed} = tensors({listed})")
    lines.append(f"    return overload({arguments})")
    exec(compile("\n".join(lines), f"<opsmith {op.qualified_name}>", "exec"), names)
    call: Callable[..., Value] = names["call"]
    return call


def _default_dtypes(op: Op) -> dict[str, Any]:
    """The defaults of attributes that are dtypes, by their names in generated functions. One that PyTorch
    lacks is `None`: to ask for it is an error."""
    defaults: dict[str, Any] = {}
    for i, attr in enumerate(op.call_attrs):
        if attr.type == "type" and not attr.is_list and attr.has_default:
            name = _eager.default_name(f"a{i}")
            defaults[name] = None
            with suppress(InvalidArgumentError):
                defaults[name] = attribute(op, attr, None)
    return defaults


def _conversions(op: Op, names: dict[str, Any], defaults: dict[str, Any]) -> list[str]:
    """Lines that make the attributes what the schema takes; what they refer to goes into `names`."""
    lines = []
    names |= defaults | {"EMPTY": (), "LISTS": (list, tuple), "are_ints": _are_ints}
    for i, attr in enumerate(op.call_attrs):
        names[f"convert{i}"] = partial(attribute, op, attr)
        conversion = _conversion(attr, f"a{i}", f"convert{i}")
        if defaults.get(default := _eager.default_name(f"a{i}")) is not None:
            conversion = f"a{i} = {default} if a{i} is None else convert{i}(a{i})"
        lines.append(f"    {conversion}")
    return lines


def _is_tensor(arg: Arg, name: str) -> str:
    if arg.is_list:
        return f"type({name}) in LISTS and all(isinstance(x, Tensor) for x in {name})"
    check = f"isinstance({name}, Tensor)"
    return f"({name} is None or {check})" if arg.optional else check


def _conversion(attr: Attr, name: str, convert: str) -> str:
    """A line that makes an attribute what the schema takes, without a call where it is that already."""
    ready = _attributes.EXACT.get(attr.type)
    if not attr.is_list:
        given = "True" if ready is None else f"not ({ready.format(name)})"
        return f"if {given}: {name} = {convert}({name})"
    converted = f"{convert}({name})"
    if attr.type == "int":
        # A copy, for a gradient may look at it later.
        converted = f"[*{name}] if type({name}) in LISTS and are_ints({name}) else {converted}"
    # The default of the wrappers, and the one empty tuple there is.
    given = f"{name} is not EMPTY" if attr.has_default and attr.default == [] else "True"
    return f"if {given}: {name} = {converted}"


def _are_ints(value: Any) -> bool:
    """Whether a list is what the schema takes for integers."""
    # `all` would take twice as long for the few there are.
    for element in value:  # noqa: SIM110
        if type(element) is not int or element.bit_length() >= 64:
            return False
    return True


_CPU = torch.device("cpu")

_RANKS = {bool: 0, int: 1, float: 2}
"""Python's own numbers; each kind holds those before it. As in `_dispatch`, told by the type alone: a call
of a microsecond has no time for names of dtypes."""


class _Kind(NamedTuple):
    """What one input takes."""

    type_attr: str | None
    """The attribute that its dtype is."""
    fixed: torch.dtype | None
    """The dtype that it must have."""
    takes_number: bool
    may_be_absent: bool


def _kinds_of(op: Op) -> list[_Kind] | None:
    """What each input takes; `None` for an op with lists of tensors."""
    if any(arg.is_list for arg in op.inputs):
        return None
    return [
        _Kind(
            arg.type_attr, getattr(torch, arg.dtype, None) if arg.dtype else None, not arg.ref, arg.optional
        )
        for arg in op.inputs
    ]


def _beside_tensors(kinds: Sequence[_Kind] | None, inputs: Sequence[Any]) -> list[Value] | None:
    """What `tensors` makes of plain numbers beside tensors in host memory, sooner; `None` where anything
    else is to be converted, and for numbers that do not fit."""
    if kinds is None:
        return None
    by_attr: dict[str | None, torch.dtype] = {}
    numbers = []
    for at, (kind, value) in enumerate(zip(kinds, inputs, strict=True)):
        if isinstance(value, torch.Tensor):
            if type(value) not in _eager.PLAIN or not value.is_cpu:
                return None
            by_attr.setdefault(kind.type_attr, value.dtype)
        elif type(value) in _RANKS and kind.takes_number:
            numbers.append((at, kind, value))
        elif value is not None or not kind.may_be_absent:
            return None
    if not by_attr or not numbers:
        return None
    ready = list(inputs)
    for at, kind, value in numbers:
        dtype = kind.fixed or (by_attr.get(kind.type_attr) if kind.type_attr else None)
        if dtype is None or _RANKS[type(value)] > _rank_of(dtype):
            return None
        if value < 0 and not dtype.is_signed:
            return None
        try:
            ready[at] = torch.scalar_tensor(value, dtype=dtype, device=_CPU)
        except (RuntimeError, OverflowError):
            return None
    return ready


def _rank_of(dtype: torch.dtype) -> int:
    if dtype.is_floating_point or dtype.is_complex:
        return 2
    return 0 if dtype is torch.bool else 1


def tensors(op: Op, inputs: Sequence[Any]) -> list[Value]:
    """The inputs with arrays, lists and scalars made tensors on the device of those beside them, or in host
    memory where a CUDA kernel reads them there. Arrays have their own dtype, lists and scalars that of what
    is beside them."""
    others = device_of(op, inputs)
    devices = [
        torch.device("cpu") if position in op.host_inputs and others.type == "cuda" else others
        for position in range(len(op.inputs))
    ]
    read = [
        [_of_numpy(op, arg, x, device) if isinstance(x, np.ndarray) else x for x in _elements(arg, value)]
        for arg, value, device in zip(op.inputs, inputs, devices, strict=True)
    ]
    by_attr: dict[str, torch.dtype] = {}
    for arg, values in zip(op.inputs, read, strict=True):
        for value in values:
            if isinstance(value, torch.Tensor) and arg.type_attr is not None:
                by_attr.setdefault(arg.type_attr, value.dtype)

    def convert(arg: Arg, value: Any, device: torch.device) -> torch.Tensor:
        if isinstance(value, torch.Tensor):
            return value
        if value is None:
            raise InvalidArgumentError.of(op.name, arg.name, _dispatch.missing(arg))
        if torch.compiler.is_dynamo_compiling() and type(value) not in _TRACED:
            raise _not_traced(op, arg, value)
        if arg.ref:
            kind = type(value).__name__
            raise _refused(op, arg, f"is changed in place, so it must be a tensor or an array, got {kind}")
        name = arg.dtype or op.dtype_of_empty(arg, value)
        dtype = by_attr.get(arg.type_attr or "") or (getattr(torch, name) if name else None)
        if dtype is not None:
            _dispatch.refuse_loss(op, arg.name, value, str(dtype).removeprefix("torch."))
        try:
            return torch.as_tensor(value, dtype=dtype, device=device)
        except RecursionError:
            # It is a `RuntimeError` too, and says nothing of the value.
            raise
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise _refused(op, arg, f"is not a tensor: {error}") from error

    converted: list[Value] = []
    for arg, value, values, device in zip(op.inputs, inputs, read, devices, strict=True):
        if arg.is_list:
            converted.append([convert(arg, x, device) for x in values])
        else:
            absent = value is None and arg.optional
            converted.append(None if absent else convert(arg, values[0] if values else None, device))
    return converted


def _of_numpy(op: Op, arg: Arg, array: Any, device: torch.device) -> torch.Tensor:
    """An array as a tensor: a copy, for autograd would not notice that the array is changed; the array itself
    where the op changes it."""
    if torch.compiler.is_dynamo_compiling() and type(array) is not np.ndarray:
        raise _not_traced(op, arg, array)
    if arg.ref and not array.flags.writeable:
        raise _refused(op, arg, "is changed in place and the array is read-only; pass a copy")
    if arg.ref and device.type != "cpu":
        raise _refused(op, arg, f"is changed in place, so it must be a tensor on {device}, got an array")
    try:
        if arg.ref:
            return torch.from_numpy(array)
        if torch.compiler.is_dynamo_compiling():
            return torch.as_tensor(array, device=device)
        plain = array.astype(array.dtype.newbyteorder("="), order="C", subok=False)
        return torch.as_tensor(plain, device=device)
    except MemoryError as error:
        raise ResourceExhaustedError.of(
            op.name, arg.name, f"input `{arg.name}`: no memory for a copy: {error}"
        ) from error
    except (TypeError, ValueError, RuntimeError) as error:
        raise _refused(op, arg, f"cannot become a PyTorch tensor: {error}") from error


_TRACED = (list, tuple, bool, int, float, complex)
"""What Dynamo makes tensors of as PyTorch does."""


def _not_traced(op: Op, arg: Arg, value: Any) -> InvalidArgumentError:
    """What breaks the graph: Dynamo calls eagerly what raises, and that call takes or refuses the value.

    Dynamo itself takes arrays of other frameworks, and the values of a masked array without its mask.
    """
    return _refused(op, arg, f"is of {type(value).__name__}, which torch.compile cannot trace")


def _refused(op: Op, arg: Arg, why: str) -> InvalidArgumentError:
    return InvalidArgumentError.of(op.name, arg.name, f"input `{arg.name}` {why}")


def _elements(arg: Arg, value: Any) -> Sequence[Any]:
    if not arg.is_list:
        return [] if value is None else [value]
    return list(value) if isinstance(value, list | tuple | torch.Tensor) else [value]


def attribute(op: Op, attr: Attr, value: Any) -> Value:
    """The value as the schema takes it; `None` asks for the default.

    Raises `InvalidArgumentError` for a value of another type.
    """
    if value is None and attr.has_default:
        if attr.type == "tensor":
            return None
        value = attr.default
    return _attributes.convert(op, attr, value, _CONVERSIONS)


_PYTHON_TYPES = {float: torch.float32, int: torch.int64, bool: torch.bool, complex: torch.complex64}
_SHORT_NAMES = {"float": "float32", "double": "float64", "half": "float16"}


def _dtype(value: Any) -> torch.dtype:
    if isinstance(value, torch.dtype):
        return value
    if isinstance(value, type) and value in _PYTHON_TYPES:
        return _PYTHON_TYPES[value]
    # A name, or anything that has one, as NumPy's dtypes and scalar types do.
    name = value if isinstance(value, str) else getattr(value, "name", None) or value.__name__
    found = getattr(torch, _SHORT_NAMES.get(name, name), None)
    if not isinstance(found, torch.dtype):
        raise TypeError
    return found


def _shape(value: Any) -> list[int] | None:
    found = _attributes.dims(value)
    return None if found is None else [-1 if dim is None else dim for dim in found]


_CONVERSIONS: dict[str, Callable[[Any], Value]] = {
    **_attributes.PLAIN,
    "type": _dtype,
    "shape": _shape,
    "tensor": torch.as_tensor,
}
