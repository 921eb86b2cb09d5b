"""Every op of the example libraries in ONNX Runtime: bit by bit what it gives on NumPy's arrays."""

from __future__ import annotations

import opsmith.onnx
import pytest
from conftest import count, load
from models import check, definition
from op_samples import LIBRARIES, Sample, samples
from opsmith._library import definition_of
from table import OUTSIDE, Row, rows
from test_standard import OPS, RANDOM

SAMPLES = samples(LIBRARIES)
STANDARD = [
    definition(load("opsmith"), name).name
    for name in (*(op.name for op in OPS), *RANDOM)
    if definition(load("opsmith"), name).parallel is None
]
ELSEWHERE = {
    "opsmith": {
        "Pointwise": "its program is a graph's own; no node has it",
        "OverAxes": "its program is a graph's own; no node has it",
        **dict.fromkeys(STANDARD, "test_standard.py calls it"),
        **{
            f"{name}{order}": "test_standard.py calls it, or its op, whose kernel it shares"
            for name in STANDARD
            for order in ("Grad", "GradGrad")
        },
    },
    "zero_out": dict.fromkeys(OUTSIDE, "it has a test of its own"),
}
"""Ops that have no sample here, and why."""


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.id)
def test_the_table_of_all_frameworks(row: Row) -> None:
    library = load(row.library)
    check(library, row.library, definition(library, row.op), row.inputs, row.attrs)
    count("calls of the table of all frameworks are as on NumPy's arrays")


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.id)
def test_ops_with_free_axes(sample: Sample) -> None:
    file = "opsmith_ops" if sample.library == "opsmith" else sample.library
    check(load(sample.library), file, sample.op, sample.inputs, sample.attrs)
    count("ops with free axes are as on NumPy's arrays")


def test_every_op_of_the_examples_has_a_call_or_a_reason() -> None:
    called = {(row.library, row.op) for row in rows()} | {(one.library, one.op.name) for one in SAMPLES}
    for name in LIBRARIES:
        library = load(name)
        known = {op.name for op in definition_of(library).ops}
        left = opsmith.onnx.left_out(library)
        here = {op for file, op in called if file == name}
        missing = known - left.keys() - here - ELSEWHERE.get(name, {}).keys()
        assert not missing, (name, missing)
        count("ops that ONNX Runtime has", len(known - left.keys()))
        count("ops that are left out", len(left))
