"""Just-in-time builds in a cache of these tests' own, whose compiled dependencies are kept between runs.

The dependencies are those of the cache that other suites use.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import opsmith
import pytest
from opsmith import jit

ROOT = Path(__file__).parents[3]
LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", ROOT / "target" / "release"))
SHARED = LIBRARIES.parent / "tests" / "jit"
CACHE = LIBRARIES.parent / "tests" / "jit-package"

# Compiled in a fraction of a second; `VALUE` tells one library from another.
SOURCE = """
/// Adds VALUE to each number.
#[op(shape = "(n)->(n)")]
fn shifted(x: ArrayView1<f64>, mut y: ArrayViewMut1<f64>) {
    azip!((y in &mut y, &x in &x) *y = x + VALUE);
}
"""


def source(value: float) -> str:
    """A source with an op that adds `value`."""
    return SOURCE.replace("VALUE", repr(float(value)))


def added(library: opsmith.Library) -> float:
    """What the library's op adds."""
    return float(library.shifted(np.zeros(1))[0])


def link_dependencies(cache: Path) -> None:
    """Give a cache the dependencies of the shared one, and its locks: whoever compiles them holds one."""
    for part in ["dependencies", "crates", "locks"]:
        (SHARED / part).mkdir(parents=True, exist_ok=True)
        place = cache / part
        # A link of a folder that was moved is there, though what it leads to is not.
        if place.is_symlink() and place.readlink() != SHARED / part:
            place.unlink()
        if not place.exists():
            place.symlink_to(SHARED / part)


@pytest.fixture(scope="session")
def dependencies() -> Path:
    """The cache, with the dependencies compiled and no libraries."""
    for part in ["libraries", "inputs", "sources", "building"]:
        shutil.rmtree(CACHE / part, ignore_errors=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    link_dependencies(CACHE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPSMITH_CACHE_DIR", str(CACHE))
        jit.load_inline("first", source(0))
    return CACHE


@pytest.fixture
def cache(dependencies: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The cache, for this process and those it starts."""
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(dependencies))
    yield dependencies
    assert not list((dependencies / "building").glob("*")), "a build has left something"


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for a library that no other test has."""
    return re.sub("[^a-z0-9]+", "_", request.node.name.lower()).strip("_")


def child(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own, with `jit` and `source` there."""
    return subprocess.run(
        child_command(code),
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


def child_command(code: str) -> list[str]:
    """The command that runs `code`."""
    head = (
        f"from opsmith import jit\nsource = lambda value: {SOURCE!r}.replace('VALUE', repr(float(value)))\n"
    )
    return [sys.executable, "-c", head + code]


def failure(code: str, **environment: str) -> str:
    """The last exception of a process, which has to fail with one, and with an instruction."""
    done = child(code, **environment)
    assert done.returncode == 1, done
    _, mark, said = done.stderr.rpartition("opsmith.jit._errors.BuildError: ")
    assert mark, done.stderr
    assert "\n  → " in said, said
    return said
