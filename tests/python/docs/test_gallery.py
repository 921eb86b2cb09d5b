"""The gallery's pictures are those that its program draws, and the page shows each."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", ROOT / "target" / "release"))
PAGE = ROOT / "docs" / "operators" / "gallery.md"
KEPT = ROOT / "docs" / "images" / "gallery"
MOST_BYTES = 48_000


def words(picture: Path) -> list[str]:
    """The texts of a picture; its curves may differ in the last digits between machines."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", picture.read_text(encoding="utf-8"))


def test_every_picture_is_drawn_kept_and_shown(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "gallery.py")]
    command += ["--libraries", str(LIBRARIES), "--draw", str(tmp_path)]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout.split()
    shown = re.findall(r"\(\.\./images/gallery/(\w+)\.svg\)", PAGE.read_text(encoding="utf-8"))
    kept = sorted(path.stem for path in KEPT.iterdir())
    assert shown == printed
    assert kept == sorted(printed)
    for name in printed:
        drawn = tmp_path / f"{name}.svg"
        assert words(drawn) == words(KEPT / f"{name}.svg") != []
        assert (KEPT / f"{name}.svg").stat().st_size <= MOST_BYTES
