"""The table of all frameworks, on PyTorch tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import opsmith
import opsmith.torch
import pytest
import torch
from conftest import load
from framework import call, check_message
from table import BFLOAT16, Mistake, Row, mistakes, rows


def to_torch(array: np.ndarray) -> torch.Tensor:
    """A tensor of the same layout; PyTorch knows no negative strides, and no bfloat16 of NumPy's."""
    if any(stride < 0 for stride in array.strides):
        array = array.copy()
    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.asarray(array))


def to_numpy(tensor: Any) -> np.ndarray:
    """Back again."""
    assert isinstance(tensor, torch.Tensor)
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(BFLOAT16)
    return tensor.numpy()


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.id)
def test_answers(row: Row) -> None:
    row.check(map(to_numpy, call(load(row.library), row, to_torch, opsmith.torch)))


@pytest.mark.parametrize("mistake", mistakes(), ids=lambda mistake: mistake.id)
def test_mistakes(mistake: Mistake) -> None:
    library = load(mistake.library)
    with pytest.raises((RuntimeError, opsmith.InvalidArgumentError)) as raised:
        call(library, mistake, to_torch, opsmith.torch)
    check_message(library, mistake, raised.value)
