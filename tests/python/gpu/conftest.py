"""The programs that look at a card, on a machine without one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAMS = ROOT / "gpu"
LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", ROOT / "target" / "release"))

sys.path.insert(0, str(PROGRAMS))


@pytest.fixture(scope="session")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with some of the libraries: for what takes long with each."""
    folder = tmp_path_factory.mktemp("libraries")
    for name in ("distances", "example", "gelu"):
        (folder / f"lib{name}.so").symlink_to(LIBRARIES / f"lib{name}.so")
    return folder
