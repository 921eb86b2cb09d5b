"""Every standard operator in ONNX Runtime, on the cases of its own tests: bit by bit as on NumPy's arrays."""

from __future__ import annotations

import importlib.util
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import count, load
from models import check, definition


def _table() -> Any:
    """The table of `tests/python/standard`, which has the name of another one."""
    path = Path(__file__).parents[1] / "standard" / "table.py"
    spec = importlib.util.spec_from_file_location("standard_table", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


OPS = _table().OPS
MOST = {"float32": 12, "int64": 12, "bool": 12}
"""Cases of an op and dtype: the first ones, and fewer of all other dtypes."""


@pytest.mark.parametrize(
    ("op", "dtype"), [(op, dtype) for op in OPS for dtype in op.dtypes], ids=lambda x: getattr(x, "name", x)
)
def test_values_are_as_on_arrays(op: Any, dtype: str) -> None:
    library = load("opsmith")
    known = definition(library, op.name)
    rng = np.random.default_rng(zlib.crc32(f"{op.name} {dtype}".encode()))
    for position, (inputs, attrs) in enumerate(op.cases(rng, dtype)):
        if position == MOST.get(dtype, 3):
            break
        check(library, "opsmith_ops", known, inputs, attrs)
        count("calls of standard operators are as on NumPy's arrays")
