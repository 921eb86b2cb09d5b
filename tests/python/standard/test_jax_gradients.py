"""Forward and reverse mode of the standard operators in JAX, to the second order, by JAX's own checker."""

from __future__ import annotations

import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import opsmith
import pytest
from conftest import count
from jax.test_util import check_grads
from operators import OPS
from table import Op

DIFFERENTIATED = [op for op in OPS if op.differentiated]
LARGEST = 60
"""Cases of more elements are left to the smaller ones."""
TWO_ORDERS = {"mat_mul", "cum_prod", "cum_max", "cum_min", "conv", "max_pool", "einsum"}
"""Not linear, and without a third."""
CASES = 2
"""How many of an operator."""


@pytest.mark.parametrize("op", DIFFERENTIATED, ids=lambda op: op.name)
def test_both_modes_are_those_of_finite_differences(ops: opsmith.Library, op: Op) -> None:
    rng = np.random.default_rng(zlib.crc32(op.name.encode()))
    checked = 0
    for inputs, attributes in op.cases(rng, "float64"):
        given = list(inputs[0]) if op.listed else list(inputs)
        positions = range(len(given)) if op.listed else op.differentiated
        # Lists are part of the program: shapes may follow from them.
        given = [x.tolist() if getattr(x, "dtype", None) == "int64" else x for x in given]
        at = tuple(np.asarray(given[position]) for position in positions)
        if not all(np.isfinite(x).all() and x.size for x in at) or sum(x.size for x in at) > LARGEST:
            continue

        def of(*values: Any, given: Any = given, positions: Any = positions, attrs: Any = attributes) -> Any:
            filled = list(given)
            for position, value in zip(positions, values, strict=True):
                filled[position] = jnp.asarray(value)
            function = getattr(ops, op.name)
            outputs = jax.tree.leaves(function(filled, **attrs) if op.listed else function(*filled, **attrs))
            # Numbers of 16 and 32 bits are not exact enough for differences.
            return [y.astype(float) for y in outputs if jnp.issubdtype(y.dtype, jnp.floating)]

        with jax.enable_x64(True):
            # Forward mode of forward mode takes a third order of what is not linear.
            modes = ["rev"] if op.name in TWO_ORDERS else ["fwd", "rev"]
            check_grads(of, at, order=min(op.orders, 2), modes=modes, atol=1e-4, rtol=1e-4)
            check_grads(of, at, order=1, modes=["fwd"], atol=1e-4, rtol=1e-4)
        checked += 1
        count("JAX's check_grads in both modes")
        if checked == CASES:
            break
    assert checked


def test_what_cannot_be_traced_says_so(ops: opsmith.Library) -> None:
    # A shape that is part of the program is known; one that is traced is not.
    def traced(x: jax.Array) -> jax.Array:
        return jax.jit(lambda x, shape: ops.sum_to(x, shape))(x, jnp.array([1]))

    with pytest.raises(opsmith.UnimplementedError, match="depends on the data, so the op cannot be traced"):
        jax.jvp(traced, (jnp.ones(3),), (jnp.ones(3),))
