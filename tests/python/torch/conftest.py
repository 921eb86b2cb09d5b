"""PyTorch with the package and the built libraries."""

from __future__ import annotations

import os
from pathlib import Path

import opsmith
import pytest
import torch

LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", Path(__file__).parents[3] / "target" / "release"))


def load(name: str) -> opsmith.Library:
    """Load a built library; its absence fails the tests."""
    path = LIBRARIES / f"lib{name}.so"
    assert path.exists(), f"{path} is missing: cargo build --release"
    return opsmith.load(path)


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


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same numbers in every run, and nothing compiled before."""
    torch.manual_seed(0)
    torch._dynamo.reset()
