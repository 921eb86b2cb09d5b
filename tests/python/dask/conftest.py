"""Dask and xarray with the package and the built libraries, and without any framework."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

os.environ["OPSMITH_NUM_THREADS"] = "1"  # in the workers too

import dask
import opsmith
import pytest

LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", Path(__file__).parents[3] / "target" / "release"))


def library_path(name: str) -> Path:
    """The path of a built library; its absence fails the tests, for nothing may be skipped silently."""
    path = LIBRARIES / f"lib{name}.so"
    assert path.exists(), f"{path} is missing: cargo build --release --package {name}"
    return path


def load(name: str) -> opsmith.Library:
    """A built library; `opsmith` is that of the standard operators, which has no file."""
    return opsmith.ops if name == "opsmith" else opsmith.load(library_path(name))


@pytest.fixture(scope="session")
def distances() -> opsmith.Library:
    """Pairwise Manhattan distances and their gradients."""
    return load("distances")


@pytest.fixture(autouse=True)
def on_this_thread() -> Iterator[None]:
    """Where a test says nothing else, chunks are computed one after the other."""
    with dask.config.set(scheduler="synchronous"):
        yield
    assert not {"torch", "tensorflow", "jax"} & sys.modules.keys()
