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
from opsmith.onnx._attributes import DTYPES


def _module(name: str) -> Any:
    """A module of `tests/python/standard`, of which one has the name of another one here."""
    path = Path(__file__).parents[1] / "standard" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"standard_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    own, sys.modules["table"] = sys.modules.get("table"), sys.modules.get("standard_table", module)
    spec.loader.exec_module(module)
    del sys.modules["table"]
    if own is not None:
        sys.modules["table"] = own
    return module


_module("table")
OPS = _module("operators").OPS
MOST = {"float32": 12, "int64": 12, "bool": 12}
"""Cases of an op and dtype: the first ones, and fewer of all other dtypes."""


@pytest.mark.parametrize(
    ("op", "dtype"),
    [(op, dtype) for op in OPS for dtype in op.dtypes if dtype in DTYPES],
    ids=lambda x: getattr(x, "name", x),
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


SEED = [np.int64(7), np.int64(3)]
RANDOM = {
    "random_bits": ([5, 3], *SEED),
    "random_uniform": ([5, 3], *SEED),
    "random_normal": ([5, 3], *SEED),
    "random_bernoulli": (np.linspace(0, 1, 12), *SEED),
    "dropout": (np.linspace(-1, 1, 12), *SEED),
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_are_as_on_arrays(name: str) -> None:
    library = load("opsmith")
    check(library, "opsmith_ops", definition(library, name), RANDOM[name], {})
    count("calls of standard operators are as on NumPy's arrays")


WITHOUT_FREE_AXES = [
    op for op in OPS if op.differentiated and definition(load("opsmith"), op.name).parallel is None
]


@pytest.mark.parametrize("op", WITHOUT_FREE_AXES, ids=lambda op: op.name)
def test_gradients_are_as_on_arrays(op: Any) -> None:
    """Of ops that have no samples by free axes; gradients need not be exported, but nodes may be written."""
    library, rng = load("opsmith"), np.random.default_rng(0)
    inputs, attrs = next(iter(op.cases(rng, "float64")))
    known = definition(library, op.name)
    while known.gradient is not None:
        result = getattr(library, known.snake_name)(*inputs, **attrs)
        outputs = [result] if len(known.outputs) == 1 else list(result)
        groups = {"input": inputs, "output": outputs, "output_gradient": [_like(x, rng) for x in outputs]}
        inputs = [groups[kind][position] for kind, position in known.gradient.inputs]
        known = definition(library, known.gradient.op)
        check(library, "opsmith_ops", known, inputs, attrs)
        count("calls of standard operators are as on NumPy's arrays")


def _like(value: Any, rng: np.random.Generator) -> Any:
    if isinstance(value, list | tuple):
        return [_like(each, rng) for each in value]
    return np.asarray(rng.normal(size=np.shape(value)))
