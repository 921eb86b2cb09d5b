"""The operators of `examples/kernels` against formulas of NumPy, in two dtypes, and special values."""

from __future__ import annotations

from types import SimpleNamespace

import kernel_formulas
import numpy as np
import opsmith
import pytest
from conftest import library_path

NUMPY = SimpleNamespace(
    exp=np.exp,
    log=np.log,
    sqrt=np.sqrt,
    sum=np.sum,
    amax=np.amax,
    amin=np.amin,
    sort=np.sort,
    numbers=np.asarray,
    plain=np.asarray,
)
FORMULAS = kernel_formulas.formulas(NUMPY)


@pytest.fixture(scope="module")
def kernels() -> opsmith.Library:
    """The example library."""
    return opsmith.load(library_path("kernels"))


@pytest.mark.parametrize("op", FORMULAS)
def test_values_are_numpys(kernels: opsmith.Library, op: str) -> None:
    formula = FORMULAS[op]
    numbers = formula.numbers()
    expected = formula.value(*numbers)
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 2e-5)):
        inputs = [array.astype(dtype) for array in numbers]
        actual = getattr(kernels, op)(*inputs, *formula.others, **formula.attrs)
        assert actual.dtype == dtype
        np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def test_many_pairs(kernels: opsmith.Library) -> None:
    """At sizes that fill tiles and leave remainders, in float32."""
    generator = np.random.default_rng(1)
    x, y, b = (
        generator.standard_normal(shape).astype(np.float32) for shape in ((307, 67), (411, 67), (411, 5))
    )
    x, y = x * 0.1, y * 0.1
    wide = [array.astype(np.float64) for array in (x, y, b)]
    distances = kernel_formulas.pairs(NUMPY, *wide[:2])
    close = np.testing.assert_allclose
    close(kernels.rbf_kernel(x, y), np.exp(-distances), rtol=1e-5)
    close(kernels.gaussian_convolution(x, y, b), np.exp(-distances) @ wide[2], rtol=1e-4, atol=1e-4)
    close(kernels.cosine_distance(x, y), kernel_formulas.cosine_distance(NUMPY, *wide[:2]), rtol=1e-5)
    close(kernels.nearest_distance(x, y), distances.min(1), rtol=1e-5)
    assert (kernels.nearest(x, y) == distances.argmin(1)).mean() > 0.99
    order = np.argsort(distances, 1, kind="stable")[:, :7]
    found = kernels.k_nearest(x, y, neighbours=7)
    assert found.dtype == np.int64 and (found == order).mean() > 0.99
    close(kernels.k_nearest_distances(x, y, neighbours=7), np.take_along_axis(distances, found, 1), rtol=1e-5)
    attended = kernel_formulas.attention(NUMPY, True)(*wide[:2], wide[2], np.asarray(400))
    close(kernels.attention(x, y, b, np.int64(400), causal=True), attended, rtol=1e-4, atol=1e-5)


def test_what_nothing_is_seen_of(kernels: opsmith.Library) -> None:
    query, key, value = np.ones((2, 3, 4)), np.ones((2, 5, 4)), np.arange(20.0).reshape(2, 5, 2)
    result = kernels.attention(query, key, value, np.array([0, 2]))
    np.testing.assert_array_equal(result[0], np.zeros((3, 2)))
    np.testing.assert_allclose(result[1], np.broadcast_to(value[1, :2].mean(0), (3, 2)))
    logits = np.array([[0.0, -np.inf, 0.0], [-np.inf] * 3])
    entropies = kernels.entropy(logits)
    assert np.isclose(entropies[0], np.log(2)) and np.isnan(entropies[1])
    assert kernels.cosine_similarity(np.zeros(3), np.ones(3)) == 0


def test_attention_lets_nan_through(kernels: opsmith.Library) -> None:
    query, key, value = np.ones((3, 4)), np.ones((5, 4)), np.arange(10.0).reshape(5, 2)
    query[1, 2] = np.nan
    result = kernels.attention(query, key, value, np.int64(4))
    assert np.isnan(result[1]).all()
    np.testing.assert_allclose(result[::2], np.broadcast_to(value[:4].mean(0), (2, 2)))
    value[0, 1] = np.nan
    assert np.isnan(kernels.attention(query[:1], key, value, np.int64(4))).tolist() == [[False, True]]


def test_neighbours_that_are_none(kernels: opsmith.Library) -> None:
    x, y = np.zeros((2, 3)), np.zeros((4, 3))
    np.testing.assert_array_equal(kernels.k_nearest(x, y, neighbours=4), [[0, 1, 2, 3]] * 2)
    with pytest.raises(
        ValueError,
        match="`neighbours` asks for the 5 smallest or largest along the axis `j`, which has size 4",
    ):
        kernels.k_nearest(x, y, neighbours=5)
    with pytest.raises(ValueError, match="the axis `j` is empty"):
        kernels.nearest(x, np.zeros((0, 3)))
    assert kernels.k_nearest(x, y, neighbours=0).shape == (2, 0)


def test_sizes_of_one_class_share_loops_and_nothing_else(kernels: opsmith.Library) -> None:
    random = np.random.default_rng(0)
    for n, m in [(17, 31), (31, 17), (32, 32), (33, 5), (1, 32), (0, 31), (31, 0), (16, 1), (17, 31)]:
        x, y, b = (random.standard_normal(shape) for shape in [(n, 3), (m, 3), (m, 2)])
        weights = np.exp(-0.5 * ((x[:, None] - y) ** 2).sum(-1))
        expected = weights @ b
        actual = kernels.gaussian_convolution(x, y, b, gamma=0.5)
        np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-14, err_msg=f"{n} and {m}")
        upstream = random.standard_normal((n, 2))
        gradients = kernels.gaussian_convolution_grad(x, y, b, upstream, gamma=0.5)
        np.testing.assert_allclose(gradients[2], weights.T @ upstream, rtol=1e-12, atol=1e-14)
        pulled = weights * (upstream @ b.T)
        of_x = -(pulled[..., None] * (x[:, None] - y)).sum(1)
        np.testing.assert_allclose(gradients[0], of_x, rtol=1e-11, atol=1e-13)
