"""Graphs."""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from opsmith import _native
from opsmith._errors import InvalidArgumentError, refused
from opsmith._library import Library, library_of
from opsmith.graph._output import Operation, Output, Variable, natives, place

if TYPE_CHECKING:
    from opsmith._native import Graph as NativeGraph
    from opsmith._native import GraphOperation
    from opsmith._native import Op as NativeOp


class Graph:
    """A graph of ops. Nodes are added, and never removed or changed.

        >>> graph = opsmith.Graph()
        >>> x = graph.placeholder("float64", [None, 3], name="x")
        >>> y = opsmith.ops.exp(x * 2.0)
        >>> opsmith.Session(graph).run(y, {x: [[0.0, 0.0, 0.0]]})
        array([[1., 1., 1.]])

    Every node has its dtypes and shapes when it is made, so a mistake is an error of the line that makes it.
    """

    def __init__(self, native: _native.Graph | None = None) -> None:
        self._root = native if native is not None else _native.Graph()
        self._scopes = threading.local()

    @property
    def _native(self) -> _native.Graph:
        """The graph with the scope and the device that the current thread is in."""
        scopes: list[_native.Graph] = getattr(self._scopes, "stack", [])
        return scopes[-1] if scopes else self._root

    @staticmethod
    def load(
        path: str | os.PathLike[str], libraries: Library | ModuleType | Iterable[Library | ModuleType] = ()
    ) -> Graph:
        """Read a graph that `save` wrote.

            >>> graph = opsmith.Graph.load("model.opsmith", [distances])

        - `path`: the file.
        - `libraries`: the library or libraries of its ops, besides the standard operators: from
          `opsmith.load`, or modules of wheels. They may be of other releases than those that the graph was
          made with.

        Raises `opsmith.NotFoundError` if the file or a library is missing, and
        `opsmith.InvalidArgumentError` if `path` is not a regular file or `libraries` are not libraries. A
        damaged file, or one that holds no graph, is an `opsmith.Error` with the `code` `"DataLoss"`.
        """
        given = list(libraries) if isinstance(libraries, Iterable) else [libraries]
        natives = [library_of(library, "Graph.load")._opsmith_loaded.native for library in given]
        return Graph(_native.Graph.load(path, natives))

    def save(self, path: str | os.PathLike[str], outputs: Output | Iterable[Output] | None = None) -> None:
        """Write the graph to a file. The values that variables begin with are
        included, their current ones are not: `Session.save` writes those.

            >>> graph.save("model.graph", outputs=y)

        - `outputs`: an output, or several. Then the file has only what these need, for a server: no
          gradients, no optimiser, and no paths of source files or libraries.

        Raises `opsmith.InvalidArgumentError` for an output of another graph.
        """
        self._root.save(path, natives("Graph.save", outputs))

    @contextmanager
    def scope(self, name: str) -> Iterator[str]:
        """A `with` block in which names of new nodes begin with the name of the scope.

            >>> with graph.scope("layer"):
            ...     hidden = opsmith.ops.tanh(y)    # layer/Tanh

        Gives the scope's full name. If a scope of this name exists, a number is added. Scopes belong to a
        thread.
        """
        inner = self._native.scope(name)
        with self._within(inner):
            yield inner.scope_name

    @contextmanager
    def device(self, name: str) -> Iterator[None]:
        """A `with` block in which new nodes are placed on a device: `cpu`, the default, or a card such as
        `cuda:0`.

        A gradient is placed where the node is that it belongs to. The block does not check that the card, or
        a CUDA kernel, exists: a session does. Devices, like scopes, belong to a thread. Raises
        `opsmith.InvalidArgumentError` for a name that is not a device.
        """
        if not isinstance(name, str):
            raise InvalidArgumentError(f"Graph.device: expected a name such as 'cuda:0', got {name!r}")
        with self._within(self._native.device(name)):
            yield

    @contextmanager
    def _within(self, inner: NativeGraph) -> Iterator[None]:
        """Within it, nodes that the current thread makes are made through this handle."""
        stack: list[_native.Graph] = self._scopes.__dict__.setdefault("stack", [])
        stack.append(inner)
        try:
            yield
        finally:
            stack.remove(inner)

    def placeholder(
        self, dtype: Any, shape: Sequence[int | None] | None = None, name: str = "Placeholder"
    ) -> Output:
        """A tensor that is fed when the graph runs.

            >>> x = graph.placeholder("float32", [None, 3], name="x")

        - `dtype`: the name of a dtype, or one of NumPy's.
        - `shape`: the dims, `None` for an unknown one. Without it nothing is known of the shape.
        - `name`: the node's name.
        """
        dims = None if shape is None else _dims(shape)
        return Output(self, self._native.placeholder(name, _dtype_name(dtype), dims, place()))

    def constant(self, value: Any, dtype: Any = None, name: str = "Constant") -> Output:
        """A tensor that never changes: a copy of an array, or of what NumPy makes of a list or number, cast
        to `dtype` if one is given.
        """
        return Output(self, self._native.constant(name, _array(value, dtype), place()))

    def variable(self, initial: Any, dtype: Any = None, name: str = "Variable") -> Variable:
        """A tensor that a session keeps from run to run.

            >>> w = graph.variable(np.zeros((3, 1)), name="w")

        - `initial`: its value when it is initialised: an array, or an output of the graph.
        - `dtype`: what to cast `initial` to.
        """
        if not isinstance(initial, Output):
            initial = self.constant(initial, dtype, name=f"{name}/initial")
        elif dtype is not None and _dtype_name(dtype) != initial.dtype:
            initial = initial.astype(_dtype_name(dtype))
        return Variable(self, self._native.variable(name, initial._native, place()))

    def convert(self, value: Any, dtype: Any = None) -> Output:
        """`value` itself if it is an output, else a constant of it."""
        if isinstance(value, Output):
            return value
        array = _array(value, None)
        if dtype is not None and not hasattr(value, "dtype"):
            array = literal(array, value, dtype, "a constant")
        return self.constant(array)

    def group(self, *operations: Operation | Output, name: str = "Group") -> Operation:
        """A node that runs all of these operations."""
        natives = [(item.op if isinstance(item, Output) else item)._native for item in operations]
        return Operation(self, self._native.group(name, natives, place()))

    @contextmanager
    def after(self, *operations: Operation | Output) -> Iterator[None]:
        """A `with` block in which new calls of ops run after these operations, even if they take no input
        from them.
        """
        before = self._controls
        added = [(item.op if isinstance(item, Output) else item)._native for item in operations]
        self._scopes.controls = [*before, *added]
        try:
            yield
        finally:
            self._scopes.controls = before

    @property
    def _controls(self) -> list[GraphOperation]:
        """What the calls that the current thread makes run after."""
        controls: list[GraphOperation] = getattr(self._scopes, "controls", [])
        return controls

    def _called(
        self, op: NativeOp, node: GraphOperation, inputs: Sequence[Any], attrs: Mapping[str, Any]
    ) -> None:
        """Is told of every call of an op that is added: a tape makes it."""

    def _value(self, output: Output) -> Any:
        """The value of an output where there is one before the graph runs: on a tape."""
        return None

    def initializer(self) -> Operation:
        """A node that gives all variables of the graph their initial values."""
        return Operation(self, self._native.initializer(place()))

    @property
    def variables(self) -> list[Variable]:
        """The variables, in the order in which they were made."""
        return [Variable(self, native) for native in self._root.variables()]

    @property
    def operations(self) -> list[Operation]:
        """Every node, in the order in which they were made."""
        return [Operation(self, native) for native in self._root.operations()]

    def __len__(self) -> int:
        return len(self._root)

    def operation(self, name: str) -> Operation:
        """The node of this name. Raises `opsmith.NotFoundError` if there is none."""
        return Operation(self, self._root.find_operation(name))

    def output(self, name: str) -> Output:
        """The output of this name: the first output of a node, or another one by `name:1`."""
        native = self._root.find_output(name)
        return Variable(self, native) if native.is_variable else Output(self, native)

    def to_dot(self) -> str:
        """The graph in Graphviz's language, with scopes as boxes around their nodes."""
        return self._root.to_dot()

    def to_svg(self) -> str:
        """The graph as an SVG picture, with scopes as boxes around their nodes."""
        return self._root.to_svg()

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def __repr__(self) -> str:
        return f"<graph of {len(self)} nodes>"


def graph_of(outputs: Sequence[Output]) -> Graph:
    """The graph that all these are of."""
    graph = outputs[0].graph
    for output in outputs:
        if not output.graph._root.is_same(graph._root):
            raise InvalidArgumentError(f"`{output.name}` and `{outputs[0].name}` belong to different graphs")
    return graph


def literal(array: Any, value: Any, dtype: str, what: str) -> Any:
    """The array that NumPy makes of a number or a list as an array of `dtype`: nothing of the value is lost.

    Raises `opsmith.InvalidArgumentError` for a value that `dtype` cannot hold.
    """
    wanted = _numpy_dtype(dtype)
    whole = wanted.kind in "iub"
    if array.size and array.dtype != wanted and wanted.kind != "O":
        kinds = "biufc"
        fits = array.dtype.kind in kinds and (wanted.kind == "V" or _rank(array.dtype) <= _rank(wanted))
        if fits and whole and array.dtype.kind in "iu":
            limits = np.iinfo(wanted)
            fits = bool((array >= limits.min).all() and (array <= limits.max).all())
        if not fits:
            raise InvalidArgumentError(f"{what} must be {dtype}, got {value!r}")
    if wanted.kind == "O":
        return np.asarray(value, wanted)
    with np.errstate(over="ignore"):
        converted = array.astype(wanted)
    if not whole and array.dtype.kind in "iufc" and bool((np.isinf(converted) & ~np.isinf(array)).any()):
        raise InvalidArgumentError(f"{what} must be {dtype}, which cannot hold {value!r}")
    return converted


def _rank(dtype: Any) -> int:
    """Truth values, integers, floats, complex numbers: each can hold those before."""
    return ["b", "iu", "f", "c"].index({"i": "iu", "u": "iu"}.get(dtype.kind, dtype.kind))


def _dims(shape: Any) -> list[int | None]:
    """The dims of a shape; -1 stands for one that is not known, too."""
    try:
        dims = [None if dim is None or dim == -1 else operator.index(dim) for dim in shape]
        if all(dim is None or dim >= 0 for dim in dims):
            return dims
    except TypeError:
        pass
    raise InvalidArgumentError(f"a shape must be a sequence of sizes, or None for one unknown, got {shape!r}")


def _dtype_name(dtype: Any) -> str:
    if isinstance(dtype, str):
        return dtype
    name: str = _numpy_dtype(dtype).name
    return name


def _array(value: Any, dtype: Any) -> Any:
    if isinstance(value, Output):
        raise InvalidArgumentError(f"a constant must be a value, got the output `{value.name}` of a graph")
    wanted = None if dtype is None else _numpy_dtype(dtype)
    with refused("a value cannot be read as an array"):
        try:
            return np.asarray(value, wanted)
        except UnicodeDecodeError:
            # Bytes beside text, which NumPy takes for ASCII.
            return np.asarray(value, object)


def _numpy_dtype(dtype: Any) -> Any:
    if dtype == "string":
        return np.dtype(object)
    if dtype == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    with refused(f"{dtype!r} is not a dtype"):
        return np.dtype(dtype)
