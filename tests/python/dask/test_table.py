"""The table of all frameworks, on Dask's arrays in uneven chunks."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import opsmith
import pytest
from conftest import load
from framework import call, check_message
from table import Mistake, Row, mistakes, rows


def in_chunks(array: np.ndarray) -> Any:
    """Two chunks along each dim, where it is longer than 1."""
    return da.from_array(array, chunks=tuple(max(1, (size + 1) // 2) for size in array.shape))


def to_numpy(output: Any, row: Row) -> np.ndarray:
    """The computed array, which is what was told of it before."""
    if not row.inputs:
        return np.asarray(output)
    assert isinstance(output, da.Array)
    computed = output.compute()
    assert (computed.dtype, computed.ndim) == (output.dtype, output.ndim)
    assert np.isnan(output.shape).any() or computed.shape == output.shape
    return np.asarray(computed)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.id)
def test_answers(row: Row) -> None:
    row.check(to_numpy(output, row) for output in call(load(row.library), row, in_chunks))


@pytest.mark.parametrize("mistake", mistakes(), ids=lambda mistake: mistake.id)
def test_mistakes(mistake: Mistake) -> None:
    library = load(mistake.library)
    with pytest.raises(opsmith.InvalidArgumentError) as raised:
        for output in call(library, mistake, in_chunks):
            output.compute()
    check_message(library, mistake, raised.value)
