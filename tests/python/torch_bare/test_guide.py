"""The guide's program runs as it is written, with nothing but PyTorch installed."""

from __future__ import annotations

from pathlib import Path

from conftest import library
from guide import run_program


def test_the_program_in_the_guide(tmp_path: Path) -> None:
    printed = run_program("PyTorch", Path(library("distances")), tmp_path)
    assert printed == "tensor([[4., 4., 4.],\n        [4., 4., 4.]])\n"
