"""Values as text in the language in which definitions write defaults: `'text'`, `{ dim { size: -1 } }`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

_FIELDS = {
    "float16": "half_val",
    "bfloat16": "half_val",
    "float32": "float_val",
    "float64": "double_val",
    "complex64": "scomplex_val",
    "complex128": "dcomplex_val",
    "int64": "int64_val",
    "bool": "bool_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
}
"""Where a tensor has its elements; those of all other dtypes are in `int_val`."""

_READ_AS = {"float16": "uint16", "bfloat16": "uint16", "complex64": "float32", "complex128": "float64"}
"""The dtypes whose elements are written as the bits or the parts that they are made of."""


def quoted(text: str) -> str:
    """A `string`."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + "".join(c if c.isprintable() else _octal(c) for c in escaped) + "'"


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode())


def shape(dims: Sequence[int | None] | None) -> str:
    """A `shape`: its dims, `None` or -1 for one that is not known, or `None` for an unknown rank."""
    if dims is None:
        return "{ unknown_rank: true }"
    sizes = (-1 if dim is None else dim for dim in dims)
    return f"{{ {' '.join(f'dim {{ size: {size} }}' for size in sizes)} }}"


def tensor(dtype: str, dims: Sequence[int], data: bytes) -> str:
    """A `tensor` of a dtype of numbers, from its elements as they lie in memory."""
    values: list[Any] = np.frombuffer(data, _READ_AS.get(dtype, dtype)).tolist()
    return _tensor(dtype, dims, _FIELDS.get(dtype, "int_val"), (str(value).lower() for value in values))


def tensor_of_strings(dims: Sequence[int], texts: Iterable[str]) -> str:
    """A `tensor` of strings."""
    return _tensor("string", dims, "string_val", map(quoted, texts))


def _tensor(dtype: str, dims: Sequence[int], field: str, elements: Iterable[str]) -> str:
    return f"{{ dtype: {dtype} tensor_shape {shape(dims)} {field}: [{', '.join(elements)}] }}"
