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
from types import ModuleType
from typing import TYPE_CHECKING, Any

try:
    from opsmith import _native
except ImportError as error:
    raise ImportError(
        f"the compiled part of opsmith cannot be used here: {error}\n"
        "  → it is for CPython 3.10 or newer, on Linux on x86-64 with the GNU C library; there, "
        "`pip install --force-reinstall opsmith` puts it right"
    ) from error
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
from opsmith._forks import LOADING
from opsmith._library import Library, load, standard
from opsmith._registered import register_gradient
from opsmith._stubs import stubs

if TYPE_CHECKING:
    from opsmith import graph as graph
    from opsmith import jit as jit
    from opsmith import libraries as libraries
    from opsmith import onnx as onnx
    from opsmith import optimizers as optimizers
    from opsmith import testing as testing
    from opsmith.graph import Graph as Graph
    from opsmith.graph import InteractiveSession as InteractiveSession
    from opsmith.graph import Session as Session
    from opsmith.graph import SparseTensor as SparseTensor
    from opsmith.graph import grad as grad
    from opsmith.graph import gradients as gradients
    from opsmith.graph import jvp as jvp
    from opsmith.graph import value_and_grad as value_and_grad

    ops: Any
    """The standard operators, as a library: `opsmith.ops.mat_mul`."""

__all__ = [
    "AlreadyExistsError",
    "Error",
    "Explanation",
    "FailedPreconditionError",
    "Graph",
    "InteractiveSession",
    "InternalError",
    "InvalidArgumentError",
    "Library",
    "NotFoundError",
    "OutOfRangeError",
    "ResourceExhaustedError",
    "Session",
    "SparseTensor",
    "UnimplementedError",
    "explain",
    "grad",
    "gradients",
    "graph",
    "jit",
    "jvp",
    "libraries",
    "load",
    "onnx",
    "ops",
    "optimizers",
    "register_gradient",
    "stubs",
    "testing",
    "value_and_grad",
]

__version__: str = _native.VERSION
"""The release of the package."""

# Only those who build just in time, check ops, make graphs or models of ONNX need what that needs.
_MODULES = ("graph", "jit", "libraries", "onnx", "optimizers", "testing")
_OF_GRAPHS = (
    "Graph",
    "InteractiveSession",
    "Session",
    "SparseTensor",
    "grad",
    "gradients",
    "jvp",
    "value_and_grad",
)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return _import(f"opsmith.{name}")
    if name in _OF_GRAPHS:
        return getattr(_import("opsmith.graph"), name)
    if name == "ops":
        return standard()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _import(name: str) -> ModuleType:
    # A child that is forked meanwhile could not import it.
    with LOADING:
        return import_module(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_OF_GRAPHS, "ops"})
