"""The notebook runs as it is, and shows what it was kept with."""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[3]
TOUR = ROOT / "examples" / "tour.ipynb"
LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", ROOT / "target" / "release"))


def shown(cell: nbformat.NotebookNode) -> list[object]:
    """What a cell shows: of pictures and of what differs from run to run only of which kind it is."""
    varies = "varies" in cell.metadata.get("tags", [])
    kept: list[object] = []
    for output in cell.outputs:
        if output.output_type == "stream":
            # Builds tell their progress on the other stream, where they take long.
            if output.name == "stdout":
                kept.append(output.text)
            continue
        data = output.data
        if varies:
            kept.append(sorted(data))
            continue
        # A checkout has the library in a cache of its own, and objects have addresses.
        plain = re.sub(r"from '[^']*'|0x[0-9a-f]+", "", data["text/plain"])
        kept.append((plain, data.get("text/html"), data.get("image/svg+xml")))
    return kept


def test_the_tour_shows_what_it_was_kept_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(LIBRARIES.parent / "tests" / "jit"))
    kept = nbformat.read(TOUR, as_version=4)
    run = nbformat.read(TOUR, as_version=4)
    NotebookClient(run, timeout=900, kernel_name="python3").execute()
    cells = [(old, new) for old, new in zip(kept.cells, run.cells, strict=True) if old.cell_type == "code"]
    assert sum(bool(old.outputs) for old, _ in cells) == len(cells) - 1
    for old, new in cells:
        assert shown(new) == shown(old), new.source
