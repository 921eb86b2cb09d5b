"""Which framework's arrays a call has been given, told by their types with no framework imported."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from opsmith._definition import Loaded, Op
from opsmith._errors import InvalidArgumentError, UnimplementedError

GRAPH = "an Opsmith graph"

ADAPTERS = {
    "torch": "opsmith.torch",
    "TensorFlow": "opsmith.tensorflow",
    "JAX": "opsmith.jax",
    GRAPH: "opsmith.graph._calls",
}
"""The module that serves each framework, our own graphs among them. It has

- `wire(loaded)`, which teaches the framework about a library's ops, may be called again, and gives for each
  op, by its CamelCase name, a function of its inputs, its attributes and a name for the call;
- `PLAIN`, the classes of the framework's own tensors: what these functions take as first input;
- `call(loaded, op, inputs, attrs)`, which wires if need be and converts what is not a tensor;
- where the framework wants to open a library's file before anybody else does, `open_first(path)`;
- where the framework looks into functions, `mark(function)`, which tells it not to.

All give the outputs of the op, saved ones too, of which those at the end may be missing."""

# The types are looked up in the modules that the user has imported: a tensor cannot exist without its module.
_TENSOR_TYPES = {
    "torch": ("torch", ("Tensor",)),
    "TensorFlow": ("tensorflow", ("Tensor", "Variable", "SparseTensor", "RaggedTensor")),
    "JAX": ("jax", ("Array",)),
    GRAPH: ("opsmith.graph", ("Output",)),
    "NumPy": ("numpy", ("ndarray",)),
}

# Keras has variables that are no tensors and become such by these.
_TENSOR_METHODS = {"TensorFlow": "__tf_tensor__", "JAX": "__jax_array__"}


def framework_of(value: object) -> str | None:
    """The framework whose tensor this is; `None` for lists, scalars and anything else."""
    for framework, (module_name, names) in _TENSOR_TYPES.items():
        module = sys.modules.get(module_name)
        if module is None:
            continue
        types = tuple(kind for name in names if isinstance(kind := getattr(module, name, None), type))
        if isinstance(value, types):
            return framework
    for framework, method in _TENSOR_METHODS.items():
        if hasattr(type(value), method):
            return framework
    return None


def module_of(framework: str) -> str:
    """The name of the module with which a framework is imported."""
    return _TENSOR_TYPES[framework][0]


def adapter_for(op: Op, inputs: Sequence[Any]) -> ModuleType:
    """The module that serves the framework of these inputs.

    Raises `InvalidArgumentError` when they are of several frameworks, naming the arguments, or of none.
    """
    found: dict[str, str] = {}
    for argument, value in _tensors(op, inputs):
        framework = framework_of(value)
        if framework is not None:
            found.setdefault(framework, argument)
    if GRAPH in found:
        # Arrays beside outputs of a graph become constants of it.
        found.pop("NumPy", None)
    if len(found) > 1:
        listed = ", ".join(f"`{argument}` is of {framework}" for framework, argument in found.items())
        raise InvalidArgumentError(f"{op.name}: all inputs must be of one framework, but {listed}")
    framework = next(iter(found), None)
    if framework not in ADAPTERS:
        kinds = ", ".join(f"`{name}` is {type(value).__name__}" for name, value in _tensors(op, inputs))
        raise InvalidArgumentError(f"{op.name}: cannot take these inputs as arrays: {kinds}")
    return import_module(ADAPTERS[framework])


def call(loaded: Loaded, op: Op, inputs: Sequence[Any], attrs: Sequence[Any] | None) -> Any:
    """Call `op` on inputs of which at least one belongs to a framework.

    Raises `UnimplementedError` for a framework's tensors and a library that has no file.
    """
    adapter = adapter_for(op, inputs)
    if loaded.embedded and adapter.__name__ != ADAPTERS[GRAPH]:
        raise UnimplementedError(
            f"{op.name}: the standard operators that are part of opsmith serve NumPy and graphs; "
            "for a framework's tensors load libopsmith_ops.so, built of the crate opsmith-ops-library"
        )
    return adapter.call(loaded, op, inputs, attrs)


def _tensors(op: Op, inputs: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Every value that may be a tensor, with what a message calls it."""
    for arg, value in zip(op.inputs, inputs, strict=True):
        if arg.is_list and isinstance(value, list | tuple):
            for position, element in enumerate(value):
                yield f"{arg.name}[{position}]", element
        elif value is not None:
            yield arg.name, value
