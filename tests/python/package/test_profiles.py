"""How Cargo is to compile authors' crates is said in three places, which agree."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
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
    listed = re.search(rf"const {name.upper()}: .*? = \[\n(.*?)\];", source, re.DOTALL)
    assert listed
    assert tuple(json.loads(f"[{listed[1].strip().rstrip(',')}]")) == PROFILES[name]
