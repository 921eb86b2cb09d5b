"""Forward mode of the standard operators in graphs of the engine, against finite differences."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import opsmith
import pytest
from conftest import count
from operators import OPS
from table import Op

DIFFERENTIATED = [op for op in OPS if op.differentiated and op.orders > 1]
LARGEST = 400
"""Cases of more elements are left to the smaller ones."""
STEP = 1e-5


def floats(outputs: Any) -> list[Any]:
    """The outputs that have derivatives."""
    listed = outputs if isinstance(outputs, (tuple, list)) else [outputs]
    return [output for output in listed if "float" in str(output.dtype)]


def call(op: Op, given: list[Any], attributes: dict[str, Any]) -> list[Any]:
    """What the op gives of arrays, or of outputs of a graph."""
    function = getattr(opsmith.ops, op.name)
    return floats(function(given, **attributes) if op.listed else function(*given, **attributes))


@pytest.mark.parametrize("op", DIFFERENTIATED, ids=lambda op: op.name)
def test_forward_mode_is_that_of_finite_differences(op: Op) -> None:
    rng = np.random.default_rng(zlib.crc32(op.name.encode()))
    compared = 0
    for inputs, attributes in op.cases(rng, "float64"):
        given = list(inputs[0]) if op.listed else list(inputs)
        positions = list(range(len(given))) if op.listed else list(op.differentiated)
        at = [np.asarray(given[position]) for position in positions]
        if not all(np.isfinite(x).all() for x in at) or sum(x.size for x in at) > LARGEST:
            continue
        along = [rng.standard_normal(x.shape) for x in at]
        graph = opsmith.Graph()
        # Of every other case the graph knows no sizes.
        dims = [[None] * x.ndim if compared % 2 else list(x.shape) for x in at]
        xs = [graph.placeholder("float64", each) for each in dims]

        def moved(values: list[Any], given: list[Any] = given, positions: list[int] = positions) -> list[Any]:
            filled = list(given)
            for position, value in zip(positions, values, strict=True):
                filled[position] = value
            return filled

        ys = call(op, moved(xs), attributes)
        found = opsmith.Session(graph).run(opsmith.jvp(ys, xs, along), dict(zip(xs, at, strict=True)))
        up, down = (
            call(op, moved([x + by * t for x, t in zip(at, along, strict=True)]), attributes)
            for by in (STEP, -STEP)
        )
        for value, above, below in zip(found, up, down, strict=True):
            assert (value.dtype, value.shape) == (above.dtype, above.shape)
            # The largest of no numbers is no number, and does not change.
            is_finite = np.isfinite(above)
            assert not value[~is_finite].any()
            value, above, below = (np.where(is_finite, x, 0) for x in (value, above, below))
            slope = (np.asarray(above, "float64") - np.asarray(below, "float64")) / (2 * STEP)
            # Differences of a cast to another dtype are not as exact.
            tolerance = 1e-6 if value.dtype == np.float64 else 0.05
            np.testing.assert_allclose(value, slope, rtol=tolerance, atol=tolerance)
        compared += 1
    assert compared
    count("finite differences, in forward mode of graphs", compared)
