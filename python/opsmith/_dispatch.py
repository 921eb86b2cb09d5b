"""Which framework's arrays a call has been given, told by their types with no framework imported."""

from __future__ import annotations

import numbers
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from opsmith._definition import Arg, Loaded, Op
from opsmith._errors import Error, InvalidArgumentError, UnimplementedError

GRAPH = "an Opsmith graph"

ADAPTERS = {
    "torch": "opsmith.torch",
    "TensorFlow": "opsmith.tensorflow",
    "JAX": "opsmith.jax",
    GRAPH: "opsmith.graph._calls",
    "Dask": "opsmith._dask",
    "xarray": "opsmith._xarray",
}
"""The module that serves each framework, our own graphs among them. It has

- `wire(loaded)`, which teaches the framework about a library's ops, may be called again, and gives for each
  op, by its CamelCase name, a function of its inputs, its attributes and a name for the call;
- `PLAIN`, the classes of the framework's own tensors: what these functions take as first input;
- `call(loaded, op, inputs, attrs, name)`, which wires if need be and converts what is not a tensor;
- where the framework wants to open a library's file before anybody else does, `open_first(path)`;
- where more classes of tensors may turn up, `serve_more(serve)`, which calls `serve(classes)` when they do;
- where the framework looks into functions, `mark(function)`, which tells it not to;
- where arguments that do not fit are errors of the framework's own, `framework_error(error)`, which gives
  that.

Arrays of Dask and xarray are made of NumPy's: they need no file of a library.

All give the outputs of the op, saved ones too, of which those at the end may be missing."""

WITHOUT_FILES = (GRAPH, "Dask", "xarray")
"""What is served by libraries that are part of the package, too."""

# The types are looked up in the modules that the user has imported: a tensor cannot exist without its module.
_TENSOR_TYPES = {
    "torch": ("torch", ("Tensor",)),
    "TensorFlow": ("tensorflow", ("Tensor", "Variable", "SparseTensor", "RaggedTensor")),
    "JAX": ("jax", ("Array",)),
    GRAPH: ("opsmith.graph", ("Output",)),
    "Dask": ("dask.array", ("Array",)),
    "xarray": ("xarray", ("DataArray",)),
    "NumPy": ("numpy", ("ndarray",)),
}

# Keras has variables that are no tensors and become such by these.
_TENSOR_METHODS = {"TensorFlow": "__tf_tensor__", "JAX": "__jax_array__"}


_BUILT_IN = frozenset((bool, int, float, complex, str, bytes, list, tuple))
"""Types of which no framework has tensors; to look for each framework takes longer."""


def framework_of(value: object) -> str | None:
    """The framework whose tensor this is; `None` for lists, scalars and anything else."""
    if type(value) in _BUILT_IN:
        return None
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
    """The module that serves the framework of these inputs, beside whose tensors NumPy's arrays may stand.

    Raises `InvalidArgumentError` when they are of several frameworks, naming the arguments, or of none, or
    masked; or what a framework whose tensors are among them has instead.
    """
    found: dict[str, str] = {}
    masked = None
    for argument, value in tensors(op, inputs):
        framework = framework_of(value)
        if framework is not None:
            found.setdefault(framework, argument)
        if framework == "NumPy" and _is_masked(value):
            masked = masked or argument
    # What can stand beside others.
    for framework in ("NumPy", "Dask"):
        if len(found) > 1 and (framework == "NumPy" or "xarray" in found):
            found.pop(framework, None)
    adapters = [import_module(ADAPTERS[framework]) for framework in found if framework in ADAPTERS]
    if len(adapters) == 1 and masked is None:
        return adapters[0]
    if masked is not None:
        lost = "is a masked array, whose mask would be lost; pass `.filled(value)` or `.data`"
        why = f"input `{masked}` {lost}"
    elif adapters:
        why = _several(found)
    else:
        kinds = ", ".join(f"`{name}` is {type(value).__name__}" for name, value in tensors(op, inputs))
        why = f"cannot take these inputs as arrays: {kinds}"
    raise _framework_error(adapters, InvalidArgumentError.of(op.name, None, why))


def _is_masked(array: object) -> bool:
    return any(kind.__name__ == "MaskedArray" for kind in type(array).__mro__)


def _several(found: Mapping[str, str]) -> str:
    """Why arrays of these frameworks, of each of which an argument is given, are refused."""
    listed = ", ".join(f"`{argument}` is of {framework}" for framework, argument in found.items())
    # An output of a graph has no value that others could take.
    kept = GRAPH if GRAPH in found else next(iter(found))
    other = next(argument for framework, argument in found.items() if framework != kept)
    remedy = _CONVERSIONS[kept].format(other)
    return f"all inputs must be of one framework, but {listed}\n  → convert one of them, for example {remedy}"


_CONVERSIONS = {
    "torch": "torch.from_dlpack({})",
    "TensorFlow": "tf.constant(numpy.asarray({}))",
    "JAX": "jax.numpy.from_dlpack({})",
    GRAPH: "numpy.asarray({})",
    "Dask": "dask.array.from_array(numpy.asarray({}))",
    "xarray": "numpy.asarray({})",
}
"""What makes arrays of others a framework's; a graph takes NumPy's."""


def _framework_error(adapters: Sequence[ModuleType], error: Error) -> Exception:
    """The error as the first of these frameworks that has errors of its own raises it."""
    for adapter in adapters:
        if hasattr(adapter, "framework_error"):
            own: Exception = adapter.framework_error(error)
            return own
    return error


def call(
    loaded: Loaded, op: Op, inputs: Sequence[Any], attrs: Sequence[Any] | None, name: str | None = None
) -> Any:
    """Call `op` on inputs of which at least one belongs to a framework.

    Raises `UnimplementedError` for a framework's tensors and a library that has no file.
    """
    adapter = adapter_for(op, inputs)
    if loaded.embedded and adapter.__name__ not in {ADAPTERS[name] for name in WITHOUT_FILES}:
        error = UnimplementedError.of(
            op.name,
            None,
            "the standard operators that are part of opsmith serve NumPy, Dask, xarray "
            "and graphs; for a framework's tensors load libopsmith_ops.so, built of the crate "
            "opsmith-ops-library",
        )
        raise _framework_error([adapter], error)
    return adapter.call(loaded, op, inputs, attrs, name)


def missing(arg: Arg) -> str:
    """What is wrong with `None` for an input that is needed, or in a list of tensors."""
    return f"input `{arg.name}` " + ("holds None, which is no tensor" if arg.is_list else "is missing")


def text(op: Op, name: Any) -> str:
    """The name that a call is given. Raises `InvalidArgumentError` for what is no text."""
    if not isinstance(name, str):
        got = f"{name!r} ({type(name).__name__})"
        raise InvalidArgumentError.of(op.name, "name", f"`name` must be text (str), got {got}")
    return name


def call_named(loaded: Loaded, op: Op, inputs: Sequence[Any], attrs: Sequence[Any], name: str) -> Any:
    """Call `op` on any inputs, with a name for frameworks that have named nodes."""
    text(op, name)
    if any(framework_of(value) not in (None, "NumPy") for _, value in tensors(op, inputs)):
        return call(loaded, op, inputs, attrs, name)
    return loaded.native.op(op.index).call(tuple(inputs), tuple(attrs) or None)


_KINDS = ("bool", "int", "float", "complex")
"""Kinds of numbers, each of which holds what those before it hold."""


def refuse_loss(op: Op, argument: str, value: Any, dtype: str) -> None:
    """Raise `InvalidArgumentError` where a value holds numbers of a kind that the dtype lacks.

    The frameworks' own conversions make 2 of 2.5 without a word.
    """
    held, holds = _kind_in(value), _kind_of(dtype)
    if held > holds >= 0:
        raise InvalidArgumentError.of(
            op.name,
            argument,
            f"input `{argument}` holds {_KINDS[held]} values, but must be {dtype}",
        )
    if type(value) is int and value < 0 and dtype.startswith("uint"):
        raise InvalidArgumentError.of(
            op.name, argument, f"input `{argument}` is {value}, but must be {dtype}, which is not negative"
        )


_NUMBERS = (bool, numbers.Integral, numbers.Real, numbers.Complex)
"""The class of Python's numbers of each kind; each contains the one before it."""


def _kind_in(value: Any) -> int:
    """The widest kind that a value holds; -1 where it holds no numbers."""
    if isinstance(value, list | tuple):
        import numpy as np

        try:
            value = np.asarray(value)
        except Exception:
            # Whoever converts it says what is wrong.
            return -1
        if not value.size:
            return -1
    name = getattr(getattr(value, "dtype", None), "name", None)
    if isinstance(name, str):
        return _kind_of(name)
    return next((kind for kind, numbers_of_it in enumerate(_NUMBERS) if isinstance(value, numbers_of_it)), -1)


def _kind_of(dtype: str) -> int:
    plain = {"bfloat16": "float16"}.get(dtype, dtype).removeprefix("u").rstrip("0123456789")
    return _KINDS.index(plain) if plain in _KINDS else -1


def holds(natural: str, dtype: str) -> bool:
    """Whether numbers of one dtype can become those of another, and no fraction, imaginary part or text is
    lost."""
    narrow, wide = _kind_of(natural), _kind_of(dtype)
    return narrow <= wide if min(narrow, wide) >= 0 else natural == dtype


def tensors(op: Op, inputs: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Every value that may be a tensor, with what a message calls it."""
    for arg, value in zip(op.inputs, inputs, strict=True):
        if arg.is_list and isinstance(value, list | tuple):
            for position, element in enumerate(value):
                yield f"{arg.name}[{position}]", element
        elif value is not None:
            yield arg.name, value
