"""The program that comes with the package does what the program that is a file does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import opsmith
import pytest
from opsmith import __main__ as main

REPOSITORY = Path(__file__).parents[3]
PROGRAM = Path(os.environ.get("OPSMITH_PROGRAM", REPOSITORY / "target" / "debug" / "opsmith"))
LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", REPOSITORY / "target" / "release"))
LIBRARY = str(LIBRARIES / "libzero_out.so")
OTHER = str(LIBRARIES / "libgelu.so")
IN_PACKAGE = [sys.executable, "-m", "opsmith"]


def run(program: list[str], *arguments: str) -> tuple[int, str, str]:
    """Its exit status, and what it printed."""
    done = subprocess.run([*program, *arguments], capture_output=True, text=True, timeout=600, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--version",),
        ("--help",),
        ("inspect", LIBRARY),
        ("inspect", "--json", LIBRARY),
        ("compat", LIBRARY, LIBRARY),
        ("compat", LIBRARY, OTHER),
        ("inspect", str(REPOSITORY / "README.md")),
        ("inspect", "no/such/library.so"),
        ("no-such-command",),
        (),
    ],
    ids=" ".join,
)
def test_it_says_the_same(arguments: tuple[str, ...]) -> None:
    found, expected = run(IN_PACKAGE, *arguments), run([str(PROGRAM)], *arguments)
    assert found == expected
    assert found[1] or found[2]


def test_a_wrong_command_has_status_2() -> None:
    assert run(IN_PACKAGE, "no-such-command")[0] == 2


def test_a_new_crate_depends_on_the_clone_that_the_package_is_from(tmp_path: Path) -> None:
    assert run([*IN_PACKAGE, "new"], str(tmp_path / "my_ops"))[0] == 0
    origin = Path(main._installed_from())
    within = REPOSITORY in (origin, *origin.parents)
    wanted = {"path": str(REPOSITORY / "crates/opsmith")} if within else opsmith.__version__
    manifest = (tmp_path / "my_ops/Cargo.toml").read_text()
    line = next(line for line in manifest.splitlines() if line.startswith("opsmith = "))
    written = line.removeprefix("opsmith = ").replace("{ path =", '{ "path" :')
    assert json.loads(written) == wanted


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ('{"url": "file:///clone%20of/opsmith", "dir_info": {}}', "/clone of/opsmith"),
        ('{"url": "https://example.org/opsmith.git", "vcs_info": {}}', ""),
        ('{"url": 3}', ""),
        ("[]", ""),
        ("{", ""),
        (None, ""),
    ],
)
def test_where_pip_says_that_it_is_from(
    told: str | None, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Told:
        def read_text(self, name: str) -> str | None:
            return told

    monkeypatch.setattr(main.metadata, "distribution", lambda name: Told())
    assert main._installed_from() == found


def test_calls_are_made_in_a_process_of_its_own() -> None:
    status, said, wrong = run(IN_PACKAGE, "check", OTHER, "--op", "gelu", "--seed", "1")
    assert status == 0, said + wrong
    assert "gelu" in said


def test_an_interrupt_ends_it() -> None:
    process = subprocess.Popen(
        [*IN_PACKAGE, "check", LIBRARY], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    time.sleep(2.0)
    assert process.poll() is None, process.stdout and process.stdout.read()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) in (-signal.SIGINT, 130)
