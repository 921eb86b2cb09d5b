"""Gives what makes wheels `pyproject.toml` files that are damaged.

Each is the metadata of a package, which has its fields and no others, or a `BuildError`.

Run it with nothing else: `python attacks/damaged_projects.py [NUMBER [SEED]]`.
"""

from __future__ import annotations

import email
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import opsmith
from opsmith.build import _metadata
from opsmith.build._crate import Crate

PROJECT = """[project]
name = "my-ops"
version = "1.2.3"
description = "Operators."
authors = [{name = "A. Author", email = "a@example.org"}, {email = "b@example.org"}]
maintainers = [{name = "M"}]
keywords = ["tensor", "operators"]
license = "MIT"
license-files = ["LICENSE*"]
readme = "README.md"
classifiers = ["Programming Language :: Rust"]
requires-python = ">=3.10"
dependencies = ["numpy>=1.26 ; python_version > '3.9'", "opsmith"]

[project.optional-dependencies]
torch = ["torch>=2.10"]

[project.urls]
Homepage = "https://example.org"
"""
PACKAGE = {
    "name": "my_ops",
    "version": "0.1.0-beta.2",
    "description": "Operators.\nMany.",
    "authors": ["A. Author <a@example.org>"],
    "keywords": ["tensor"],
    "homepage": None,
    "repository": "https://example.org",
    "documentation": None,
    "license": "MIT",
    "license_file": None,
    "readme": None,
}
BITS = [
    "[",
    "]",
    "{",
    "}",
    '"',
    "'",
    "=",
    ",",
    "\n",
    "\\n",
    "\\r\\nName: other",
    "\\u0000",
    "\\u2028",
    "1",
    "true",
]
BITS += ["..", "/etc/passwd", "*", "**/*", " ", ".", "é", "\\ud800", "[" * 5000, "a = " + "[" * 40 + "]" * 40]


def changed(text: str, rng: random.Random) -> str:
    """The text with up to three changes."""
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.randrange(12))
        if rng.random() < 0.3:
            lines = text.splitlines(keepends=True)
            rng.shuffle(lines)
            text = "".join(lines[: rng.randrange(len(lines) + 1)])
        elif rng.random() < 0.5:
            text = text[:at] + text[end:]
        else:
            text = text[:at] + rng.choice(BITS) + text[end:]
    return text


def of_project(folder: Path, rng: random.Random) -> str:
    """What comes of a project that is damaged: `package` or `refused`, else what is wrong."""
    text = changed(PROJECT, rng)
    (folder / "pyproject.toml").write_text(text, encoding="utf-8", errors="replace")
    try:
        made = _metadata.read(Crate(folder, folder, PACKAGE))
        read = email.message_from_string(made.text())
    except opsmith.Error:
        return "refused"
    except Exception as error:
        return f"{type(error).__name__}: {error}, of {text!r}"
    known = {"Metadata-Version", "Name", "Version", *(name for name, _ in made.fields)}
    same = read["Name"] == made.name and read["Version"] == made.version and not read.defects
    return "package" if same and set(read.keys()) == known else f"other metadata: {read.items()}, of {text!r}"


def outcomes(folder: Path, number: int, seed: int) -> Iterator[str]:
    """What came of each."""
    rng = random.Random(seed)
    (folder / "README.md").write_text("Read me.\n")
    (folder / "LICENSE").write_text("Do what you like.\n")
    for _ in range(number):
        yield of_project(folder, rng)


def main() -> int:
    """Show what went wrong; the status says whether nothing did."""
    number, seed = [*map(int, sys.argv[1:]), *[1000, 1][len(sys.argv) - 1 :]]
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for outcome in outcomes(Path(folder), number, seed):
            is_well = outcome in ("package", "refused")
            counts[outcome if is_well else "wrong"] += 1
            if not is_well:
                print(outcome[:300])
    kinds = [f"{counts[kind]} {kind}" for kind in ("package", "refused", "wrong")]
    print(f"{number} projects: {', '.join(kinds)}")
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
