"""The library of this example: `ops.lltm` and its gradient, in whatever framework the arguments are of."""

from __future__ import annotations

import os
from pathlib import Path

import opsmith

FOLDER = Path(os.environ.get("OPSMITH_LIB_DIR", Path(__file__).parents[2] / "target" / "release"))

ops = opsmith.load(FOLDER / "liblltm.so")
