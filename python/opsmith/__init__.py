"""Tensor operators written once in Rust, native in every framework.

`opsmith.load(path)` loads a library of operators. Its functions take NumPy arrays and the tensors of
PyTorch, TensorFlow and JAX, and answer in kind; in the frameworks the ops are native, with gradients,
compilation and export.

    >>> import opsmith
    >>> distances = opsmith.load("libdistances.so")
    >>> distances.pairwise_manhattan_distance([[0.0, 0.0]], [[1.0, 2.0]])
    array([[3.]])

No framework is imported that the user has not imported.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from opsmith._errors import (
    AlreadyExistsError,
    Error,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    ResourceExhaustedError,
    UnimplementedError,
)
from opsmith._explain import Explanation, explain
from opsmith._library import Library, load
from opsmith._stubs import stubs

if TYPE_CHECKING:
    from opsmith import jit as jit
    from opsmith import testing as testing

__all__ = [
    "AlreadyExistsError",
    "Error",
    "Explanation",
    "FailedPreconditionError",
    "InternalError",
    "InvalidArgumentError",
    "Library",
    "NotFoundError",
    "OutOfRangeError",
    "ResourceExhaustedError",
    "UnimplementedError",
    "explain",
    "load",
    "stubs",
]


def __getattr__(name: str) -> Any:
    # Only those who build just in time, or check ops, need what that needs.
    if name in ("jit", "testing"):
        return import_module(f"opsmith.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
