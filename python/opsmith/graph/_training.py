"""Derivatives of graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opsmith import _native
from opsmith._errors import InvalidArgumentError
from opsmith.graph._composed import composing
from opsmith.graph._graph import graph_of
from opsmith.graph._output import Operation, Output, Variable


def gradients(
    ys: Output | Sequence[Output], xs: Output | Sequence[Output], grad_ys: Any = None
) -> list[Output | None]:
    """The gradients of the sum of `ys` with respect to each of `xs`, as new nodes of the graph.

    `None` for an x that no y depends on in a differentiable way. `grad_ys` are the gradients that flow into
    the ys; ones unless they are given. Raises `opsmith.UnimplementedError` for an op on the way that declares
    no gradient: the message names it, and the way to it.
    """
    ys, xs = _list(ys, "ys"), _list(xs, "xs")
    if not ys or not xs:
        return [None] * len(xs)
    graph = graph_of([*ys, *xs])
    given = None
    if grad_ys is not None:
        listed = grad_ys if isinstance(grad_ys, list | tuple) else [grad_ys]
        pairs = [graph.convert(value, y.dtype) for value, y in zip(listed, ys, strict=True)]
        given = [output._native for output in pairs]
    found = _native.gradients([y._native for y in ys], [x._native for x in xs], given, composing(graph))
    return [None if native is None else Output(graph, native) for native in found]


def minimize(
    optimizer: str, numbers: list[float], loss: Output, variables: Variable | Sequence[Variable] | None
) -> Operation:
    """The node that takes a step of an optimiser of the engine's."""
    if not isinstance(loss, Output):
        raise InvalidArgumentError(f"{optimizer}: `loss` must be an output, got {type(loss).__name__}")
    natives = None if variables is None else [variable._native for variable in _list(variables, "variables")]
    return Operation(
        loss.graph, _native.minimize(optimizer, numbers, loss._native, natives, composing(loss.graph))
    )


def _list(outputs: Output | Sequence[Output], what: str) -> list[Output]:
    listed = [outputs] if isinstance(outputs, Output) else list(outputs)
    for output in listed:
        if not isinstance(output, Output):
            raise InvalidArgumentError(f"`{what}` must be outputs of a graph, got {type(output).__name__}")
    return listed
