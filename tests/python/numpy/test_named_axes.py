"""Random bodies over named axes against NumPy: values wherever the numbers lie, and finite differences."""

from __future__ import annotations

from typing import Any

import axes_bodies
import numpy as np
import opsmith
import pytest
from numpy.typing import NDArray

BODIES = axes_bodies.bodies()
LARGE = {"i": 130, "j": 5, "k": 37, "l": 3}


@pytest.fixture(scope="module")
def library() -> opsmith.Library:
    """All random bodies."""
    return axes_bodies.build()


def outputs(result: Any) -> list[NDArray[np.float64]]:
    """One or several."""
    return list(result) if isinstance(result, tuple) else [result]


def scattered(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same numbers, elsewhere: every second element backwards of a transposed array."""
    large = np.zeros([2 * size for size in reversed(array.shape)])
    view = large.T[tuple(slice(None, None, -2) for _ in array.shape)]
    view[...] = array
    return view


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.name)
def test_a_body_is_numpys(body: axes_bodies.Body, library: opsmith.Library) -> None:
    """At large sizes, of arrays in order and scattered ones, and in float32."""
    op, inputs = getattr(library, body.name), body.numbers(LARGE, 2)
    expected = body.expected(axes_bodies.Arrays(LARGE, np), inputs)
    for own, other, last in zip(
        outputs(op(*inputs)), outputs(op(*map(scattered, inputs))), expected, strict=True
    ):
        np.testing.assert_allclose(own, last, rtol=1e-9, atol=1e-9)
        # Folded in another order: which axis the lanes are along depends on where numbers lie side by side.
        np.testing.assert_allclose(other, last, rtol=1e-9, atol=1e-9)


def smooth(body: axes_bodies.Body) -> bool:
    """Whether a small change of a number makes no large one of a result."""
    return "select" not in body.rust


@pytest.mark.parametrize("body", [body for body in BODIES if smooth(body)], ids=lambda body: body.name)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_half_and_single_precision(body: axes_bodies.Body, dtype: str, library: opsmith.Library) -> None:
    """What is computed in float32 is that of the rounded numbers in float64, but for rounding."""
    op, inputs = getattr(library, body.name), [x.astype(dtype) for x in body.numbers(LARGE, 2)]
    expected = outputs(op(*[x.astype(np.float64) for x in inputs]))
    scale = 2e-5 if dtype == "float32" else 2e-3
    for own, other in zip(outputs(op(*inputs)), expected, strict=True):
        assert own.dtype == dtype
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(own, other.astype(dtype), rtol=scale, atol=50 * scale)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.name)
def test_a_gradient_is_that_of_finite_differences(body: axes_bodies.Body, library: opsmith.Library) -> None:
    """Along a random direction."""
    op, gradient = getattr(library, body.name), getattr(library, f"{body.name}_grad")
    generator, sizes = np.random.default_rng(3), axes_bodies.SIZES
    inputs = body.numbers(sizes, 4)
    weights = [np.asarray(generator.uniform(-1, 1, z.shape)) for z in outputs(op(*inputs))]
    directions = [np.asarray(generator.uniform(-1, 1, x.shape)) for x in inputs]

    def along(step: float) -> float:
        moved = [x + step * d for x, d in zip(inputs, directions, strict=True)]
        return float(sum((w * z).sum() for w, z in zip(weights, outputs(op(*moved)), strict=True)))

    h = 1e-5
    expected = (8 * (along(h) - along(-h)) - (along(2 * h) - along(-2 * h))) / (12 * h)
    gradients = outputs(gradient(*axes_bodies.taken(op, gradient, inputs, weights)))
    actual = sum((g * d).sum() for g, d in zip(gradients, directions, strict=True))
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)


def test_empty_axes(library: opsmith.Library) -> None:
    """Folds of nothing have their identity, as in NumPy, where that has one."""
    for body in BODIES[:50]:
        for empty in body.inputs["x"]:
            sizes = axes_bodies.SIZES | {empty: 0}
            inputs = body.numbers(sizes, 5)
            with np.errstate(all="ignore"):
                try:
                    expected = body.expected(axes_bodies.Arrays(sizes, np), inputs)
                except ValueError:  # NumPy has no largest number of none
                    expected = None
            actual = outputs(getattr(library, body.name)(*inputs))
            for own, other in zip(actual, expected or actual, strict=True):
                np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-9)
