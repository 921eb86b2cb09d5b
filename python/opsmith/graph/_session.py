"""Sessions: they run graphs, and keep the values of variables."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from opsmith import _html, _native
from opsmith._errors import FailedPreconditionError, InvalidArgumentError
from opsmith.graph._graph import Graph, _array, literal
from opsmith.graph._output import Operation, Output, natives

_sessions: ContextVar[tuple[Session, ...]] = ContextVar("opsmith_sessions", default=())


@dataclass(frozen=True)
class Trace:
    """A record of one run: which ops ran when. As text it is a table."""

    chrome_json: str
    """For `chrome://tracing` or Perfetto: per op its time, thread and bytes."""
    summary: str
    """A table: per op how often it was called, for how long in all, and how many bytes it made."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace as JSON, for `chrome://tracing` or Perfetto."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.chrome_json)

    def __str__(self) -> str:
        return self.summary

    def _repr_html_(self) -> str:
        return _html.text(self.summary)


class Session:
    """Runs a graph, and keeps the values of its variables.

        >>> with opsmith.Session(graph) as session:
        ...     session.run(graph.initializer())
        ...     session.run(y, {x: [[0.0, 0.0, 0.0]]})

    Any number of threads may run one session, and any number of sessions one graph. Each session has
    variables of its own. In a `with` block it is the default session, which `Output.eval` and
    `Operation.run` use.
    """

    def __init__(
        self,
        graph: Graph | None = None,
        *,
        parallel: bool = True,
        simplify: bool = True,
        fuse: bool = True,
        threads: int | None = None,
        allow_soft_placement: bool = False,
    ) -> None:
        """Make a session whose variables are not initialised.

        - `graph`: what to run. Without one, the session makes a graph, `session.graph`.
        - `parallel`: whether independent nodes run at the same time.
        - `simplify`: whether constant parts and equal nodes are computed only once.
        - `fuse`: whether consecutive pointwise operators and folds are computed as one, in one pass over
          memory.
        - `threads`: on how many threads a node runs at most, and how many nodes run at the same time. By
          default those of the process, which `OPSMITH_NUM_THREADS` sizes.
        - `allow_soft_placement`: whether a node that is placed on a card runs on the CPU if its op has no
          CUDA kernel or there is no such card. Without it, that is an error of the run.

        Raises `opsmith.InvalidArgumentError` if `threads` is not a positive integer.
        """
        if graph is None:
            graph = Graph()
        if not isinstance(graph, Graph):
            raise InvalidArgumentError(f"Session: expected an opsmith.Graph, got {graph!r}")
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
            raise InvalidArgumentError(f"Session: `threads` must be a positive integer, got {threads!r}")
        if threads is not None:
            # More than the pool has are those of the pool.
            threads = min(threads, sys.maxsize)
        self.graph = graph
        self._native = _native.GraphSession(
            graph._root, parallel, simplify, fuse, threads, allow_soft_placement
        )

    def run(
        self,
        fetches: Any,
        feeds: Mapping[Output, Any] | None = None,
        *,
        feed_dict: Mapping[Output, Any] | None = None,
    ) -> Any:
        """Run the fetches and what they need, and return their values.

            >>> session.run({"loss": loss, "step": train}, {x: inputs})

        - `fetches`: an output, an operation, or a list, tuple or dict of fetches.
        - `feeds`: values for outputs during this run, by output: for placeholders, or any others.
          `feed_dict` is another name for it.

        The result has the structure of the fetches, with an array for each output and `None` for each
        operation. Fed and fetched arrays are copied to and from cards.

        Raises `opsmith.UnimplementedError` for a node on a card whose op has no CUDA kernel. Raises
        `opsmith.FailedPreconditionError` or `opsmith.NotFoundError` if there is no driver or no such card.
        """
        return self._run(fetches, _feeds(feeds, feed_dict), traced=False)[0]

    def run_traced(
        self,
        fetches: Any,
        feeds: Mapping[Output, Any] | None = None,
        *,
        feed_dict: Mapping[Output, Any] | None = None,
    ) -> tuple[Any, Trace]:
        """As `run`, and returns a `Trace` too: `values, trace = session.run_traced(y, feeds)`."""
        values, trace = self._run(fetches, _feeds(feeds, feed_dict), traced=True)
        return values, Trace(*trace)

    def initialize(self) -> None:
        """Give every variable of the graph its initial value."""
        self._native.initialize()

    def save(self, path: str | os.PathLike[str], outputs: Output | Iterable[Output] | None = None) -> None:
        """Write the values of all variables, those of optimisers included, to a safetensors file.

        - `outputs`: an output, or several. Then the file has only the variables that these need, for the
          graph that `Graph.save` writes with the same `outputs`.

        Raises `opsmith.InvalidArgumentError` for an output of another graph.
        """
        self._native.save(path, natives("Session.save", outputs))

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Give every variable its value from a file that `save` wrote. If one does not fit, none changes.

        Raises `opsmith.NotFoundError` if the file is missing or lacks a variable, and
        `opsmith.InvalidArgumentError` if a value's dtype or shape does not fit, or the path is not a regular
        file. A damaged file is an `opsmith.Error` with the `code` `"DataLoss"`.
        """
        self._native.restore(path)

    @property
    def memory(self) -> tuple[int, int]:
        """How many bytes the session's tensors take now, and the most that they have taken at one time."""
        return self._native.memory_use()

    def reset_peak_memory(self) -> None:
        """Start counting the most memory anew."""
        self._native.reset_peak_memory()

    def __enter__(self) -> Session:
        _sessions.set((*_sessions.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def _leave(self) -> None:
        stack = list(_sessions.get())
        for at in reversed(range(len(stack))):
            if stack[at] is self:
                del stack[at]
                break
        _sessions.set(tuple(stack))

    def _run(self, fetches: Any, feeds: Mapping[Output, Any] | None, traced: bool) -> tuple[Any, Any]:
        outputs: list[Output] = []
        targets: list[Operation] = []
        rebuild = _collect(fetches, outputs, targets)
        fed = []
        if not isinstance(feeds, Mapping | None):
            raise InvalidArgumentError(
                f"feeds must be a dict of outputs and their values, got {type(feeds).__name__}"
            )
        for output, value in (feeds or {}).items():
            if not isinstance(output, Output):
                raise InvalidArgumentError(f"a key of `feeds` must be an output, got {_described(output)}")
            fed.append((output._native, _feed(output, value)))
        values, trace = self._native.run(
            [output._native for output in outputs], [target._native for target in targets], fed, traced
        )
        return rebuild(values), trace

    def __repr__(self) -> str:
        return f"<session on {self.graph!r}>"


class InteractiveSession(Session):
    """A session that is the default session from when it is made until it is closed."""

    def __init__(
        self,
        graph: Graph | None = None,
        *,
        parallel: bool = True,
        simplify: bool = True,
        fuse: bool = True,
        threads: int | None = None,
        allow_soft_placement: bool = False,
    ) -> None:
        """The parameters of `Session`."""
        super().__init__(
            graph,
            parallel=parallel,
            simplify=simplify,
            fuse=fuse,
            threads=threads,
            allow_soft_placement=allow_soft_placement,
        )
        self.__enter__()

    def close(self) -> None:
        """Make the previous session the default one again."""
        self._leave()


def default_session() -> Session:
    """The session of the innermost `with` block, or the `InteractiveSession`.

    Raises `opsmith.FailedPreconditionError` if there is none.
    """
    sessions = _sessions.get()
    if not sessions:
        raise FailedPreconditionError(
            "there is no default session; use `with opsmith.Session(graph):` or opsmith.InteractiveSession"
        )
    return sessions[-1]


def _collect(fetches: Any, outputs: list[Output], targets: list[Operation]) -> Any:
    """Note what is fetched; gives a function that puts the values into the form of `fetches`."""
    if isinstance(fetches, Output):
        outputs.append(fetches)
        at = len(outputs) - 1
        return lambda values: values[at]
    if isinstance(fetches, Operation):
        targets.append(fetches)
        return lambda values: None
    if isinstance(fetches, list | tuple):
        kind = type(fetches)
        parts = [_collect(fetch, outputs, targets) for fetch in fetches]
        if hasattr(kind, "_make"):
            return lambda values: kind._make(part(values) for part in parts)
        return lambda values: kind(part(values) for part in parts)
    if isinstance(fetches, dict):
        named = {key: _collect(fetch, outputs, targets) for key, fetch in fetches.items()}
        return lambda values: {key: part(values) for key, part in named.items()}
    raise InvalidArgumentError(
        "a fetch must be an output, an operation, or a list, tuple or dict of them, "
        f"got {_described(fetches)}"
    )


def _described(given: Any) -> str:
    """What was given where an output was expected."""
    if isinstance(given, str):
        return f"str {given!r}; `graph.output({given!r})` is the output of that name"
    return type(given).__name__


def _feeds(
    feeds: Mapping[Output, Any] | None, feed_dict: Mapping[Output, Any] | None
) -> Mapping[Output, Any] | None:
    """What is fed, by whichever of the two names."""
    if feeds is not None and feed_dict is not None:
        raise InvalidArgumentError("run: `feeds` and `feed_dict` are two names of one argument; give one")
    return feeds if feed_dict is None else feed_dict


def _feed(output: Output, value: Any) -> Any:
    """The value as an array: Python's own numbers and lists take the output's dtype, arrays keep theirs."""
    if hasattr(value, "__array__") or hasattr(value, "__dlpack__"):
        return _array(value, None)
    return literal(_array(value, None), value, output.dtype, f"the feed for `{output.name}`")
