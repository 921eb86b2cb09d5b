"""Names, dtypes and paths that cannot be ones, and values that NumPy refuses."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import opsmith
import pytest

GRAPH = opsmith.Graph()
X = GRAPH.placeholder("float64", [None], name="x")
GRAPH.variable([1.0])
SESSION = opsmith.Session(GRAPH)
SESSION.initialize()

NAMED: dict[str, Callable[[Any], object]] = {
    "scope": lambda text: GRAPH.scope(text).__enter__(),
    "device": lambda text: GRAPH.device(text).__enter__(),
    "placeholder": lambda text: GRAPH.placeholder("float64", [None], name=text),
    "a placeholder's dtype": lambda text: GRAPH.placeholder(text, [None]),
    "constant": lambda text: GRAPH.constant([1.0], name=text),
    "a constant's dtype": lambda text: GRAPH.constant([1.0], dtype=text),
    "variable": lambda text: GRAPH.variable([1.0], name=text),
    "group": lambda text: GRAPH.group(X, name=text),
    "astype": lambda text: X.astype(text),
    "an op": lambda text: opsmith.ops.exp(X, name=text),
    "a dtype": lambda text: opsmith.ops.cast([1.0], dtype=text),
    "a dtype in a graph": lambda text: opsmith.ops.cast(X, dtype=text),
}


@pytest.mark.parametrize("text", ["a\ud800b", "a\0b", b"name", 5, ""])
@pytest.mark.parametrize("what", NAMED)
def test_what_is_no_name_is_refused(what: str, text: object) -> None:
    with pytest.raises(opsmith.Error):
        NAMED[what](text)


PATHS: dict[str, Callable[[Any], object]] = {
    "load": opsmith.load,
    "Graph.load": opsmith.Graph.load,
    "Graph.save": GRAPH.save,
    "Session.save": SESSION.save,
    "Session.restore": SESSION.restore,
    "jit.load": lambda path: opsmith.jit.load("a_name", path),
}


@pytest.mark.parametrize(
    "path",
    ["a\ud800b", "a\0b", "", "/", "/" + "x" * 5000, "/proc/none/such", "/dev/null/x", 5, None, 1.5],
    ids=lambda path: repr(path)[:20],
)
@pytest.mark.parametrize("what", PATHS)
def test_what_is_no_path_is_refused(what: str, path: object) -> None:
    with pytest.raises(opsmith.Error):
        PATHS[what](path)


def test_a_path_need_not_be_utf_8(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe")
    GRAPH.save(path)
    assert len(opsmith.Graph.load(path)) == len(GRAPH)
    SESSION.save(path)
    SESSION.restore(path)
    # Nor that of the file that makes a node.
    code = compile("opsmith.ops.exp(x)", path, "eval")
    assert eval(code, {"opsmith": opsmith, "x": X, "__name__": "elsewhere"}).shape == (None,)


@pytest.mark.parametrize(
    "call",
    [
        lambda: GRAPH.constant([[1], [2, 3]]),
        lambda: GRAPH.constant(np.array(["2020"], dtype="M8[D]")),
        lambda: GRAPH.constant([1.0], dtype=object()),
        lambda: SESSION.run(X, {X: [1, [2]]}),
        lambda: SESSION.run(X, {X: [1 << 2000]}),
        lambda: SESSION.run(X, {X: object()}),
        lambda: opsmith.ops.add([np.datetime64("2020")], [1.5]),
        lambda: opsmith.ops.add([1 << 2000], [1]),
        lambda: opsmith.Session(GRAPH, threads=0),
        lambda: opsmith.Session(GRAPH, threads="two"),
    ],
)
def test_what_numpy_refuses_is_an_invalid_argument(call: Callable[[], object]) -> None:
    with pytest.raises(opsmith.InvalidArgumentError):
        call()


@pytest.mark.parametrize("threads", [99_999, 1 << 80])
def test_a_session_has_no_more_threads_than_the_pool(threads: int) -> None:
    session = opsmith.Session(GRAPH, threads=threads)
    assert list(session.run(X, {X: [1.0, 2.0]})) == [1.0, 2.0]
