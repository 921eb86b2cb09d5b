"""The guides are followed word for word: commands, programs, changes of files, and what is printed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
PROGRAM = Path(os.environ.get("OPSMITH_PROGRAM", REPOSITORY / "target" / "debug" / "opsmith"))
LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", REPOSITORY / "target" / "release"))


def blocks(page: str) -> list[tuple[str, str]]:
    """The blocks of code of a page, each with its language."""
    text = (REPOSITORY / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def run(command: str, folder: Path) -> str:
    """What the command prints, errors too. It builds beside the repository, so that little is compiled."""
    path = os.pathsep.join([str(PROGRAM.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    variables = {
        "PATH": path,
        "CARGO_NET_OFFLINE": "true",
        "OPSMITH_CACHE_DIR": str(LIBRARIES.parent / "tests" / "jit"),
    }
    # What is built lies where the page says, wherever the one who runs the tests keeps such things.
    inherited = {name: value for name, value in os.environ.items() if name != "CARGO_TARGET_DIR"}
    done = subprocess.run(
        ["sh", "-c", f"exec 2>&1\n{command}"],
        cwd=folder,
        env=inherited | variables,
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def assert_shown(shown: list[str], printed: str) -> None:
    """Each line that the page shows was printed, in that order; sizes and times may be others."""
    lines = iter(printed.splitlines())
    for line in shown:
        pattern = re.sub(r"\d+\\\.\d+(?=\\ MB|s\b)", ".*", re.escape(line.rstrip()))
        assert any(re.fullmatch(pattern, other.rstrip()) for other in lines), f"{line}\n---\n{printed}"


def follow(console: str, folder: Path) -> Path:
    """Run the commands of a block and compare; gives the folder they end in."""
    for part in console.removeprefix("$ ").split("\n$ "):
        command, *shown = part.rstrip("\n").split("\n")
        if command.startswith("cd "):
            folder = folder / command.removeprefix("cd ")
        else:
            assert_shown(shown, run(command, folder))
    return folder


def test_the_first_op_is_made_as_the_guide_says(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    # A build for debugging shares what it depends on with the other tests.
    page = [
        (language, code.replace("build --release\n", "build\n").replace("target/release", "target/debug"))
        for language, code in blocks("first-op.md")
    ]
    (make, test, build, use, check, use_quickly) = [code for language, code in page if language == "console"]
    shown, op, test_of_op = [code for language, code in page if language == "rust"]
    try_it, quick = [code for language, code in page if language == "python"]

    crate = follow(make, tmp_path)
    shutil.copy(REPOSITORY / "Cargo.lock", crate)
    (crate / "target").symlink_to(PROGRAM.parents[1])
    source, tests = crate / "src" / "lib.rs", crate / "src" / "tests.rs"
    before = source.read_text(encoding="utf-8")
    assert shown in before
    changed, count = re.subn(r"^opsmith::library!.*\n", lambda _: op, before, flags=re.MULTILINE)
    assert count == 1
    source.write_text(changed, encoding="utf-8")
    tests.write_text(f"{tests.read_text(encoding='utf-8')}\n{test_of_op}", encoding="utf-8")
    follow(test, crate)
    follow(build, crate)
    (crate / "try_it.py").write_text(try_it, encoding="utf-8")
    follow(use, crate)
    follow(check, crate)
    (crate / "quick.py").write_text(quick, encoding="utf-8")
    follow(use_quickly, crate)


def test_the_author_is_told_what_a_check_prints(tmp_path: Path) -> None:
    page = blocks("author-guide.md")
    (program,) = [code for language, code in page if language == "python"]
    (table,) = [code for language, code in page if language == "text"]
    shutil.copy(LIBRARIES / "libzero_out.so", tmp_path)
    (tmp_path / "check.py").write_text(program, encoding="utf-8")
    assert run("python check.py", tmp_path).split() == table.split()
