"""Random calls in all frameworks and the engine, for some seconds; what has differed once is as it should
be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import opsmith
import opsmith.testing
import pytest

DIFFER = Path(__file__).parents[2] / "differ"
LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", Path(__file__).parents[3] / "target" / "release"))
ENVIRONMENT = os.environ | {"OPSMITH_CACHE_DIR": str(LIBRARIES.parent / "tests" / "jit")}
FRAMEWORKS = ["engine", "formulas", "torch", "tensorflow", "jax", "graphs", "bodies"]


def run(*arguments: str | Path) -> str:
    """What the program prints, which ends well."""
    command = [sys.executable, DIFFER / "differ.py", *arguments]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_is_computed_by_others_is_the_same(framework: str) -> None:
    said = run("--only", framework, "--minutes", "0.1", "--seed", "7")
    assert f"{framework}: " in said and "compared" in said, said


@pytest.mark.parametrize("case", sorted(DIFFER.glob("*.json")), ids=lambda path: path.stem)
def test_what_has_differed_once(case: Path) -> None:
    assert run("--replay", case) == "as it should be\n"


def test_a_gradient_of_an_op_that_takes_complex_numbers_is_checked() -> None:
    function = opsmith.ops.extract_patches_grad
    report = opsmith.testing.check(
        function, reference=function, properties=["reference"], seed=1, cases=40, sizes=(1, 4)
    )
    assert not report.failures
