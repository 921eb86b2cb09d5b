"""The list of where features are: each link leads to a file that has what the link says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

LIST = Path(__file__).parents[3] / "docs" / "coverage.md"
TEXT = LIST.read_text(encoding="utf-8")
ROWS = [line.split(" | ") for line in TEXT.splitlines() if line.startswith("| ") and "| in |" not in line]
LINK = re.compile(r"\[((?:[^\]\[]|\[[^\]]*\])+)\]\(([^)#]+)(?:#([^)]+))?\)")


def heading(line: str) -> str:
    """A heading as a link leads to it."""
    words = re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower())
    return words.replace(" ", "-")


def lead(text: str, target: str, anchor: str | None) -> str | None:
    """What is wrong with a link."""
    path = (LIST.parent / target).resolve()
    if not path.is_file():
        return f"{target} is not there"
    content = path.read_text(encoding="utf-8")
    headings = [heading(line) for line in content.splitlines() if line.startswith("#")]
    if anchor is not None and anchor not in headings:
        return f"{target} has no heading `{anchor}`"
    word = text.strip("`") if text.startswith("`") else None
    if word is not None and not re.search(rf"(?<!\w){re.escape(word)}(?!\w)", content):
        return f"{target} does not have `{word}`"
    return None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip("| ")[:40])
def test_every_feature_is_where_the_list_says(row: list[str]) -> None:
    feature, sources, where = row
    assert set(sources.split()) <= set("GCPTJ"), f"{feature}: by {sources}"
    links = LINK.findall(where)
    assert links or "not there" in where, f"{feature} is nowhere"
    wrong = [lead(text, target, anchor or None) for text, target, anchor in links]
    assert not any(wrong), [each for each in wrong if each is not None]


def test_every_source_is_in_the_list() -> None:
    named = set(re.findall(r"\(([GCPTJ])\)", TEXT.split("\n## ", 1)[0]))
    assert named == set("GCPTJ") == {letter for _, sources, _ in ROWS for letter in sources.split()}
    assert len(ROWS) >= 45
