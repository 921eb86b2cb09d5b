"""Every op of the example libraries in ONNX Runtime: bit by bit what it gives on NumPy's arrays."""

from __future__ import annotations

import numpy as np
import opsmith.onnx
import pytest
from conftest import count, load
from models import check, definition
from op_samples import LIBRARIES, Sample, samples
from opsmith._library import definition_of
from table import OUTSIDE, Row, rows

SAMPLES = samples(LIBRARIES)
WITHOUT_SAMPLES = {
    # Their own tests are in other files.
    "zero_out": set(OUTSIDE),
    "opsmith": {"Pointwise", "SparseToDense", "SparseToDenseGrad", "SparseToDenseGradGrad"},
}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.id)
def test_the_table_of_all_hosts(row: Row) -> None:
    library = load(row.library)
    check(library, row.library, definition(library, row.op), row.inputs, row.attrs)
    count("calls of the table of all hosts are as on NumPy's arrays")


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.id)
def test_ops_with_free_axes(sample: Sample) -> None:
    file = "opsmith_ops" if sample.library == "opsmith" else sample.library
    check(load(sample.library), file, sample.op, sample.inputs, sample.attrs)
    count("ops with free axes are as on NumPy's arrays")
