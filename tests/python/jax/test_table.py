"""The table of all frameworks, on JAX arrays: as they are and, where the shapes allow it, under `jax.jit`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import opsmith
import opsmith.jax
import pytest
from conftest import load
from framework import call, check_message
from table import Mistake, Row, mistakes, rows

DATA_DEPENDENT = {"NonZero"}
"""Ops whose answers have shapes that only the data tell."""


def to_numpy(array: Any) -> np.ndarray:
    """Back again."""
    assert isinstance(array, jax.Array)
    return np.asarray(array)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.id)
def test_answers(row: Row) -> None:
    row.check(map(to_numpy, call(load(row.library), row, jnp.asarray, opsmith.jax)))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.id)
def test_answers_under_jit(row: Row) -> None:
    arrays, structure = jax.tree.flatten([jax.tree.map(jnp.asarray, value) for value in row.inputs])

    @jax.jit
    def program(*leaves: jax.Array) -> list[jax.Array]:
        inputs = tuple(jax.tree.unflatten(structure, leaves))
        traced = Row(row.library, row.op, row.dtype, row.case, inputs, row.attrs, row.expected, row.exact)
        return call(load(row.library), traced, lambda x: x, opsmith.jax)

    if row.op in DATA_DEPENDENT:
        with pytest.raises(opsmith.UnimplementedError, match=f"{row.op}: .* depends on the data"):
            program(*arrays)
    else:
        row.check(map(to_numpy, program(*arrays)))


@pytest.mark.parametrize("mistake", mistakes(), ids=lambda mistake: mistake.id)
def test_mistakes(mistake: Mistake) -> None:
    library = load(mistake.library)
    with pytest.raises((jax.errors.JaxRuntimeError, opsmith.InvalidArgumentError)) as raised:
        call(library, mistake, jnp.asarray, opsmith.jax)
    check_message(library, mistake, raised.value)
