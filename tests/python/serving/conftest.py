"""Models that are exported in processes of their own and run in programs of C and C++, without Python."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[3]
LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", ROOT / "target" / "release"))
PROGRAMS = ROOT / "examples" / "serve" / "native"


def library(name: str) -> str:
    """The path of a built library; its absence fails the tests, for nothing may be skipped silently."""
    path = LIBRARIES / f"lib{name}.so"
    assert path.exists(), f"{path} is missing: cargo build --release --package {name}"
    return str(path)


def python(script: str, *arguments: object) -> str:
    """What a script prints in a process of its own."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def compiled(compiler: str, source: str, folder: Path, options: Sequence[str]) -> Path:
    """A program of `examples/serve/native`."""
    program = folder / Path(source).stem
    command = [compiler, str(PROGRAMS / source), "-o", str(program), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


def run(program: Path, *arguments: object, matrix: np.ndarray) -> subprocess.CompletedProcess[str]:
    """Runs it on a matrix."""
    rows, columns = matrix.shape
    text = f"{rows} {columns}\n" + "\n".join(f"{number:.9g}" for number in matrix.ravel())
    command = [str(program), *map(str, arguments)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment["TF_CPP_MIN_LOG_LEVEL"] = "2"
    return subprocess.run(command, input=text, env=environment, capture_output=True, text=True, check=False)


def output(done: subprocess.CompletedProcess[str]) -> np.ndarray:
    """What it wrote."""
    assert done.returncode == 0, done.stderr
    head, *numbers = done.stdout.splitlines()
    return np.array([float(number) for number in numbers], "float32").reshape(
        [int(dim) for dim in head.split()]
    )
