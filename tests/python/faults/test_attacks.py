"""Calls to the system that fail, and writers that are killed: a short run of the attacks, in which nothing
is lost."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", ROOT / "target" / "release"))
CALLS = ["graphs", "libraries", "jit", "wheels", "disks", "threads", "cuda", "torch", "tensorflow", "jax"]


def attack(script: str, *arguments: str) -> str:
    """What the script prints, to which nothing is wrong."""
    command = [sys.executable, str(ROOT / "attacks" / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize("group", CALLS)
def test_a_call_to_the_system_that_fails_is_an_error_and_loses_nothing(group: str) -> None:
    said = attack("failing_calls.py", str(LIBRARIES), "--quick", group)
    assert re.search(r"failed: .*(an error|did without)", said), said


def test_what_a_killed_writer_leaves_is_whole() -> None:
    said = attack("killed_writers.py", "20", "3")
    assert sum(map(int, re.findall(r"(\d+) killed", said))) == 20, said
