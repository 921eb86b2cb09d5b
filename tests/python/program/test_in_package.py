"""The program that comes with the package does what the program that is a file does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote

import opsmith
import pytest
from opsmith import __main__ as main

REPOSITORY = Path(__file__).parents[3]
PROGRAM = Path(os.environ.get("OPSMITH_PROGRAM", REPOSITORY / "target" / "debug" / "opsmith"))
LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", REPOSITORY / "target" / "release"))
LIBRARY = str(LIBRARIES / "libzero_out.so")
FAULTY = str(LIBRARIES / "libopsmith_faulty.so")
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
    told = json.loads(metadata.distribution("opsmith").read_text("direct_url.json") or "{}")
    origin = Path(unquote(told.get("url", "").removeprefix("file://")))
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
        ('{"url": "file:///clone/opsmith", "vcs_info": {}}', ""),
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


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that others can look into, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_wheel_among_what_others_wrote_is_no_clone(open_folder: Path) -> None:
    planted = open_folder / "crates/opsmith"
    planted.mkdir(parents=True)
    (planted / "Cargo.toml").write_text('[package]\nname = "opsmith"\n')
    planted.chmod(0o777)
    program = f"""
import sys
from opsmith import _native
sys.exit(_native.run_program([], {str(open_folder / "opsmith.whl")!r}, sys.argv[1:]))
"""
    status, _, wrong = run([sys.executable, "-c", program], "new", str(open_folder / "my_ops"))
    assert status == 2
    assert f"others than you can write to {planted}" in wrong
    assert not (open_folder / "my_ops").exists()


def test_calls_are_made_in_a_process_of_its_own() -> None:
    status, said, wrong = run(IN_PACKAGE, "check", FAULTY, "--op", "ends_on_empty", "--property", "empty")
    assert status == 1, said + wrong
    assert "SIGABRT" in said


def test_a_python_that_does_not_say_which_it_is() -> None:
    program = """
import sys
sys.executable = None
from opsmith import __main__
sys.exit(__main__.main())
"""
    embedded = [sys.executable, "-c", program]
    assert run(embedded, "--version") == run(IN_PACKAGE, "--version")
    status, _, wrong = run(embedded, "check", OTHER, "--op", "gelu")
    assert status == 2
    assert "Python does not say which program it is" in wrong


def test_a_panic_has_the_status_of_one() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*IN_PACKAGE, "inspect", "no.so"], stderr=full, timeout=600, check=False)
    assert done.returncode == 2


@pytest.mark.parametrize("ignored", [False, True])
def test_an_interrupt_ends_it_unless_interrupts_are_ignored(ignored: bool) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.SIG_DFL)
    process = subprocess.Popen(
        [*IN_PACKAGE, "check", LIBRARY, "--cases", "100000"], stdout=subprocess.DEVNULL
    )
    signal.signal(signal.SIGINT, before)
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while not any(Path("/proc").glob(f"{child}/exe") for child in children.read_text().split()):
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        if ignored:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(timeout=2)
        else:
            assert process.wait(timeout=5) == -signal.SIGINT
    finally:
        process.kill()
        process.wait()
