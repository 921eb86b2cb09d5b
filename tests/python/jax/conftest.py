"""JAX with the package and the built libraries."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import jax
import opsmith
import pytest

LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", Path(__file__).parents[3] / "target" / "release"))

# Half of the ops' dtypes have 64 bits; what happens without them has tests of its own.
jax.config.update("jax_enable_x64", True)
# For arrays in parts.
jax.config.update("jax_num_cpu_devices", 4)


def library_path(name: str) -> Path:
    """The path of a built library; its absence fails the tests."""
    path = LIBRARIES / f"lib{name}.so"
    assert path.exists(), f"{path} is missing: cargo build --release"
    return path


def load(name: str) -> opsmith.Library:
    """Load a built library; `opsmith` is that of the standard operators."""
    return opsmith.load(library_path("opsmith_ops" if name == "opsmith" else name))


@pytest.fixture(scope="session")
def distances() -> opsmith.Library:
    """Pairwise Manhattan distances and their gradients."""
    return load("distances")


@pytest.fixture(scope="session")
def zero_out() -> opsmith.Library:
    """The tour of the definition language."""
    return load("zero_out")


@pytest.fixture(scope="session")
def testops() -> opsmith.Library:
    """One op for each feature."""
    return load("opsmith_testops")


@pytest.fixture(scope="session")
def ops() -> opsmith.Library:
    """The standard operators, for tensors of frameworks."""
    return load("opsmith_ops")


@pytest.fixture(scope="session")
def kernels() -> opsmith.Library:
    """The operators over named axes."""
    return load("kernels")


@pytest.fixture
def half() -> Iterator[None]:
    """JAX as it comes, without 64-bit dtypes."""
    jax.config.update("jax_enable_x64", False)
    yield
    jax.config.update("jax_enable_x64", True)
