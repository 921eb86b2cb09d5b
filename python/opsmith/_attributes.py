"""Attributes as Python users give them, checked: what is the same in every framework."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opsmith._definition import Attr, Op
from opsmith._errors import InvalidArgumentError


def convert(op: Op, attr: Attr, value: Any, conversions: Mapping[str, Callable[[Any], Any]]) -> Any:
    """The value as a framework takes it; `conversions` has a function for each type of attribute.

    Raises `InvalidArgumentError` for a value of another type.
    """
    function = conversions[attr.type]
    try:
        if not attr.is_list:
            return function(value)
        return [function(element) for element in _elements(value)]
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        kind = f"list({attr.type})" if attr.is_list else attr.type
        why = ""
        if isinstance(error, TooLarge):
            why = f", which needs more than {error}"
        elif attr.type in ("int", "float", "bool") and not attr.is_list and hasattr(value, "ndim"):
            why = f"; for an array of one number, give `{attr.type}(…)` of it" if value.ndim == 0 else ""
            why += (
                "; an attribute has no gradient: what is learnt, or is an array, has to be an input of the op"
            )
        raise InvalidArgumentError.of(
            op.name,
            attr.name,
            f"attribute `{attr.name}` must be {kind}, got {value!r} ({type(value).__name__}){why}",
        ) from None


def _elements(value: Any) -> Sequence[Any]:
    if type(value) is list or type(value) is tuple:
        return value
    # An array of numbers has its own way to become a list.
    elements = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(elements, Sequence) or isinstance(elements, str | bytes):
        raise TypeError
    return elements


class TooLarge(OverflowError):
    """A number does not fit; says what does not hold it."""


def _int(value: Any) -> int:
    # The look at the type alone spares what an abstract class takes to be asked: half a microsecond.
    if type(value) is not int and (isinstance(value, bool) or not isinstance(value, numbers.Integral)):
        raise TypeError
    if not -(2**63) <= int(value) < 2**63:
        raise TooLarge("64 bits")
    return int(value)


def _float(value: Any) -> float:
    if type(value) is float:
        return value
    # JSON, which defaults come from, has these by name.
    if isinstance(value, bool) or not (isinstance(value, numbers.Real) or value in ("inf", "-inf", "nan")):
        raise TypeError
    return float(value)


def _bool(value: Any) -> bool:
    if not isinstance(value, bool) and type(value).__name__ not in ("bool_", "bool"):
        raise TypeError
    return bool(value)


def _string(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise TypeError
    # Half of a surrogate pair is no text.
    value.encode()
    return value


def dims(value: Any) -> list[int | None] | None:
    """A shape: its dims, `None` for one that is not known, or `None` for an unknown rank."""
    return None if value is None else [None if dim is None or dim == -1 else _int(dim) for dim in value]


def tensor_values(value: Mapping[str, Any]) -> list[Any]:
    """The elements of a tensor that is a default, as the definition's JSON has it: row-major."""
    return [
        complex(*map(float, x)) if isinstance(x, list) else float(x) if isinstance(x, str) else x
        for x in value["values"]
    ]


EXACT: Mapping[str, str] = {
    "int": "type({0}) is int and {0}.bit_length() < 64",
    "float": "type({0}) is float",
    "bool": "type({0}) is bool",
    "string": "type({0}) is str",
}
"""Whether a value needs no conversion, as source: generated functions ask before they call one."""

PLAIN: Mapping[str, Callable[[Any], Any]] = {"string": _string, "int": _int, "float": _float, "bool": _bool}
"""The conversions of what Python has itself."""
