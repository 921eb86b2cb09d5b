"""Threads that do everything at once, in one process with all frameworks: a short run of the attack."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", ROOT / "target" / "release"))


def test_threads_of_all_frameworks_leave_nothing_behind() -> None:
    command = [sys.executable, str(ROOT / "attacks" / "mixed_load.py"), str(LIBRARIES), "0.3"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr[-4000:]
    assert " jobs, 0 wrong" in told.stdout, told.stdout
