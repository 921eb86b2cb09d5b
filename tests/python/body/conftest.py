"""The random bodies of `opsmith-body`: their values, gradients and CUDA sources, by one of its examples."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def bodies() -> list[dict[str, Any]]:
    """Each body as `examples/random_bodies.rs` describes it."""
    # `cargo xtask test` has built it.
    built = os.environ.get("OPSMITH_RANDOM_BODIES")
    run = ["cargo", "run", "--quiet", "--package", "opsmith-body", "--example", "random_bodies"]
    command = [built] if built else run
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)
