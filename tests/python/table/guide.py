"""Runs the programs of `docs/frameworks.md` as they are written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).parents[3] / "docs" / "frameworks.md"
MAX_LINES = 10


def run_program(section: str, library: Path, folder: Path) -> str:
    """Run the first program of a section that has no package of ours, where a crate's author would; gives
    what it prints."""
    text = GUIDE.read_text(encoding="utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    programs = (block.split("```")[0] for block in text.split("```python\n")[1:])
    program = next(program for program in programs if "import opsmith" not in program)
    assert len(program.strip().splitlines()) <= MAX_LINES
    built = folder / "target" / "release"
    built.mkdir(parents=True)
    (built / library.name).symlink_to(library)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
