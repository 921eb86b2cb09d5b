"""The programs of the guides are run, and what they print is compared."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
PROGRAM = Path(os.environ.get("OPSMITH_PROGRAM", REPOSITORY / "target" / "debug" / "opsmith"))
LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", REPOSITORY / "target" / "release"))


def blocks(page: str) -> list[tuple[str, str]]:
    """The blocks of code of a page, each with its language."""
    text = (REPOSITORY / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def run(command: str, folder: Path) -> str:
    """What the command prints, errors too. The program is found first."""
    path = os.pathsep.join([str(PROGRAM.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    variables = {
        "PATH": path,
        "CARGO_NET_OFFLINE": "true",
        "OPSMITH_CACHE_DIR": str(LIBRARIES.parent / "tests" / "jit"),
    }
    done = subprocess.run(
        ["sh", "-c", f"exec 2>&1\n{command}"],
        cwd=folder,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_author_is_told_what_a_check_prints(tmp_path: Path) -> None:
    page = blocks("author-guide.md")
    (program,) = [code for language, code in page if language == "python"]
    (table,) = [code for language, code in page if language == "text"]
    shutil.copy(LIBRARIES / "libzero_out.so", tmp_path)
    (tmp_path / "check.py").write_text(program, encoding="utf-8")
    assert run("python check.py", tmp_path).split() == table.split()
