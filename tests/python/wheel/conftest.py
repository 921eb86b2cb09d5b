"""A wheel of the distances example, built beside the repository so that next to nothing is compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", REPOSITORY / "target" / "release"))
ENVIRONMENT = os.environ | {"CARGO_TARGET_DIR": str(LIBRARIES.parent), "CARGO_NET_OFFLINE": "true"}

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def run() -> Run:
    """Runs a command."""

    def run(
        *command: str | Path, cwd: Path | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        environment = ENVIRONMENT | variables
        return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=900)

    return run


@pytest.fixture(scope="session")
def build(run: Run) -> Run:
    """Runs `python -m opsmith.build --release`, for which most is compiled, for the crate in a folder."""

    def build(crate: Path, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        manifest = crate / "Cargo.toml"
        command = [
            sys.executable,
            "-m",
            "opsmith.build",
            "--manifest-path",
            manifest,
            "--release",
            *arguments,
        ]
        return run(*command, **variables)

    return build


@pytest.fixture(scope="session")
def wheel(build: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    done = build(REPOSITORY / "examples" / "distances", "--out", folder)
    assert done.returncode == 0, done.stderr
    (made,) = folder.iterdir()
    assert done.stdout.startswith(f"{made}  ") and done.stdout.endswith(" MB\n")
    return made


@pytest.fixture(scope="session")
def installed(run: Run, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the wheel is installed in."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps", "--no-index"]
    done = run(*pip, "--target", folder, wheel)
    assert done.returncode == 0, done.stderr
    return folder
