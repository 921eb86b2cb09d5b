"""What a call on lazy arrays needs to know before anything is computed: its inputs as arrays, its attributes
as plain values, and the shapes and dtypes of its outputs."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from opsmith import _attributes, _dispatch
from opsmith._definition import Arg, Attr, Loaded, Op
from opsmith._errors import InvalidArgumentError

Tensor: TypeAlias = Any
"""A NumPy array, or a lazy one with `shape` and `dtype`."""

Groups: TypeAlias = list[list[Tensor] | None]
"""The tensors of each input, `None` for an absent one."""

Dim: TypeAlias = tuple[int, int, int]
"""Which input, which tensor of it, and which dim of that."""

_CACHED = 256

_MOST_VALUES = 1024
"""The largest tensor whose values may decide the shape of an output."""


@dataclass(frozen=True)
class Like:
    """What is known of an output's tensor."""

    shape: tuple[int | None, ...] | None
    """`None` for a dim, or for the rank, that values decide."""
    dtype: np.dtype[Any]


def dtype_name(dtype: Any) -> str:
    """The name that definitions have for a dtype of NumPy's."""
    return "string" if dtype.kind in "USOT" else str(dtype.name)


def _dtype(name: str) -> np.dtype[Any]:
    if name == "string":
        return np.dtype(object)
    if name == "bfloat16":
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return found
    return np.dtype(name)


def groups(op: Op, inputs: Sequence[Any], lazy: type) -> Groups:
    """The inputs with all that is not `lazy` made NumPy's arrays. Their dtypes are those that they have in a
    call on NumPy's arrays.

    Raises `InvalidArgumentError` for what cannot be an array, and names the input.
    """
    values: Groups = []
    for arg, value in zip(op.inputs, inputs, strict=True):
        if value is None and arg.optional:
            values.append(None)
        elif not arg.is_list:
            values.append([value])
        elif isinstance(value, list | tuple):
            values.append(list(value))
        else:
            kind = type(value).__name__
            raise InvalidArgumentError(f"{op.name}: input `{arg.name}` must be a list of tensors, got {kind}")
    dtypes: dict[str, str] = {}
    for arg, group in zip(op.inputs, values, strict=True):
        for value in group or ():
            if arg.type_attr is not None and not _is_literal(value):
                dtypes.setdefault(arg.type_attr, dtype_name(np.dtype(_dtype_of(op, arg, value))))
    for attr in op.attrs:
        if attr.name not in dtypes:
            literals = [
                value
                for arg, group in zip(op.inputs, values, strict=True)
                for value in group or ()
                if arg.type_attr == attr.name
            ]
            chosen = _chosen(op, attr, literals) if literals else None
            if chosen is not None:
                dtypes[attr.name] = chosen

    def converted(arg: Arg, value: Any) -> Tensor:
        if value is None:
            raise InvalidArgumentError(f"{op.name}: {_dispatch.missing(arg)}")
        if isinstance(value, lazy):
            return value
        if not _is_literal(value):
            return _array(op, arg, value)
        return _literal(op, arg, value, arg.dtype or dtypes.get(arg.type_attr or ""))

    both = zip(op.inputs, values, strict=True)
    return [None if group is None else [converted(arg, x) for x in group] for arg, group in both]


_LITERALS = (bool, int, float, complex, str, bytes, list, tuple)


def _is_literal(value: Any) -> bool:
    """Whether it is a number, a text or a list of Python's own, whose dtype others decide."""
    return value is None or (isinstance(value, _LITERALS) and not isinstance(value, np.generic))


def _dtype_of(op: Op, arg: Arg, value: Any) -> Any:
    return value.dtype if hasattr(value, "dtype") else _array(op, arg, value).dtype


def _array(op: Op, arg: Arg, value: Any) -> NDArray[Any]:
    try:
        array = np.asarray(value)
    except Exception as error:
        raise InvalidArgumentError(
            f"{op.name}: input `{arg.name}` cannot be read as an array: {error}"
        ) from error
    if array.dtype.kind == "O" and array.ndim == 0:
        kind = type(value).__name__
        raise InvalidArgumentError(
            f"{op.name}: input `{arg.name}` must be an array, a number or a list, got {kind}"
        )
    return array


def _literal(op: Op, arg: Arg, value: Any, dtype: str | None) -> NDArray[Any]:
    natural = _array(op, arg, value)
    if dtype is None or not natural.size:
        return natural.astype(_dtype(dtype)) if dtype else natural
    wrong = dtype != "string" and natural.dtype.kind in "USO"
    array = natural
    if not wrong:
        _dispatch.refuse_loss(op, arg.name, natural, dtype)
        try:
            array = np.asarray(value, _dtype(dtype))
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidArgumentError(f"{op.name}: input `{arg.name}` cannot be {dtype}: {error}") from error
        wrong = array.dtype.kind in "iu" and not np.array_equal(array, natural)
    if wrong:
        raise InvalidArgumentError(f"{op.name}: input `{arg.name}` must be {dtype}, got {value!r}")
    return array


_USUAL = ("int64", "int32", "float64", "float32", "complex128", "complex64")


def _chosen(op: Op, attr: Attr, literals: Sequence[Any]) -> str | None:
    """The dtype that literals take where no array decides: the default if it holds them, else what NumPy
    makes of them if that is allowed, else a usual one that is."""
    arrays = [np.asarray(value) for value in literals]
    telling = [array for array in arrays if array.size]
    try:
        natural = dtype_name(np.result_type(*(array.dtype for array in telling or arrays)))
    except TypeError as error:
        raise InvalidArgumentError(
            f"{op.name}: the inputs of dtype `{attr.name}` have no common one: {error}"
        ) from error

    def fits(dtype: str) -> bool:
        return not telling or _dispatch.holds(natural, dtype)

    if attr.type != "type" or attr.is_list:
        return None
    if attr.has_default and fits(attr.default):
        return str(attr.default)
    if attr.allowed is None or natural in attr.allowed:
        return natural
    usual = [dtype for dtype in _USUAL if dtype in attr.allowed]
    return next((dtype for dtype in (*usual, *attr.allowed) if fits(dtype)), natural)


def plain_attributes(op: Op, attrs: Sequence[Any]) -> tuple[Any, ...]:
    """The attributes of a call as plain values, which nobody else can change; `None` asks for a default.

    Raises `InvalidArgumentError` for a value of another type.
    """
    return tuple(
        None if value is None and attr.has_default else _attributes.convert(op, attr, value, _PLAIN)
        for attr, value in zip(op.call_attrs, attrs, strict=True)
    )


def _type(value: Any) -> str:
    if isinstance(value, str):
        # As the native part reads it.
        return value
    text = str(value)
    return text.removeprefix("torch.") if text.startswith("torch.") else dtype_name(_as_dtype(value))


def _as_dtype(value: Any) -> Any:
    return value if hasattr(value, "kind") else np.dtype(getattr(value, "as_numpy_dtype", value))


def _tensor(value: Any) -> NDArray[Any]:
    array = np.array(value)
    return array if array.dtype.kind not in "US" else np.array(value, object)


_PLAIN = {**_attributes.PLAIN, "type": _type, "shape": _attributes.dims, "tensor": _tensor}


class Wiring:
    """The functions of libraries' ops that take one kind of arrays."""

    def __init__(self, make: Callable[[Loaded, Op], Callable[..., Any]]) -> None:
        self._make = make
        # By the address of what is kept beside it.
        self._wired: dict[int, tuple[Loaded, dict[str, Callable[..., Any]]]] = {}

    def wire(self, loaded: Loaded) -> Mapping[str, Callable[..., Any]]:
        """By the op's CamelCase name, functions of inputs, attributes and a name, in the definition's order,
        that give all outputs."""
        if id(loaded) not in self._wired:
            functions = {op.name: self._make(loaded, op) for op in loaded.definition.ops}
            self._wired[id(loaded)] = loaded, functions
        return self._wired[id(loaded)][1]

    def call(
        self,
        loaded: Loaded,
        op: Op,
        inputs: Sequence[Any],
        attrs: Sequence[Any] | None,
        name: str | None = None,
    ) -> Any:
        """Call an op on inputs of which at least one is of this kind."""
        return self.wire(loaded)[op.name](*inputs, *(attrs if attrs is not None else op.default_attrs), name)


class Inference:
    """Tells what an op gives, from shapes, dtypes and attributes."""

    def __init__(self, loaded: Loaded, op: Op) -> None:
        self._op = op
        infer_shapes = functools.partial(loaded.native.infer_shapes, op.index)
        self._ask = functools.lru_cache(_CACHED)(lambda request: json.loads(infer_shapes(request)))

    def outputs(self, inputs: Groups, attrs: Mapping[str, Any]) -> list[list[Like]]:
        """The tensors of each output. Raises what the op says of shapes that do not fit."""
        shapes = [group and [list(map(int, x.shape)) for x in group] for group in inputs]
        answer = self._answer(inputs, shapes, attrs)
        return [
            [Like(_known(shape), _dtype(dtype)) for shape, dtype in zip(shapes, dtypes, strict=True)]
            for shapes, dtypes in zip(answer["outputs"], answer["dtypes"], strict=True)
        ]

    def sources(
        self, inputs: Groups, attrs: Mapping[str, Any]
    ) -> tuple[list[list[list[Dim | None] | None]], list[tuple[Dim, Dim]]]:
        """For each output's tensor and each of its dims, the dim of an input whose size it has by the rule of
        the op, whatever that size is; `None` where there is none, and for a rank that is not known. And the
        pairs of dims of inputs that must be of one size."""
        symbols: dict[str, Dim] = {}

        def symbol(dim: Dim, size: int) -> int | str:
            # One of 1 broadcasts.
            if size == 1:
                return size
            name = f"s{len(symbols)}"
            symbols[name] = dim
            return name

        shapes = [
            group
            and [
                [symbol((i, at, dim), int(size)) for dim, size in enumerate(x.shape)]
                for at, x in enumerate(group)
            ]
            for i, group in enumerate(inputs)
        ]
        answer = self._answer(inputs, shapes, attrs)
        sources = [
            [
                shape and [symbols.get(dim) if isinstance(dim, str) else None for dim in shape]
                for shape in shapes
            ]
            for shapes in answer["outputs"]
        ]
        equal = [
            (symbols[rule["left"]], symbols[rule["right"]])
            for rule in answer["constraints"]
            if rule["relation"] == "==" and isinstance(rule["left"], str) and isinstance(rule["right"], str)
        ]
        return sources, equal

    def _answer(self, inputs: Groups, shapes: list[Any], attrs: Mapping[str, Any]) -> Any:
        values = [_values(x) for group in inputs for x in ([None] if group is None else group)]
        request = {
            "inputs": shapes,
            "dtypes": [group and [dtype_name(x.dtype) for x in group] for group in inputs],
            "attrs": {name: _json(value) for name, value in attrs.items() if value is not None},
        }
        if any(value is not None for value in values):
            request["values"] = values
        return self._ask(json.dumps(request))


def _known(shape: list[Any] | None) -> tuple[int | None, ...] | None:
    if shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else None for dim in shape)


def _values(tensor: Tensor) -> dict[str, Any] | None:
    if not isinstance(tensor, np.ndarray) or tensor.size > _MOST_VALUES or tensor.dtype.kind in "USOT":
        return None
    return _json(tensor)  # type: ignore[no-any-return]


def _json(value: Any) -> Any:
    """An attribute as a request has it."""
    if isinstance(value, np.ndarray):
        flat = value.ravel()
        if dtype_name(value.dtype) == "bfloat16":
            flat = flat.astype(np.float32)
        values = [_json(element) for element in flat.tolist()]
        return {"dtype": dtype_name(value.dtype), "shape": list(value.shape), "values": values}
    if isinstance(value, list | tuple):
        return [_json(element) for element in value]
    if isinstance(value, complex):
        return [_json(value.real), _json(value.imag)]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
