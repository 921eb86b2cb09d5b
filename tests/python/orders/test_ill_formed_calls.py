"""Calls of any operator with anything, in each framework: results and exceptions; no process ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", ROOT / "target" / "release"))


@pytest.mark.parametrize(
    ("framework", "number"), [("numpy", 5000), ("torch", 2000), ("tensorflow", 300), ("jax", 150)]
)
def test_no_ill_formed_call_ends_the_process(framework: str, number: int) -> None:
    attack = ROOT / "attacks" / "ill_formed_calls.py"
    command = [sys.executable, str(attack), framework, str(LIBRARIES), str(number), "1"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    assert f"{number} calls, 0 went wrong" in told.stdout, told.stdout
