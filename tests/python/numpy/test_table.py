"""The table of all frameworks, on NumPy arrays."""

from __future__ import annotations

import numpy as np
import opsmith
import pytest
from conftest import library_path
from framework import call, check_message
from opsmith._library import definition_of
from table import OUTSIDE, Mistake, Row, mistakes, rows, size


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.id)
def test_answers(row: Row) -> None:
    outputs = call(opsmith.load(library_path(row.library)), row, lambda array: array)
    assert all(isinstance(output, np.ndarray | np.generic) for output in outputs)
    row.check(outputs)


@pytest.mark.parametrize("mistake", mistakes(), ids=lambda mistake: mistake.id)
def test_mistakes(mistake: Mistake) -> None:
    library = opsmith.load(library_path(mistake.library))
    with pytest.raises(opsmith.InvalidArgumentError) as raised:
        call(library, mistake, lambda array: array)
    check_message(library, mistake, raised.value)


def test_every_op_of_the_examples_is_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    listed = {row.op for row in rows()}
    for name in ("distances", "zero_out"):
        ops = {op.name for op in definition_of(opsmith.load(library_path(name))).ops}
        assert ops - OUTSIDE.keys() <= listed
    with capsys.disabled():
        print(f"\nthe table that every framework runs: {size()}")
