"""What the benchmarks build themselves, builds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
BENCHES = REPOSITORY / "benches"
LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", REPOSITORY / "target" / "release"))


def test_the_peer_in_rust() -> None:
    manifest, folder = BENCHES / "eager" / "Cargo.toml", LIBRARIES.parent / "eager"
    command = ["cargo", "check", "--quiet", "--locked", "--manifest-path", manifest, "--target-dir", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def run(script: str, *arguments: str | Path, **variables: str) -> None:
    """Run a script in which the modules of the benchmarks can be imported."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    folders = os.pathsep.join([str(BENCHES), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": folders, "PATH": programs, **variables}
    command = [sys.executable, "-c", f"import sys; from pathlib import Path\n{script}", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("source", ["peer", "lltm"])
def test_the_peers_in_cpp(source: str) -> None:
    script = "import cpp_peer; from harness import Options\n"
    run(script + "cpp_peer.load(Options(Path(sys.argv[1]), quick=True), sys.argv[2])", LIBRARIES, source)


@pytest.mark.parametrize("load", ["load_ours", "load_peer"])
def test_what_is_built_just_in_time(load: str, tmp_path: Path) -> None:
    script = (
        "import suite_jit\nsuite_jit.seconds(getattr(suite_jit, sys.argv[1]), Path(sys.argv[2]), shift=1)"
    )
    run(script, load, tmp_path, OPSMITH_CACHE_DIR=str(LIBRARIES.parent / "tests" / "jit"))
