"""Derivatives of graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from opsmith import _native
from opsmith._errors import InvalidArgumentError
from opsmith.graph._composed import composing
from opsmith.graph._graph import Graph, graph_of
from opsmith.graph._output import Operation, Output, Variable

if TYPE_CHECKING:
    from opsmith._native import GraphOutput


def gradients(
    ys: Output | Sequence[Output], xs: Output | Sequence[Output], grad_ys: Any = None
) -> list[Output | None]:
    """The gradients of the sum of `ys` with respect to each of `xs`, as new nodes of the graph.

        >>> (slope,) = opsmith.gradients(loss, w)

    - `ys`, `xs`: an output or several.
    - `grad_ys`: the gradients that arrive at the ys, by default ones.

    Returns a list with an item for each x: an output of its shape and dtype, or `None` if no y depends on it
    differentiably.

    Raises `opsmith.UnimplementedError` if an op on the path declares no gradient. The message names the op
    and the path to it.
    """
    ys, xs = _list(ys, "ys"), _list(xs, "xs")
    if not ys or not xs:
        return [None] * len(xs)
    graph = graph_of([*ys, *xs])
    given = None
    if grad_ys is not None:
        given = _along(graph, grad_ys, ys, f"gradients: {len(ys)} ys need as many grad_ys")
    found = _native.gradients([y._native for y in ys], [x._native for x in xs], given, composing(graph))
    return [None if native is None else Output(graph, native) for native in found]


def jvp(outputs: Output | Sequence[Output], inputs: Output | Sequence[Output], tangents: Any) -> list[Output]:
    """The derivatives of `outputs` along `tangents`, as new nodes of the graph: forward mode.

        >>> (along,) = opsmith.jvp([y], [x], [np.ones((4, 3))])

    - `outputs`, `inputs`: an output of float dtype, or several.
    - `tangents`: for each input an output or array of its shape and dtype, in a list or tuple. Anything else
      is the tangent of the only input.

    Returns a list with a derivative for each output, of its shape and dtype: the sum, over the inputs, of
    the derivative by the input times its tangent. It is zeros if the output depends differentiably on no
    input.

    Raises `opsmith.InvalidArgumentError` if tangents do not fit or dtypes are not floats. Raises
    `opsmith.UnimplementedError` if an op on the path, or its gradient op, declares no gradient. The message
    names the op and the path to it.
    """
    outputs, inputs = _list(outputs, "outputs"), _list(inputs, "inputs")
    if not outputs and not inputs:
        return []
    graph = graph_of([*outputs, *inputs])
    given = _along(graph, tangents, inputs, f"jvp: {len(inputs)} inputs need as many tangents")
    natives = [output._native for output in outputs]
    found = _native.jvp(natives, [x._native for x in inputs], given, composing(graph))
    return [Output(graph, native) for native in found]


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


def _along(graph: Graph, values: Any, likes: Sequence[Output], wanted: str) -> list[GraphOutput]:
    """The values, as many as there are outputs that they are to be like."""
    listed = values if isinstance(values, list | tuple) else [values]
    if len(listed) != len(likes):
        raise InvalidArgumentError(f"{wanted}, got {len(listed)}")
    both = zip(listed, likes, strict=True)
    return [graph.convert(value, like.dtype)._native for value, like in both]


def _list(outputs: Output | Sequence[Output], what: str) -> list[Output]:
    listed = [outputs] if isinstance(outputs, Output) else list(outputs)
    for output in listed:
        if not isinstance(output, Output):
            raise InvalidArgumentError(f"`{what}` must be outputs of a graph, got {type(output).__name__}")
    return listed
