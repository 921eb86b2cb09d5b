"""Calls without memory, and with sizes that no memory has: errors, and not the end of the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import opsmith
import pytest
from conftest import LIBRARIES

ATTACK = Path(__file__).parents[3] / "attacks" / "exhausted_memory.py"
LONG = np.broadcast_to(np.int64(1), (1 << 40,))
X = np.ones((2, 3), np.float32)


def test_no_call_without_memory_ends_the_process() -> None:
    command = [sys.executable, str(ATTACK), str(LIBRARIES), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no memory" in done.stdout and "ok" in done.stdout, done.stdout


@pytest.mark.parametrize(
    ("function", "inputs", "name"),
    [
        (opsmith.ops.reshape, (X, LONG), "shape"),
        (opsmith.ops.broadcast_to, (X, LONG), "shape"),
        (opsmith.ops.sum_to, (X, LONG), "shape"),
        (opsmith.ops.fill, (LONG, X[0, 0]), "dims"),
        (opsmith.ops.slice, (X, LONG, LONG), "begin"),
    ],
)
def test_a_vector_with_a_number_for_each_dim_is_not_read_where_it_is_too_long(
    function: object, inputs: tuple[np.ndarray, ...], name: str
) -> None:
    said = rf"input `{name}` must be a vector of at most 254 numbers, .*, got shape \[1099511627776\]"
    with pytest.raises(opsmith.InvalidArgumentError, match=said):
        function(*inputs)


def test_what_is_wanted_and_how_many_bytes_is_said() -> None:
    row = np.broadcast_to(np.int64(1), (1, 1 << 56))
    said = "MatMul: cannot allocate 576460752303423488 bytes for a copy of the second factor"
    with pytest.raises(opsmith.ResourceExhaustedError, match=said):
        opsmith.ops.mat_mul(row, row.T)
    said = "Gather: .*cannot allocate a temporary of 576460752303423488 bytes"
    with pytest.raises(opsmith.ResourceExhaustedError, match=said):
        opsmith.ops.gather(X, row)


def test_lists_have_an_end() -> None:
    with pytest.raises(opsmith.InvalidArgumentError, match="`perm` must have at most 65536 elements"):
        opsmith.ops.transpose(X, iter(int, 1))
    with pytest.raises(opsmith.InvalidArgumentError, match="`xs` must be a list of at most 65536 tensors"):
        opsmith.ops.concat([X[0]] * 65537)
    with pytest.raises(opsmith.InvalidArgumentError, match="`program` must have at most 1048576 bytes"):
        opsmith.ops.pointwise([X], " " * (1 << 20) + " ", 1)
