"""What the lint of the prose finds, and what it leaves alone."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("proselint", reason="`cargo xtask lint` has not installed proselint")
PROGRAM = Path(__file__).parents[3] / "xtask" / "prose.py"
SPEC = importlib.util.spec_from_file_location("prose", PROGRAM)
assert SPEC is not None and SPEC.loader is not None
prose = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(prose)


def lines(text: str) -> list[int]:
    """The lines of what is found in a page."""
    return [line for line, _ in prose.findings(text)]


def long(count: int) -> str:
    return " ".join(f"word{i}" for i in range(count))


def test_long_sentences_are_found_where_they_begin() -> None:
    assert lines(f"Short.\n\n{long(35)}.\nOne more.\n") == []
    assert lines(f"Short.\n\nFine. {long(20)}\n{long(16)}.\n") == [3]
    assert lines(f"- {long(30)}\n- {long(30)}\n") == []
    assert lines(f"# {long(30)}\n\n{long(30)}\n") == []


def test_code_tables_and_addresses_are_not_read() -> None:
    assert lines(f"```rust\nlet Numpy = 1; {long(50)}\n```\n") == []
    assert lines(f"Fine: `the the Numpy` and [this](Numpy.md).\n\n| Numpy |\n|---|\n| {long(50)} |\n") == []
    assert lines("It is so:\n\n    Numpy Numpy\n") == []


def test_wrong_words_doubled_words_and_cliches_are_found() -> None:
    assert lines("Fine.\nA Numpy array.\n") == [2]
    assert lines("Runs on a GPU.\nTensorFlow's GPU device.\n") == [1]
    assert lines("This is\nis twice. Side by side by side.\n") == [1]
    assert set(lines("Fine.\n\nAt the end of the day, it works.\n")) == {3}
