"""A process with TensorFlow and the built libraries, and without the `opsmith` package."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest
import tensorflow as tf

LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", Path(__file__).parents[3] / "target" / "release"))


def library(name: str) -> str:
    """The path of a built library; its absence fails the tests, for nothing may be skipped silently."""
    path = LIBRARIES / f"lib{name}.so"
    assert path.exists(), f"{path} is missing: cargo build --release --package {name}"
    return str(path)


@pytest.fixture(scope="session")
def ops() -> ModuleType:
    """The test operators."""
    return tf.load_op_library(library("opsmith_testops"))


@pytest.fixture(scope="session")
def distances() -> ModuleType:
    """Pairwise Manhattan distances and their gradients."""
    return tf.load_op_library(library("distances"))


@pytest.fixture(scope="session")
def zero_out() -> ModuleType:
    """The tour of the definition language."""
    return tf.load_op_library(library("zero_out"))


@pytest.fixture(autouse=True)
def bare() -> Iterator[None]:
    """Nothing here may bring in the Python package: it would register gradients."""
    tf.random.set_seed(0)
    yield
    assert "opsmith" not in sys.modules
