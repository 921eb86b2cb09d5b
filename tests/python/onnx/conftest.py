"""ONNX Runtime with the package and the built libraries; PyTorch is there where a test exports from it."""

from __future__ import annotations

import os
from pathlib import Path

# Before the import: the runtime reports to its makers otherwise.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import opsmith
import pytest

LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", Path(__file__).parents[3] / "target" / "release"))

counts: dict[str, int] = {}


def count(kind: str, cases: int = 1) -> None:
    """Notes that so many cases of a kind have been compared."""
    counts[kind] = counts.get(kind, 0) + cases


def library_path(name: str) -> Path:
    """The path of a built library; its absence fails the tests, for nothing may be skipped silently."""
    path = LIBRARIES / f"lib{name}.so"
    assert path.exists(), f"{path} is missing: cargo build --release --package {name}"
    return path


def load(name: str) -> opsmith.Library:
    """A built library; `opsmith` is that of the standard operators."""
    return opsmith.load(library_path("opsmith_ops" if name == "opsmith" else name))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many cases have been compared, and with what."""
    for kind, cases in counts.items():
        terminalreporter.write_line(f"ONNX Runtime: {cases} {kind}")
