"""A process with PyTorch and the built libraries, and without the `opsmith` package."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", Path(__file__).parents[3] / "target" / "release"))


def library(name: str) -> str:
    """The path of a built library; its absence fails the tests, for nothing may be skipped silently."""
    path = LIBRARIES / f"lib{name}.so"
    assert path.exists(), f"{path} is missing: cargo build --release --package {name}"
    return str(path)


torch.ops.load_library(library("opsmith_testops"))
torch.ops.load_library(library("distances"))


@pytest.fixture
def ops() -> ModuleType:
    """The test operators."""
    return torch.ops.testops


@pytest.fixture(autouse=True)
def bare() -> Iterator[None]:
    """Nothing here may bring in the Python package: it would register gradients."""
    torch.manual_seed(0)
    yield
    assert "opsmith" not in sys.modules
