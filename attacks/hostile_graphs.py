"""Reads files that are no graph of the engine's, or one made by hand to do harm, and shows what `opsmith`
says of each. Then it feeds and runs what nobody should.

Run it with nothing else: `python attacks/hostile_graphs.py`.
"""

from __future__ import annotations

import json
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import opsmith

Node = dict[str, Any]


def file_of(nodes: Any, version: int = 1, tensors: dict[str, Any] | None = None, data: bytes = b"") -> bytes:
    """A file of the format with these nodes."""
    graph = json.dumps({"version": version, "libraries": [], "nodes": nodes})
    return container({"__metadata__": {"opsmith.graph": graph}, **(tensors or {})}, data)


def container(header: dict[str, Any], data: bytes = b"") -> bytes:
    """A file in the safetensors format."""
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def placeholder(name: str, dtype: str = "float32", shape: Any = None) -> Node:
    """A placeholder, as a file has it."""
    return {"name": name, "kind": "Placeholder", "dtype": dtype, "shape": shape}


def call(name: str, kind: str, *inputs: Any, **attrs: Any) -> Node:
    """A call of a standard operator, as a file has it."""
    return {"name": name, "kind": kind, "library": "opsmith", "inputs": list(inputs), "attrs": attrs}


def whole() -> bytes:
    """A graph that there is nothing wrong with."""
    graph = opsmith.Graph()
    x = graph.placeholder("float64", [None, 3], name="x")
    opsmith.ops.exp(x * np.ones(3))
    with tempfile.TemporaryDirectory() as folder:
        graph.save(Path(folder) / "graph")
        return (Path(folder) / "graph").read_bytes()


def hostile_files() -> Iterator[tuple[str, bytes, str]]:
    """Name and content of each hostile file, and a part of what must be said of it."""
    good = whole()
    yield "nothing", b"", "no file of tensors"
    yield "text", b"a graph", "no file of tensors"
    yield "header of 2^60 bytes", struct.pack("<Q", 1 << 60) + b"{}", "no file of tensors"
    for length in range(1, len(good), max(len(good) // 20, 1)):
        yield f"cut off at {length}", good[:length], "no file of tensors"
    yield "no graph", container({}), "no graph"
    yield "graph that is not JSON", container({"__metadata__": {"opsmith.graph": "{"}}), "damaged"
    yield "lists in lists", container({"__metadata__": {"opsmith.graph": "[" * 100_000}}), "damaged"
    yield "another version", file_of([], version=99), "version 99"
    yield "two nodes of a name", file_of([placeholder("x"), placeholder("x")]), "two nodes"
    yield "cycle", file_of([call("a", "Exp", ["b"]), call("b", "Exp", ["a"])]), "cannot have cycles"
    yield "itself", file_of([call("a", "Exp", ["a"])]), "cannot have cycles"
    yield "input that is not there", file_of([call("a", "Exp", ["none"])]), "no node `none`"
    yield "output that is not there", file_of([placeholder("x"), call("a", "Exp", ["x:7"])]), "has 1 outputs"
    yield "op that is not there", file_of([call("a", "Explode")]), "no op `Explode`"
    yield "missing input", file_of([call("a", "Exp")]), "input `x` is missing"
    yield "too many inputs", file_of([placeholder("x"), call("a", "Exp", ["x"], ["x"])]), "takes 1 inputs"
    yield "attribute that is not there", file_of([placeholder("x"), call("a", "Exp", ["x"], q=1)]), "`q`"
    yield "wrong dtype", file_of([placeholder("x", "string"), call("a", "Exp", ["x"])]), "string"
    yield "dtype of no kind", file_of([placeholder("x", "float31")]), "dtype is missing or unknown"
    yield "negative dim", file_of([placeholder("x", shape=[-1])]), "cannot be negative"
    yield "library that is not there", file_of([{**call("a", "Exp"), "library": "evil"}]), "needs the library"
    yield "kind of no node", file_of([{"name": "a", "kind": "Trojan"}]), "kind `Trojan`"
    yield "name with a line break", file_of([placeholder("a\nb")]), "cannot be the name"
    yield "scopes without end", file_of([placeholder("a/" * 5000 + "x")]), "may have 1024 letters"
    yield "constant without a value", file_of([{"name": "c", "kind": "Constant"}]), "value is missing"
    yield "variable of nothing", file_of([{"name": "v", "kind": "Variable"}]), "takes one tensor"
    yield (
        "assignment to a placeholder",
        file_of([placeholder("x"), {"name": "a", "kind": "Assign", "variable": "x", "inputs": [["x"]]}]),
        "not a variable",
    )
    huge = {"c": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 4]}}
    yield "tensor larger than its bytes", file_of([], tensors=huge, data=b"\0" * 4), "no file of tensors"
    truth = {"c": {"dtype": "BOOL", "shape": [1], "data_offsets": [0, 1]}}
    yield "truth that is 7", file_of([], tensors=truth, data=b"\7"), "other than 0 and 1"


def hostile_runs() -> Iterator[tuple[str, Callable[[], object], str]]:
    """Name of each run that nobody should make, the run, and a part of what must be said of it."""
    graph = opsmith.Graph()
    x = graph.placeholder("float32", [None], name="x")
    dims = graph.placeholder("int64", [None], name="dims")
    text = graph.constant(np.array("a", object))
    session = opsmith.Session(graph)
    number = graph.constant(np.float32(1))
    filled, words = opsmith.ops.fill(dims, number), opsmith.ops.fill(dims, text)

    def shaped(output: Any, shape: list[int]) -> Callable[[], object]:
        return lambda: session.run(output, {dims: shape})

    yield "a fill of 2^50 numbers", shaped(filled, [1 << 50]), ""
    yield "a fill of 2^50 words", shaped(words, [1 << 50]), ""
    yield "a fill whose size overflows", shaped(filled, [1 << 40, 1 << 40]), ""
    yield "a fill of a negative size", shaped(filled, [-1]), ""
    yield "a shape of rank 2", lambda: session.run(filled, {dims: [[1]]}), "the feed for `dims`"
    yield "a graph as a value", lambda: session.run(x, {x: graph}), "the feed for `x`"
    yield "a fetch of another graph", lambda: session.run(opsmith.Graph().constant(1.0)), "another graph"


def answers(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Name of each attack, what must be said of it, and what was said."""
    path = folder / "hostile"
    for name, content, expected in hostile_files():
        path.write_bytes(content)
        try:
            answer = f"loaded: {opsmith.Graph.load(path)}"
        except opsmith.Error as error:
            answer = f"{type(error).__name__}: {error}".replace(f"{path}: ", "")
        yield name, expected, answer
    for name, run, expected in hostile_runs():
        try:
            answer = f"loaded: {run()}"
        except opsmith.Error as error:
            answer = f"{type(error).__name__}: {error}"
        yield name, expected, answer


def main() -> int:
    """Show every answer; the status says whether all were as they must be."""
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, expected, answer in answers(Path(folder)):
            right = expected in answer and not answer.startswith("loaded")
            wrong += not right
            print(f"{'ok   ' if right else 'WRONG'} {name}: {answer[:200]}")
    print(f"{wrong} wrong answers")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
