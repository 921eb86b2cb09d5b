"""What `opsmith new` makes is built and passes its own tests, with every framework that is here."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
PROGRAM = Path(os.environ.get("OPSMITH_PROGRAM", REPOSITORY / "target" / "debug" / "opsmith"))
FRAMEWORKS = ("numpy", "torch", "jax", "tensorflow")


def run(command: list[str | Path], folder: Path, **variables: str) -> str:
    """What the command prints. It builds beside the repository, so that little is compiled."""
    environment = os.environ | {"CARGO_TARGET_DIR": str(PROGRAM.parents[1]), "CARGO_NET_OFFLINE": "true"}
    done = subprocess.run(
        command, cwd=folder, env=environment | variables, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_new_crate_is_built_and_passes_its_tests_from_python(tmp_path: Path) -> None:
    run([PROGRAM, "new", "fresh_ops"], tmp_path)
    crate = tmp_path / "fresh_ops"
    shutil.copy(REPOSITORY / "Cargo.lock", crate)
    run([PROGRAM, "build"], crate)
    # They find the library where Cargo was told to put it.
    said = run([sys.executable, "-m", "pytest", "-v", "--color=no", "tests"], crate)
    installed = [f"test_{name}" for name in FRAMEWORKS if importlib.util.find_spec(name) is not None]
    assert set(re.findall(r"::(\w+) PASSED", said)) == {"test_mistakes_are_errors", *installed}, said
