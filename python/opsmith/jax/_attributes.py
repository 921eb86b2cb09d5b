"""Attributes: Python's values made hashable, and as XLA's handlers take them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from opsmith import _attributes, _language
from opsmith._definition import Attr, Op
from opsmith._errors import InvalidArgumentError


def canonical(op: Op, attr: Attr, value: Any) -> Hashable:
    """The value so that equal ones mean the same; `None` asks for the default.

    Raises `InvalidArgumentError` for a value of another type, and for one that is traced.
    """
    if value is None and attr.has_default:
        return None
    try:
        converted = _attributes.convert(op, attr, value, _CANONICAL)
    except InvalidArgumentError:
        if not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value)):
            raise
        raise InvalidArgumentError.of(
            op.name,
            attr.name,
            f"attribute `{attr.name}` must be {attr.type}, got a value that JAX traces: in `jax.jit` name "
            "its argument in `static_argnames`; what `jax.grad` and `jax.vmap` run over has to be an input "
            "of the op",
        ) from None
    return tuple(converted) if attr.is_list else converted


def _float(value: Any) -> str:
    # As text, for `-0.0 == 0.0` and NaN is not equal to itself.
    return float(_attributes.PLAIN["float"](value)).hex()


_PYTHON_TYPES: dict[object, str] = {float: "float32", int: "int64", bool: "bool", complex: "complex64"}
_SHORT_NAMES = {"float": "float32", "double": "float64", "half": "float16"}


def _dtype(value: Any) -> str:
    if isinstance(value, type) and value in _PYTHON_TYPES:
        return _PYTHON_TYPES[value]
    # A name, or what has one: NumPy's dtypes and scalar types do, and JAX's.
    name = value if isinstance(value, str) else getattr(value, "name", None) or np.dtype(value).name
    name = _SHORT_NAMES.get(name, name)
    return name if name == "string" else np.dtype(getattr(ml_dtypes, name, name)).name


def _shape(value: Any) -> tuple[int, ...] | str:
    dims = _attributes.dims(value)
    return "unknown" if dims is None else tuple(-1 if dim is None else dim for dim in dims)


def _tensor(value: Any) -> tuple[str, tuple[int, ...], bytes]:
    if isinstance(value, dict):
        # As a definition writes a default.
        pairs = value["dtype"].startswith("complex")
        values = [complex(*map(float, pair)) if pairs else pair for pair in value["values"]]
        value = np.array(values, _dtype(value["dtype"])).reshape(value["shape"])
    array = np.asarray(value)
    if array.dtype == np.float64 and not hasattr(value, "dtype"):
        array = array.astype(np.float32)
    if array.dtype.kind not in "biufcV":
        raise TypeError
    return array.dtype.name, array.shape, array.tobytes()


_CANONICAL: dict[str, Callable[[Any], Hashable]] = {
    **_attributes.PLAIN,
    "float": _float,
    "type": _dtype,
    "shape": _shape,
    "tensor": _tensor,
}


def plain(op: Op, attr: Attr, value: Any) -> Any:
    """A canonical value as a person would write it; `None` stands for the default."""
    if value is None:
        value = canonical(op, attr, attr.default)
    if value is None:
        # A shape of unknown rank, by default.
        return None
    read = _READERS.get(attr.type, lambda value: value)
    return [read(element) for element in value] if attr.is_list else read(value)


def _read_dtype(name: str) -> Any:
    return name if name == "string" else np.dtype(getattr(ml_dtypes, name, name))


def _read_shape(shape: tuple[int, ...] | str) -> list[int | None] | None:
    return None if isinstance(shape, str) else [None if dim == -1 else dim for dim in shape]


def _read_tensor(value: tuple[str, tuple[int, ...], bytes]) -> Any:
    name, shape, data = value
    return jnp.asarray(np.frombuffer(data, _read_dtype(name)).reshape(shape))


_READERS: dict[str, Callable[[Any], Any]] = {
    "float": float.fromhex,
    "type": _read_dtype,
    "shape": _read_shape,
    "tensor": _read_tensor,
}


_ODD = {(-0.0).hex(), float("nan").hex()}


def encode(attr: Attr, value: Any) -> Any:
    """A canonical value as a handler takes it: a scalar, a text, an array of numbers, and all else as text
    in the language that definitions write defaults in."""
    match attr.type, attr.is_list:
        case "float", _ if any(text in _ODD for text in (value if attr.is_list else [value])):
            # JAX compares what it caches, and so would take these for others or never find them again.
            texts = [str(float.fromhex(text)) for text in (value if attr.is_list else [value])]
            return f"[{', '.join(texts)}]" if attr.is_list else texts[0]
        case "float", False:
            return float.fromhex(value)
        case (("int" | "bool" | "string" | "type"), False):
            return value
        case "int", True:
            return np.array(value, np.int64)
        case "float", True:
            return np.array([float.fromhex(element) for element in value], np.float64)
    write = _WRITERS[attr.type]
    return f"[{', '.join(map(write, value))}]" if attr.is_list else write(value)


def to_json(value: Any) -> Any:
    """An encoded value as shape inference takes it."""
    if isinstance(value, np.ndarray):
        return [to_json(element) for element in value.tolist()]
    return value if not isinstance(value, float) or np.isfinite(value) else str(value)


def _written_shape(shape: tuple[int, ...] | str) -> str:
    return _language.shape(None if isinstance(shape, str) else shape)


_WRITERS: dict[str, Callable[[Any], str]] = {
    "string": _language.quoted,
    "bool": lambda value: str(value).lower(),
    "type": str,
    "shape": _written_shape,
    "tensor": lambda value: _language.tensor(*value),
}
