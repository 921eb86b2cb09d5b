"""Nodes of a graph and their outputs."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, SupportsIndex

from opsmith import _native
from opsmith._errors import InvalidArgumentError, OutOfRangeError

if TYPE_CHECKING:
    import numpy as np

    from opsmith.graph._graph import Graph

_PACKAGE = __name__.split(".", 1)[0]


def place() -> tuple[str, int]:
    """The file and line outside of this package that asked for a node."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        generated = frame.f_code.co_filename.startswith("<opsmith ")
        if not generated and module.split(".", 1)[0] != _PACKAGE:
            # The name of a file need not be UTF-8.
            file = frame.f_code.co_filename.encode(errors="backslashreplace").decode()
            return file, frame.f_lineno
        frame = frame.f_back
    return "", 0


def _on(device: str) -> str:
    """Says where something is, unless it is where most are."""
    return "" if device == "cpu" else f" on {device}"


class Operation:
    """A node of a graph: an op that is called when the graph runs."""

    __slots__ = ("_native", "graph")

    def __init__(self, graph: Graph, native: _native.GraphOperation) -> None:
        self._native = native
        self.graph = graph

    @property
    def name(self) -> str:
        """The node's name, with the names of its scopes in front."""
        return self._native.name

    @property
    def kind(self) -> str:
        """What the node does: the op's name, or `Placeholder`, `Constant`, `Variable`, `Assign`, `Group` or
        `Initialize`.
        """
        return self._native.kind

    @property
    def device(self) -> str:
        """The device that the node is placed on: `cpu`, or `cuda:0` and so on.

        Constants and fed values are in host memory wherever they are placed, and are copied to where they
        are read.
        """
        return self._native.device

    @property
    def place(self) -> tuple[str, int]:
        """The file and line that made the node."""
        return self._native.place

    @property
    def inputs(self) -> list[Output | None]:
        """The tensors that the node takes; `None` for an absent optional one."""
        return [None if output is None else Output(self.graph, output) for output in self._native.inputs]

    @property
    def outputs(self) -> list[Output]:
        """The tensors that the node gives."""
        return [Output(self.graph, output) for output in self._native.outputs]

    def run(
        self, feeds: Mapping[Output, Any] | None = None, *, feed_dict: Mapping[Output, Any] | None = None
    ) -> None:
        """Run the node and what it needs in the default session. `feed_dict` is another name for `feeds`."""
        from opsmith.graph._session import default_session

        default_session().run(self, feeds, feed_dict=feed_dict)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Operation) and self._native == other._native

    def __hash__(self) -> int:
        return hash(self._native)

    def __repr__(self) -> str:
        return f"<operation {self.name!r} {self.kind}{_on(self.device)}>"


class Output:
    """A tensor of a graph. Its dtype is known, and its shape as far as possible.

        >>> y = (x @ w + 1.0).sum(axis=0)
        >>> y.dtype, y.shape
        ('float64', (1,))

    Arithmetic adds nodes to the graph; numbers and arrays beside an output become constants. `==` asks
    whether two are the same output, so that outputs can be keys of a dict; `opsmith.ops.equal` compares
    elements.
    """

    __slots__ = ("_native", "graph")

    # NumPy's arrays leave arithmetic with an output to the output.
    __array_ufunc__ = None

    def __init__(self, graph: Graph, native: _native.GraphOutput) -> None:
        self._native = native
        self.graph = graph

    @property
    def name(self) -> str:
        """The node's name, followed by `:1` and so on unless it is the first output."""
        return self._native.name

    @property
    def op(self) -> Operation:
        """The node that gives this output."""
        return Operation(self.graph, self._native.operation)

    @property
    def device(self) -> str:
        """The device of its node: `cpu`, or `cuda:0` and so on."""
        return self._native.device

    @property
    def dtype(self) -> str:
        """The name of the elements' dtype."""
        return self._native.dtype

    @property
    def shape(self) -> tuple[int | None, ...] | None:
        """The dims, with `None` for an unknown one; `None` if the rank is unknown."""
        shape = self._native.shape
        return None if shape is None else tuple(shape)

    def eval(
        self, feeds: Mapping[Output, Any] | None = None, *, feed_dict: Mapping[Output, Any] | None = None
    ) -> np.ndarray[Any, Any]:
        """The value, computed in the default session, or the value that it already has within
        `opsmith.grad`.

        - `feeds`: values for outputs during this run. `feed_dict` is another name for it. A value that
          exists already depends on no feeds, so they are refused.
        """
        from opsmith.graph._session import default_session

        value: np.ndarray[Any, Any] | None = self.graph._value(self)
        if value is None:
            value = default_session().run(self, feeds, feed_dict=feed_dict)
        elif feeds or feed_dict:
            raise InvalidArgumentError(
                f"`{self.name}` has its value within `opsmith.grad` already, so nothing can be fed to it"
            )
        return value

    def __repr__(self) -> str:
        shape = "?" if self.shape is None else list(self.shape)
        return f"<{type(self).__name__.lower()} {self.name!r} {self.dtype}{shape}{_on(self.device)}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Output) and self._native == other._native

    def __hash__(self) -> int:
        return hash(self._native)

    def __bool__(self) -> bool:
        return bool(self._known("cannot be a condition"))

    def __float__(self) -> float:
        return float(self._known("is no number"))

    def __int__(self) -> int:
        return int(self._known("is no number"))

    def __iter__(self) -> Iterator[Output]:
        return (self[at] for at in range(len(self._known("cannot be iterated over"))))

    def _known(self, what: str) -> np.ndarray[Any, Any]:
        """The value that it has on a tape."""
        value: np.ndarray[Any, Any] | None = self.graph._value(self)
        if value is None:
            raise TypeError(f"`{self.name}` has no value before the graph runs, so it {what}")
        return value

    def __array__(self, *_: object, **__: object) -> Any:
        if self.graph._value(self) is not None:
            raise TypeError(
                f"`{self.name}` has a derivative, which a function of NumPy would lose; functions of "
                "opsmith.ops keep it, and `eval()` gives the value alone"
            )
        raise TypeError(f"`{self.name}` has no value before the graph runs; use `eval` or a session")

    def __add__(self, other: Any) -> Output:
        return call("add", self, other)

    def __radd__(self, other: Any) -> Output:
        return call("add", other, self)

    def __sub__(self, other: Any) -> Output:
        return call("sub", self, other)

    def __rsub__(self, other: Any) -> Output:
        return call("sub", other, self)

    def __mul__(self, other: Any) -> Output:
        return call("mul", self, other)

    def __rmul__(self, other: Any) -> Output:
        return call("mul", other, self)

    def __truediv__(self, other: Any) -> Output:
        return call("div", self, other)

    def __rtruediv__(self, other: Any) -> Output:
        return call("div", other, self)

    def __pow__(self, other: Any) -> Output:
        # By far the commonest power, and quicker than one in general.
        return call("square", self) if isinstance(other, int) and other == 2 else call("pow", self, other)

    def __rpow__(self, other: Any) -> Output:
        return call("pow", other, self)

    def __matmul__(self, other: Any) -> Output:
        # A product with a sparse tensor is that tensor's to make.
        return NotImplemented if getattr(other, "is_sparse", False) is True else call("mat_mul", self, other)

    def __rmatmul__(self, other: Any) -> Output:
        return call("mat_mul", other, self)

    def __neg__(self) -> Output:
        return call("neg", self)

    def __abs__(self) -> Output:
        return call("abs", self)

    def __lt__(self, other: Any) -> Output:
        return call("less", self, other)

    def __le__(self, other: Any) -> Output:
        return call("less_equal", self, other)

    def __gt__(self, other: Any) -> Output:
        return call("greater", self, other)

    def __ge__(self, other: Any) -> Output:
        return call("greater_equal", self, other)

    def __getitem__(self, key: Any) -> Output:
        return _part(self, tuple(map(_index, key if isinstance(key, tuple) else (key,))))

    @property
    def T(self) -> Output:
        """The transpose: all dims in reverse order."""
        return call("transpose", self)

    def reshape(self, *shape: int | Sequence[int]) -> Output:
        """The same elements in another shape. One dim may be -1, and is worked out from the others."""
        given = shape[0] if len(shape) == 1 and isinstance(shape[0], Iterable) else shape
        try:
            dims = [operator.index(dim) for dim in given]  # type: ignore[arg-type]
        except TypeError:
            raise InvalidArgumentError(
                f"reshape: a shape must be integers, of which one may be -1, got {given!r}"
            ) from None
        return call("reshape", self, self.graph.constant(dims, "int64", name="shape"))

    def sum(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Output:
        """The sum over the dims `axis`, or over all, as `numpy.sum` computes it."""
        return self._reduced("sum", axis, keepdims)

    def mean(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Output:
        """The mean over the dims `axis`, or over all, as `numpy.mean` computes it."""
        return self._reduced("mean", axis, keepdims)

    def _reduced(self, name: str, axis: int | Sequence[int] | None, keepdims: bool) -> Output:
        axes = [] if axis is None else list(axis) if isinstance(axis, Iterable) else [axis]
        # No dims are all dims to the op, and none to NumPy.
        return self if axis is not None and not axes else call(name, self, axes=axes, keep_dims=keepdims)

    def astype(self, dtype: str) -> Output:
        """The elements cast to another dtype."""
        return call("cast", self, dtype=dtype)


class Variable(Output):
    """A tensor that a session keeps from run to run.

    Within one run every reader sees the value from before the run. Assigned values take effect when the run
    has succeeded.
    """

    __slots__ = ()

    @property
    def initial(self) -> Output:
        """The value that initialisation gives it."""
        return Output(self.graph, self._native.initial)

    def assign(self, value: Any) -> Operation:
        """A node that assigns `value`, an output or an array, to the variable."""
        value = self.graph.convert(value, self.dtype)
        return Operation(self.graph, self.graph._native.assign(self._native, value._native, place()))


def natives(function: str, outputs: Any) -> list[_native.GraphOutput] | None:
    """What one output, or several, are to the engine; `None` of `None`."""
    if outputs is None:
        return None
    listed = [outputs] if isinstance(outputs, Output) or not isinstance(outputs, Iterable) else list(outputs)
    for output in listed:
        if not isinstance(output, Output):
            raise InvalidArgumentError(f"{function}: `outputs` must be outputs of the graph, got {output!r}")
    return [output._native for output in listed]


def call(name: str, *inputs: Any, **attrs: Any) -> Output:
    """A call of a standard operator, of whose inputs at least one is an output."""
    import opsmith

    output: Output = getattr(opsmith.ops, name)(*inputs, **attrs)
    return output


def _index(index: Any) -> Any:
    """An index of `output[...]`, as an integer of Python's where it is one of whatever kind."""
    if isinstance(index, slice):
        return slice(*map(_index, (index.start, index.stop, index.step)))
    if isinstance(index, bool) or not isinstance(index, SupportsIndex):
        return index
    try:
        return operator.index(index)
    except TypeError:
        # An array of several integers.
        return index


def _part(output: Output, key: tuple[Any, ...]) -> Output:
    """`output[1, 2:5, ...]`: integers and slices of step 1 of dims whose size is known where that matters."""
    shape = output.shape
    if shape is None:
        raise InvalidArgumentError(f"`{output.name}` has an unknown rank, so it cannot be indexed")
    at = next((at for at, index in enumerate(key) if index is Ellipsis), None)
    if at is not None:
        missing = len(shape) - (len(key) - 1)
        key = key[:at] + (slice(None),) * missing + key[at + 1 :]
    if len(key) > len(shape):
        raise OutOfRangeError(f"`{output.name}` has {len(shape)} dims, got {len(key)} indices")
    key += (slice(None),) * (len(shape) - len(key))
    parts, clipped, dropped = [], [], []
    for dim, (index, length) in enumerate(zip(key, shape, strict=True)):
        first, count = _range(output, dim, index, length)
        whole = (first, count) == (0, length) and isinstance(index, slice)
        wanted = (0, -1) if whole else (first, count)
        # How much of a dim of unknown size there is of a slice shows when the graph runs.
        shows = length is None and isinstance(index, slice)
        parts.append((0, -1) if shows else wanted)
        clipped.append(wanted if shows else (0, -1))
        if isinstance(index, int):
            dropped.append(dim)
    part = _slice(_slice(output, parts, False), clipped, True)
    if not dropped:
        return part
    left = [dim for dim in range(len(shape)) if dim not in dropped]
    dims = [parts[dim][1] if parts[dim][1] != -1 else shape[dim] for dim in left]
    if dims.count(None) > 1:
        for dim in reversed(dropped):
            part = call("gather", part, output.graph.constant(0, "int64"), axis=dim)
        return part
    return part.reshape([-1 if dim is None else dim for dim in dims])


def _slice(output: Output, parts: list[tuple[int, int]], clip: bool) -> Output:
    """The part from an index on with so many elements of each dim, all of them where it is -1."""
    if all(part == (0, -1) for part in parts):
        return output
    begin, size = (output.graph.constant(numbers, "int64") for numbers in zip(*parts, strict=True))
    return call("slice", output, begin, size, clip=clip)


def _range(output: Output, dim: int, index: Any, length: int | None) -> tuple[int, int]:
    """The first index and the number of them, -1 for all that follow."""
    if isinstance(index, int) and not isinstance(index, bool):
        if length is not None and not -length <= index < length:
            raise OutOfRangeError(f"`{output.name}`: dim {dim} has size {length}, there is no index {index}")
        if index < 0 and length is None:
            raise InvalidArgumentError(f"`{output.name}`: dim {dim} has an unknown size, got index {index}")
        return (index if index >= 0 else index + (length or 0)), 1
    bounds = (index.start, index.stop) if isinstance(index, slice) else (True,)
    if any(isinstance(bound, bool) or not isinstance(bound, int | None) for bound in bounds) or (
        index.step not in (None, 1)
    ):
        raise InvalidArgumentError(
            f"`{output.name}`: an index must be an integer, `...` or a slice of step 1, got {index!r}"
        )
    start, stop = index.start or 0, index.stop
    if length is not None:
        first, last, _ = index.indices(length)
        return first, max(last - first, 0)
    if (start < 0 and stop is not None) or (stop is not None and stop < 0):
        raise InvalidArgumentError(f"`{output.name}`: dim {dim} has an unknown size, got {index}")
    return start, -1 if stop is None else max(stop - start, 0)
