"""PyTorch, TensorFlow and JAX in one process, imported in every order, with libraries loaded in between."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import pytest

LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", Path(__file__).parents[3] / "target" / "release"))
ORDERS = list(permutations(("torch", "tensorflow", "jax")))


@pytest.mark.parametrize("number", range(len(ORDERS)), ids=lambda number: "-".join(ORDERS[number]))
def test_libraries_loaded_first_in_the_middle_and_last(number: int) -> None:
    """Which library is loaded when, and where the middle is, differs from order to order."""
    first, second, third = ORDERS[number]
    names = ["distances", "zero_out", "opsmith_testops"]
    early, middle, late = (str(LIBRARIES / f"lib{names[(number + i) % 3]}.so") for i in range(3))
    between = [middle, second] if number % 2 == 0 else [second, middle]
    arguments = [early, first, *between, third, late]
    script = Path(__file__).with_name("in_one_process.py")
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1:] == ["all work"]
