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


@pytest.mark.parametrize("source", ["peer", "lltm"])
def test_the_peers_in_cpp(source: str) -> None:
    script = (
        "import sys; from pathlib import Path; import cpp_peer; from harness import Options\n"
        f"cpp_peer.load(Options(Path(sys.argv[1]), quick=True), {source!r})\n"
    )
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": str(BENCHES), "PATH": programs}
    command = [sys.executable, "-c", script, str(LIBRARIES)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
