"""What the tests of the engine's graphs share."""

from __future__ import annotations

import os
from pathlib import Path

import opsmith
import pytest
from opsmith import Library


@pytest.fixture(scope="session")
def distances() -> Library:
    """The library of the distances example, beside the standard operators."""
    return opsmith.load(Path(os.environ["OPSMITH_LIB_DIR"]) / "libdistances.so")


@pytest.fixture(scope="session")
def kernels() -> Library:
    """The library of the kernels example, functions over named axes."""
    return opsmith.load(Path(os.environ["OPSMITH_LIB_DIR"]) / "libkernels.so")


@pytest.fixture
def graph() -> opsmith.Graph:
    """A graph with no nodes."""
    return opsmith.Graph()
