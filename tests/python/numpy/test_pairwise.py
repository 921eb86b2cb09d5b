"""Pairwise kernels that are written once: values against SciPy, accuracy, and bad input."""

from __future__ import annotations

import re

import numpy as np
import opsmith
import pytest
from conftest import library_path
from scipy.spatial.distance import cdist

METRICS = {
    "manhattan": "cityblock",
    "squared_euclidean": "sqeuclidean",
    "euclidean": "euclidean",
    "chebyshev": "chebyshev",
    "canberra": "canberra",
}
SIZES = [
    (1, 1, 1),
    (3, 4, 5),
    (20, 30, 40),
    (13, 200, 70),
    (200, 13, 129),
    (1, 300, 300),
    (65, 129, 1000),
    (0, 3, 4),
]


@pytest.fixture(scope="module")
def pairwise() -> opsmith.Library:
    """The example library."""
    return opsmith.load(library_path("pairwise"))


def points(rows: int, columns: int, seed: int) -> np.ndarray:
    """Normally distributed numbers."""
    return np.random.default_rng([seed, rows, columns]).standard_normal((rows, columns))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", SIZES)
def test_distances_are_scipys(pairwise: opsmith.Library, size: tuple[int, int, int], dtype: type) -> None:
    n, m, p = size
    x, y = points(n, p, 0).astype(dtype), points(m, p, 1).astype(dtype)
    for op, metric in METRICS.items():
        z = getattr(pairwise, op)(x, y)
        expected = cdist(x.astype(float), y.astype(float), metric)
        assert z.dtype == dtype
        np.testing.assert_allclose(z, expected, rtol=50 * np.finfo(dtype).eps, err_msg=op)


def test_strided_input(pairwise: opsmith.Library) -> None:
    x, y = points(8, 40, 2)[::2, 1::3], points(13, 5, 3).T
    np.testing.assert_allclose(pairwise.euclidean(x, y), cdist(x, y), rtol=1e-14)


def test_attributes_and_means(pairwise: opsmith.Library) -> None:
    x, y = points(20, 30, 4), points(25, 30, 5)
    differences = x[:, None] - y[None]
    np.testing.assert_allclose(pairwise.minkowski_power(x, y), (abs(differences) ** 3).sum(-1), rtol=1e-13)
    halves = pairwise.minkowski_power(x, y, order=0.5)
    np.testing.assert_allclose(halves, np.sqrt(abs(differences)).sum(-1), rtol=1e-13)
    np.testing.assert_allclose(pairwise.mean_squared(x, y), (differences**2).mean(-1), rtol=1e-13)


@pytest.mark.parametrize("size", [(3, 4, 5), (40, 30, 200)])
def test_gradients_are_those_of_numpy(pairwise: opsmith.Library, size: tuple[int, int, int]) -> None:
    n, m, p = size
    x, y, z_grad = points(n, p, 6), points(m, p, 7), points(n, m, 8)
    difference = x[:, None] - y[None]
    slopes = {"manhattan": np.sign(difference), "squared_euclidean": 2 * difference}
    slopes["euclidean"] = difference / cdist(x, y)[:, :, None]
    slopes["chebyshev"] = np.sign(difference) * (abs(difference) == abs(difference).max(-1, keepdims=True))
    for op, slope in slopes.items():
        # The gradient of a root reads it.
        read = [pairwise.euclidean(x, y)] if op == "euclidean" else []
        x_grad, y_grad = getattr(pairwise, f"{op}_grad")(x, y, *read, z_grad)
        terms = z_grad[:, :, None] * slope
        np.testing.assert_allclose(x_grad, terms.sum(1), rtol=1e-12, atol=1e-13, err_msg=op)
        np.testing.assert_allclose(y_grad, -terms.sum(0), rtol=1e-12, atol=1e-13, err_msg=op)


def test_infinities_and_nan(pairwise: opsmith.Library) -> None:
    x, y = points(15, 20, 9), points(16, 20, 10)
    x[0, 0], x[1, 1], y[2, 2], y[3, 1] = np.nan, np.inf, -np.inf, np.inf
    with np.errstate(invalid="ignore"):
        difference = abs(x[:, None] - y[None])
    np.testing.assert_allclose(pairwise.manhattan(x, y), difference.sum(-1), rtol=1e-14)
    np.testing.assert_allclose(pairwise.chebyshev(x, y), difference.max(-1), rtol=1e-14)


def test_an_untaken_division_by_zero_leaves_no_nan(pairwise: opsmith.Library) -> None:
    x = np.zeros((2, 20))
    x[1] = 1
    assert pairwise.canberra(x, x).tolist() == [[0, 20], [20, 0]]
    for grad in pairwise.canberra_grad(x, x, np.ones((2, 2))):
        assert np.isfinite(grad).all()


def test_bad_input(pairwise: opsmith.Library) -> None:
    x = points(3, 4, 11)
    with pytest.raises(opsmith.InvalidArgumentError, match=re.escape("Manhattan")):
        pairwise.manhattan(x, points(3, 5, 12))
    with pytest.raises(opsmith.InvalidArgumentError, match="rank at least 2"):
        pairwise.manhattan(x[0], x)
    with pytest.raises(opsmith.InvalidArgumentError, match="int64"):
        pairwise.manhattan(np.ones((2, 2), np.int64), np.ones((2, 2), np.int64))
    with pytest.raises(opsmith.InvalidArgumentError):
        pairwise.manhattan(x, x.astype(np.float32))
    assert pairwise.chebyshev(np.ones((2, 0)), np.ones((3, 0))).tolist() == [[-np.inf] * 3] * 2
    assert pairwise.manhattan(np.ones((2, 0)), np.ones((3, 0))).tolist() == [[0] * 3] * 2
