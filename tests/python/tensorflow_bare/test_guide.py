"""The guide's program runs as it is written, with nothing but TensorFlow installed."""

from __future__ import annotations

from pathlib import Path

from conftest import library
from guide import run_program


def test_the_program_in_the_guide(tmp_path: Path) -> None:
    printed = run_program("TensorFlow", Path(library("distances")), tmp_path)
    assert printed == "tf.Tensor(\n[[4. 4. 4.]\n [4. 4. 4.]], shape=(2, 3), dtype=float32)\n"
