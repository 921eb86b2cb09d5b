"""The programs that look at a card, on a machine without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAMS = ROOT / "gpu"
LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", ROOT / "target" / "release"))

sys.path.insert(0, str(PROGRAMS))


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the libraries of the workspace: beside them, other suites build crates of their own."""
    folder = tmp_path_factory.mktemp("built")
    command = ["cargo", "metadata", "--no-deps", "--offline", "--format-version", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    targets = [target for package in json.loads(done.stdout)["packages"] for target in package["targets"]]
    for target in targets:
        library = LIBRARIES / f"lib{target['name'].replace('-', '_')}.so"
        if "cdylib" in target["crate_types"] and library.exists():
            (folder / library.name).symlink_to(library)
    return folder


@pytest.fixture(scope="session")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with some of the libraries: for what takes long with each."""
    folder = tmp_path_factory.mktemp("libraries")
    for name in ("distances", "example", "gelu"):
        (folder / f"lib{name}.so").symlink_to(LIBRARIES / f"lib{name}.so")
    return folder
