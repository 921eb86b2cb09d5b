"""How things show themselves in notebooks: small tables and plain text, all of it escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from opsmith._definition import Op
from opsmith._docs import items, summary


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a title, aligned to the left as text is."""
    lines = [_row("th", head), *(_row("td", row) for row in rows)]
    return f"<table><caption>{escape(title)}</caption>{''.join(lines)}</table>"


def text(shown: str) -> str:
    """Text of a fixed width."""
    return f"<pre>{escape(shown)}</pre>"


def hidden(title: str, shown: str) -> str:
    """Text of a fixed width that is seen when the title is clicked."""
    return f"<details><summary>{escape(title)}</summary>{text(shown)}</details>"


def library(title: str, ops: Iterable[tuple[str, Op]]) -> str:
    """The ops of a library, each with what it takes and returns."""
    rows = []
    for name, each in ops:
        listed = items(each)
        taken = ", ".join(item.name for item in listed if item.role != "output")
        given = ", ".join(item.name for item in listed if item.role == "output")
        rows.append((f"{name}({taken}) → {given}", summary(each)))
    return table(title, ("op", ""), rows)


def op(name: str, definition: Op) -> str:
    """What an op computes, takes and returns."""
    rows = [
        (item.role, item.name, ", ".join(item.facts), " ".join(item.doc.split()))
        for item in items(definition)
    ]
    said = summary(definition)
    paragraph = f"<p>{escape(said)}</p>" if said else ""
    return paragraph + table(name, ("", "name", "what it is", ""), rows)


def _row(cell: str, values: Sequence[object]) -> str:
    cells = (f'<{cell} style="text-align:left">{escape(str(value))}</{cell}>' for value in values)
    return f"<tr>{''.join(cells)}</tr>"
