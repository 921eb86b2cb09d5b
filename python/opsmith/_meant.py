"""What is meant by a name that is not known."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

_MOST_LISTED = 20
"""More names than this are not listed."""


def hint(name: str, known: Collection[str], have: str) -> str:
    """The end of a message: the nearest name, or all; `have` is what has the names, as in `it has`."""
    if close := get_close_matches(name, known, n=1):
        return f"did you mean `{close[0]}`?"
    return f"{have}: {', '.join(known)}" if len(known) <= _MOST_LISTED else f"{have} {len(known)} names"
