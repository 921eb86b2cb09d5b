"""Types of what generated functions take, for annotations and stubs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

__all__ = ["ArrayLike", "DTypeLike", "ShapeLike", "SupportsArray", "SupportsDLPack"]


@runtime_checkable
class SupportsDLPack(Protocol):
    """An array of NumPy, PyTorch, JAX, TensorFlow or any other library that exchanges arrays by DLPack."""

    def __dlpack__(self, *, stream: Any = None) -> Any:
        """The array as a DLPack capsule."""


@runtime_checkable
class SupportsArray(Protocol):
    """What NumPy can make an array of: arrays of Dask, xarray and pandas, among others."""

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        """The array as NumPy's."""


_Scalar: TypeAlias = bool | int | float | complex | str

ArrayLike: TypeAlias = SupportsDLPack | SupportsArray | _Scalar | Sequence[Any]
"""An array, or what NumPy makes one of: a scalar or nested sequences."""

DTypeLike: TypeAlias = str | type | Any
"""A dtype: its name (`"float32"`), a NumPy or PyTorch dtype, or `float`, `int`, `bool`."""

ShapeLike: TypeAlias = Sequence[int | None] | None
"""A shape: dims with `None` for an unknown one; `None` for an unknown rank."""
