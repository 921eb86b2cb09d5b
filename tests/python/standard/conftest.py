"""The standard operators, as the library that frameworks load."""

from __future__ import annotations

import os
from pathlib import Path

import opsmith
import pytest

LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", Path(__file__).parents[3] / "target" / "release"))

counts: dict[str, int] = {}


def count(kind: str, cases: int = 1) -> None:
    """Notes that so many cases of a kind have been compared."""
    counts[kind] = counts.get(kind, 0) + cases


def library_path() -> Path:
    """The path of the library; its absence fails the tests, for nothing may be skipped silently."""
    path = LIBRARIES / "libopsmith_ops.so"
    assert path.exists(), f"{path} is missing: cargo build --release --package opsmith-ops-library"
    return path


@pytest.fixture(scope="session")
def ops() -> opsmith.Library:
    """The standard operators."""
    return opsmith.load(library_path())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many cases have been compared, and with what."""
    for kind, cases in counts.items():
        terminalreporter.write_line(f"standard operators: {cases} cases compared with {kind}")
    terminalreporter.write_line(f"standard operators: {sum(counts.values())} cases in all")
