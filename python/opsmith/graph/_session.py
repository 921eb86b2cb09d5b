"""Sessions: they run graphs, and keep the values of variables."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from opsmith import _native
from opsmith._errors import FailedPreconditionError, InvalidArgumentError
from opsmith.graph._graph import Graph, _array, literal
from opsmith.graph._output import Operation, Output

_sessions: ContextVar[tuple[Session, ...]] = ContextVar("opsmith_sessions", default=())


@dataclass(frozen=True)
class Trace:
    """What ran when in one run."""

    chrome_json: str
    """For `chrome://tracing` or Perfetto: per op its time, thread and bytes."""
    summary: str
    """A table: per op how often it was called, for how long in all, and how many bytes it made."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.chrome_json)

    def __str__(self) -> str:
        return self.summary


class Session:
    """Runs a graph, and keeps the values of its variables.

    Any number of threads may run one session, and any number of sessions one graph; each has
    variables of its own. In a `with` block it is the default session, which `eval` and
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
        """Make a session with no variable initialised, on a graph of its own, `session.graph`, unless one is
        given.

        `parallel` lets nodes that do not depend on each other run at the same time; `simplify` computes
        constant parts once, and equal nodes once for all; `fuse` computes pointwise operators that follow
        each other as one, in one pass over memory. `threads` limits on how many threads a node runs, and
        how many nodes run at the same time; without it they are those of the process, which
        `OPSMITH_NUM_THREADS` sizes. `allow_soft_placement` has a node that is placed on a card, and cannot
        run there, run on the CPU: its op has no CUDA kernel, or there is no such card. Without it, that is
        an error of the run.

        Raises `opsmith.InvalidArgumentError` for a number of threads that is not positive.
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
        """Run what the fetches need.

        `fetches` is an output, an operation, or a list, tuple or dict of fetches; the answer has
        the same form, with an array for each output and `None` for each operation. `feeds`, which
        may be called `feed_dict`, gives outputs their values for the run, placeholders or any others.
        What is on a card is copied there and back.

        Raises `opsmith.UnimplementedError` for a node that is placed on a card and has no CUDA kernel, and
        `opsmith.FailedPreconditionError` or `opsmith.NotFoundError` where there is no driver or no such card.
        """
        return self._run(fetches, _feeds(feeds, feed_dict), traced=False)[0]

    def run_traced(
        self,
        fetches: Any,
        feeds: Mapping[Output, Any] | None = None,
        *,
        feed_dict: Mapping[Output, Any] | None = None,
    ) -> tuple[Any, Trace]:
        """As `run`, and what ran when."""
        values, trace = self._run(fetches, _feeds(feeds, feed_dict), traced=True)
        return values, Trace(*trace)

    def initialize(self) -> None:
        """Give every variable of the graph its initial value."""
        self._native.initialize()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the values of all variables to a file in the safetensors format, optimisers' own
        among them."""
        self._native.save(path)

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Give every variable the value that a file has for it, or none where one does not fit.

        Raises `opsmith.NotFoundError` where the file is missing or has no value for a variable, an
        `opsmith.Error` whose `code` is `"DataLoss"` for a damaged file, and `opsmith.InvalidArgumentError`
        for a value of another dtype or shape than the variable's, and for a path of what is no regular file.
        """
        self._native.restore(path)

    @property
    def memory(self) -> tuple[int, int]:
        """How many bytes the session's tensors take now, and the most that they took at one time."""
        return self._native.memory_use()

    def reset_peak_memory(self) -> None:
        """Count the most memory from now on."""
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
    """A session that is the default one from when it is made until it is closed."""

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
        """As `Session`."""
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
        """The session before it is the default one again."""
        self._leave()


def default_session() -> Session:
    """The session of the innermost `with` block or `InteractiveSession`.

    Raises `opsmith.FailedPreconditionError` where there is none.
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
