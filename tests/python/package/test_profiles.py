"""How Cargo compiles authors' crates, and what it says when it fails: several places know it, and agree."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opsmith.jit import _errors
from opsmith.jit._crates import PROFILES

tomllib = pytest.importorskip("tomllib")

ROOT = Path(__file__).parents[3]


def settings(table: dict[str, Any], *above: str) -> Iterator[str]:
    """The settings of a profile, as the command line has them."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from settings(value, *above, key)
        else:
            yield ".".join([*above, key]) + "=" + json.dumps(value)


@pytest.mark.parametrize("name", PROFILES)
def test_crates_are_compiled_as_the_workspace_is(name: str) -> None:
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["profile"][name]
    own = set(settings(workspace))
    # What the workspace says of every crate from elsewhere: an author's may be what kernels are made of.
    elsewhere = {f'package.{crate}.opt-level="s"' for crate in ("pulp", "rayon-core", "serde_json")}
    assert set(PROFILES[name]) <= own | elsewhere


@pytest.mark.parametrize("name", PROFILES)
def test_the_program_says_the_same(name: str) -> None:
    source = (ROOT / "crates" / "opsmith-cli" / "src" / "build.rs").read_text()
    assert listed(source, name.upper()) == PROFILES[name]


def listed(source: str, name: str) -> tuple[str, ...]:
    """The texts of a constant in Rust."""
    found = re.search(rf"const {name}: [^=]*=\s*\[(.*?)\];", source, re.DOTALL)
    assert found
    return tuple(json.loads(f"[{found[1].strip().rstrip(',')}]"))


@pytest.mark.parametrize("name", ["SAYS_FULL", "SAYS_NO_NETWORK", "SAYS_OLD"])
def test_the_program_knows_the_same_failures(name: str) -> None:
    source = (ROOT / "crates" / "opsmith-cli" / "src" / "cargo.rs").read_text()
    assert listed(source, name) == getattr(_errors, f"_{name}")


def test_a_linker_that_has_no_room_is_killed() -> None:
    """It writes its output as memory: there is no error of the system's to be told."""
    said = "error: linking with `cc` failed: exit status: 1\n  = note: collect2: fatal error: "
    said += "ld terminated with signal 7 [Bus error], core dumped\n"
    told = _errors.known_problem(said, Path("/cache"))
    assert told is not None and told.startswith("the disk is full: no room for the build in /cache\n  → ")
