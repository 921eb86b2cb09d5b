"""Gradients of functions of arrays, with no framework: their calls of ops are noted while they are made."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from opsmith import _native
from opsmith._dispatch import framework_of
from opsmith._errors import InvalidArgumentError, refused
from opsmith.graph._graph import Graph, _array
from opsmith.graph._output import Output, call
from opsmith.graph._session import Session
from opsmith.graph._training import gradients

_FLOATS = ("float16", "bfloat16", "float32", "float64")


class Tape(Graph):
    """A graph whose calls are made when they are noted, so that every output has its value."""

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[_native.GraphOutput, Any] = {}

    def watch(self, value: Any) -> Output:
        """An output that has this array's value, with respect to which there are gradients."""
        output = self.placeholder(value.dtype.name, value.shape, name="x")
        self._note(output._native, value.copy())
        return output

    def constant(self, value: Any, dtype: Any = None, name: str = "Constant") -> Output:
        array = _array(value, dtype)
        output = super().constant(array, name=name)
        self._note(output._native, array.copy())
        return output

    def _note(self, output: _native.GraphOutput, value: Any) -> None:
        # Whoever looks at it is not to change what gradients are computed from.
        value.flags.writeable = False
        self._values[output] = value

    def _called(
        self, op: _native.Op, node: _native.GraphOperation, inputs: Sequence[Any], attrs: Mapping[str, Any]
    ) -> None:
        values: list[Any] = []
        for given in inputs:
            listed = given if isinstance(given, list) else [given]
            known = [None if one is None else self._values.get(one) for one in listed]
            if any(value is None and one is not None for one, value in zip(listed, known, strict=True)):
                # Of a derivative that nobody has asked for yet.
                return
            values.append(known if isinstance(given, list) else known[0])
        found = op.call(tuple(values), attrs or None)
        groups = found if isinstance(found, tuple) else [found]
        flat = [value for group in groups for value in (group if isinstance(group, list) else [group])]
        for output, value in zip(node.outputs, flat, strict=True):
            self._note(output, value)

    def _value(self, output: Output) -> Any:
        if output._native not in self._values:
            self._compute([output])
        return self._values[output._native]

    def _compute(self, outputs: Sequence[Output]) -> None:
        """Makes sure that the values of these are known."""
        missing = [output for output in outputs if output._native not in self._values]
        if missing:
            feeds = {Output(self, native): value for native, value in self._values.items()}
            values = Session(self).run(missing, feeds)
            for output, value in zip(missing, values, strict=True):
                self._note(output._native, value)


_running: ContextVar[Tape | None] = ContextVar("opsmith_tape", default=None)


def grad(function: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Callable[..., Any]:
    """A function that returns the gradient of `function`.

        >>> slope = opsmith.grad(lambda x: (x * x * x).sum())
        >>> slope(np.array([1.0, 2.0]))
        array([ 3., 12.])

    - `function`: takes arrays of floats and returns one number. It may use functions of libraries,
      `opsmith.ops` among them, operators, and the methods of outputs of graphs. Calls are made at once, so
      it may branch on values.
    - `argnums`: the position of the argument to differentiate by, or several. With several, the result is a
      tuple.

    Each gradient has its argument's shape and dtype. The result can be differentiated again:
    `grad(grad(f))`. If an argument is an output of a graph, so is its gradient.

    Raises `opsmith.InvalidArgumentError` if an argument is not an array of floats, or the function does not
    return one number. Raises `opsmith.UnimplementedError` if an op declares no gradient and has none
    registered.
    """
    both = value_and_grad(function, argnums)

    @functools.wraps(function)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        return both(*args, **kwargs)[1]

    return gradient


def value_and_grad(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0
) -> Callable[..., tuple[Any, Any]]:
    """A function that returns both the result of `function` and its gradient. Parameters and errors are
    those of `grad`.

        >>> opsmith.value_and_grad(lambda x: (x * x).sum())(np.array([1.0, 2.0]))
        (array(5.), array([2., 4.]))
    """
    if not callable(function):
        raise InvalidArgumentError(f"grad: expected a function, got {type(function).__name__}")
    with refused(f"grad: `argnums` must be positions of arguments, got {argnums!r}"):
        one = isinstance(argnums, int)
        positions = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        if any(isinstance(at, bool) for at in positions):
            raise TypeError("a bool is not a position")
        positions = tuple(map(operator.index, positions))

    @functools.wraps(function)
    def differentiated(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        graph = next((arg.graph for arg in args if isinstance(arg, Output)), _running.get())
        if graph is None:
            graph = Tape()
        given = list(args)
        for at in positions:
            if not -len(args) <= at < len(args):
                raise InvalidArgumentError(f"grad: `argnums` has {at}, got {len(args)} positional arguments")
            given[at] = _watched(graph, args[at], at)
        watched = [given[at] for at in positions]
        outermost = graph if isinstance(graph, Tape) and _running.get() is not graph else None
        token = _running.set(graph) if isinstance(graph, Tape) else None
        try:
            y = _checked(graph, function(*given, **kwargs))
            found = _gradients(graph, y, watched)
        finally:
            if token is not None:
                _running.reset(token)
        given = [y, *found]
        if outermost is not None:
            outermost._compute(given)
            given = [np.array(outermost._value(output)) for output in given]
        return given[0], given[1] if one else tuple(given[1:])

    return differentiated


def _watched(graph: Graph, value: Any, at: int) -> Output:
    """An output of the graph that stands for an argument, and for nothing else."""
    framework = framework_of(value)
    if framework not in (None, "NumPy") and not isinstance(value, Output):
        raise InvalidArgumentError(
            f"grad: argument {at} is of {framework}, which has gradients of its own; expected an array"
        )
    if not isinstance(value, Output):
        with refused(f"grad: argument {at} cannot be read as an array"):
            value = np.asarray(value)
    name = value.dtype if isinstance(value, Output) else value.dtype.name
    if name not in _FLOATS:
        hint = "; write 1.0 for 1" if "int" in name else ""
        raise InvalidArgumentError(f"grad: argument {at} is {name}; only floats have gradients{hint}")
    if isinstance(graph, Tape) and not isinstance(value, Output):
        return graph.watch(value)
    # Another one than the argument itself, which the function may know by other ways.
    return call("identity", graph.convert(value))


def _checked(graph: Graph, y: Any) -> Output:
    """What a function has given, as an output of the graph: one number."""
    if isinstance(y, list | tuple | dict) or y is None:
        raise InvalidArgumentError(f"grad: the function must give one number, got {type(y).__name__}")
    if isinstance(y, Output) and not y.graph._root.is_same(graph._root):
        raise InvalidArgumentError(f"grad: the function gave `{y.name}`, which is of another graph")
    y = graph.convert(y)
    value = graph._value(y)
    shape = y.shape if value is None else value.shape
    if shape is None or any(dim != 1 for dim in shape):
        got = "an unknown rank" if shape is None else f"shape {list(shape)}"
        raise InvalidArgumentError(f"grad: the function must give one number, got {got}; `.sum()` adds up")
    return y


def _gradients(graph: Graph, y: Output, xs: list[Output]) -> list[Output]:
    if y.dtype not in _FLOATS:
        raise InvalidArgumentError(f"grad: the function gave {y.dtype}; only floats have gradients")
    found = gradients(y, xs)
    return [
        call("zeros_like", x) if gradient is None else gradient for x, gradient in zip(xs, found, strict=True)
    ]
