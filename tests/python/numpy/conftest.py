"""A process with NumPy and the built libraries, and without any framework."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import opsmith
import pytest
from opsmith import _native

LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", Path(__file__).parents[3] / "target" / "release"))


def library_path(name: str) -> Path:
    """The path of a built library; its absence fails the tests, for nothing may be skipped silently."""
    path = LIBRARIES / f"lib{name}.so"
    assert path.exists(), f"{path} is missing: cargo build --release --package {name}"
    return path


@pytest.fixture(scope="session")
def distances() -> opsmith.Library:
    """Pairwise Manhattan distances and their gradients."""
    return opsmith.load(library_path("distances"))


@pytest.fixture(scope="session")
def zero_out() -> opsmith.Library:
    """The tour of the definition language."""
    return opsmith.load(library_path("zero_out"))


@pytest.fixture(scope="session")
def testops() -> Callable[[str], Any]:
    """The op of a name among those that show one feature each, without a wrapper around it."""
    return _native.open(library_path("opsmith_testops")).op


@pytest.fixture(autouse=True)
def without_frameworks() -> Iterator[None]:
    """The package imports no framework that the user has not imported."""
    yield
    assert not {"torch", "tensorflow", "jax"} & sys.modules.keys()
