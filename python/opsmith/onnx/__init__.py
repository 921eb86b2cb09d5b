"""ONNX: nodes of a library's ops in models, their schemas for ONNX's own tools, and their translation when
PyTorch exports a model.

ONNX Runtime itself takes the library's file and needs nothing of this package:

    >>> options = onnxruntime.SessionOptions()
    >>> options.register_custom_ops_library("libdistances.so")
    >>> session = onnxruntime.InferenceSession("model.onnx", options)

An op is in the domain that has the library's name, in version 1, by its CamelCase name. This module imports
`onnx`, which has to be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from onnx import NodeProto, defs, helper

from opsmith._definition import Op
from opsmith._errors import NotFoundError, UnimplementedError
from opsmith._forks import LOADING
from opsmith._library import Library, definition_of, library_of
from opsmith.onnx._attributes import protos
from opsmith.onnx._schema import counts, is_packed, schema

__all__ = ["left_out", "node", "register", "translations"]

_registered: dict[tuple[str, str], str] = {}


def left_out(library: Library | ModuleType) -> dict[str, str]:
    """The ops that ONNX Runtime cannot have, by their CamelCase names, each with the reason."""
    return {
        op.name: why
        for op in definition_of(library_of(library, "left_out")).ops
        if (why := op.unsupported.get("onnx"))
    }


def register(*libraries: Library | ModuleType) -> None:
    """Register the schemas of the libraries' ops with `onnx`.

    `onnx.checker` then checks their nodes, and `onnx.shape_inference` infers their outputs. Registering
    twice is fine.
    """
    for library in libraries:
        loaded = library_of(library, "register")._opsmith_loaded
        name, native = loaded.definition.name, loaded.native
        with LOADING:
            for op in loaded.definition.ops:
                if "onnx" not in op.unsupported and _registered.get((name, op.name)) != native.path:
                    if (name, op.name) in _registered:
                        defs.deregister_schema(op.name, 1, name)
                    defs.register_schema(schema(loaded, op))
                    _registered[name, op.name] = native.path


def node(
    library: Library | ModuleType,
    op: str,
    inputs: Sequence[str | Sequence[str] | None],
    outputs: Sequence[str],
    **attrs: Any,
) -> NodeProto:
    """Make a node of a model.

        >>> opsmith.onnx.node(distances, "pairwise_manhattan_distance", ["x", "y"], ["z"])

    - `op`: the op's name, in snake_case or CamelCase.
    - `inputs`: the names of its input tensors: a list of names for a list, `None` for an absent input.
    - `outputs`: the names of its output tensors.
    - `attrs`: attributes, as in a call of the op.

    Raises `opsmith.NotFoundError` for an unknown op, `opsmith.UnimplementedError` for one that ONNX Runtime
    cannot have, and `opsmith.InvalidArgumentError` for an attribute that does not fit.
    """
    definition = definition_of(library_of(library, "node"))
    known = next((each for each in definition.ops if op in (each.name, each.snake_name)), None)
    if known is None:
        raise NotFoundError(f"library `{definition.name}` has no op `{op}`")
    check(known)
    flat, attrs = flatten(known, inputs, attrs)
    made = helper.make_node(known.name, [name or "" for name in flat], outputs, domain=definition.name)
    made.attribute.extend(protos(known, attrs))
    return made


def translations(*libraries: Library | ModuleType) -> dict[Any, Callable[..., Any]]:
    """The translations of the libraries' ops, for PyTorch's exporter. Registers the schemas too.

        >>> table = opsmith.onnx.translations(distances)
        >>> torch.onnx.export(model, args, dynamo=True, custom_translation_table=table)

    If a model has an op that ONNX Runtime cannot have, the export fails with the reason.
    """
    from opsmith.onnx import _translate

    loaded = [library_of(library, "translations")._opsmith_loaded for library in libraries]
    register(*libraries)
    return {key: value for own in loaded for key, value in _translate.table(own)}


def check(op: Op) -> None:
    """Raise `opsmith.UnimplementedError` for an op that ONNX Runtime cannot have."""
    why = op.unsupported.get("onnx")
    if why is not None:
        raise UnimplementedError.of(op.name, None, f"is not available in ONNX: {why}")


def flatten(op: Op, inputs: Sequence[Any], attrs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The tensors of a node one after the other, those that are absent at the end left out, and the
    attributes with those that count the tensors of lists, where a node has to say it."""
    flat = [each for value in inputs for each in (value if isinstance(value, list | tuple) else [value])]
    while flat and flat[-1] is None:
        flat.pop()
    if is_packed(op.inputs) or len(counts(op)) > 1:
        lists = zip(op.inputs, inputs, strict=False)
        attrs = attrs | {arg.number_attr: len(value) for arg, value in lists if arg.number_attr is not None}
    return flat, attrs
