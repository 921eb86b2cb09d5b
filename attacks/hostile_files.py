"""Gives whatever of `opsmith` reads a file what is no regular file, or one of a size that no memory has.

Run it: `python attacks/hostile_files.py`.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

# What reads the file `path`.
CALLS = {
    "load": "opsmith.load(path)",
    "Graph.load": "opsmith.Graph.load(path)",
    "Session.restore": "graph = opsmith.Graph(); graph.variable(1.0); opsmith.Session(graph).restore(path)",
    "jit.load": "from opsmith import jit; jit.load('hostile', path)",
    "jit.load, CUDA": "from opsmith import jit; jit.load('hostile', [opsmith.__file__, path])",
}

# What a child does with the files that it is given, within 2 GB of memory.
CHILD = """
import resource, sys, opsmith
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
for path in sys.argv[2:]:
    try:
        exec(sys.argv[1])
        print("read", flush=True)
    except opsmith.Error as error:
        print(f"{type(error).__name__}: {error}".replace(f"{path}: ", "").replace("\\n", " "), flush=True)
"""
PATIENCE = 60
"""So many seconds a child may take for all files."""


def files(folder: Path) -> dict[str, tuple[Path, str]]:
    """Path of each hostile file, and a part of what must be said of it."""
    pipe, sparse, listening = folder / "pipe.cu", folder / "sparse.cu", folder / "socket.cu"
    os.mkfifo(pipe)
    socket.socket(socket.AF_UNIX).bind(str(listening))
    with open(sparse, "wb") as file:
        file.truncate(1 << 42)
    return {
        "a pipe": (pipe, "is a pipe"),
        "a socket": (listening, "is a socket"),
        "a folder": (folder, "is a directory"),
        "a device": (Path("/dev/zero"), "is a device"),
        "a file of 4 TB": (sparse, ""),
    }


def answers(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Name of each attack, what must be said of it, and what was said."""
    hostile = files(folder)
    paths = [str(path) for path, _ in hostile.values()]
    for name, call in CALLS.items():
        command = [sys.executable, "-c", CHILD, call, *paths]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            try:
                told, _ = child.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                child.kill()
                told, _ = child.communicate()
        lines = [*told.splitlines(), *["waits, or has died"] * len(paths)]
        for (kind, (_, expected)), line in zip(hostile.items(), lines, strict=False):
            yield f"{name} of {kind}", expected, line


def main() -> int:
    """Show every answer; the status says whether all were as they must be."""
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, expected, answer in answers(Path(folder)):
            right = "Error: " in answer and expected in answer
            wrong += not right
            print(f"{'ok   ' if right else 'WRONG'} {name}: {answer[:200]}")
    print(f"{wrong} wrong answers")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
