"""Medians of windows on NumPy's arrays: against sorting, against SciPy's filter, and what is refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import opsmith
import opsmith.testing
import pytest
from conftest import library_path
from pools import CASES, Pool, gradient, images, medians, random_cases
from scipy.ndimage import median_filter

FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


@pytest.fixture(scope="session")
def library() -> opsmith.Library:
    """The example library."""
    return opsmith.load(library_path("median_pool"))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_values_are_those_of_sorted_windows(library: opsmith.Library, dtype: type) -> None:
    for pool in CASES:
        x = images(pool, dtype)
        y = library.median_pool(x, **pool.attrs)
        assert y.dtype == x.dtype
        np.testing.assert_array_equal(y, medians(x, pool)[0])


def test_random_cases(library: opsmith.Library) -> None:
    count = 300
    for seed, pool in enumerate(random_cases(count, 1)):
        x = images(pool, np.float32, seed)
        expected, places = medians(x, pool)
        np.testing.assert_array_equal(library.median_pool(x, **pool.attrs), expected)
        upstream = images(Pool(expected.shape, (1, 1), (1, 1), "SAME"), np.float32, seed)
        grad = library.median_pool_grad(x, upstream, **pool.attrs)
        np.testing.assert_array_equal(grad, gradient(x, pool, upstream))
        second = library.median_pool_grad_grad(x, grad, **pool.attrs)
        np.testing.assert_array_equal(second, grad.ravel()[places])
    print(f"median_pool: {count} random calls, gradients of two orders")


@pytest.mark.parametrize("side", [3, 5, 7])
def test_a_window_of_odd_size_is_scipys_filter(library: opsmith.Library, side: int) -> None:
    x = np.random.default_rng(0).normal(size=(2, 40, 50, 3))
    expected = median_filter(x, size=(1, side, side, 1))
    y = library.median_pool(x, ksize=[side, side])
    edge = side // 2
    np.testing.assert_array_equal(y, expected[:, edge:-edge, edge:-edge])
    same = library.median_pool(x, ksize=[side, side], padding="SAME")
    np.testing.assert_array_equal(same[:, edge:-edge, edge:-edge], y)


@pytest.mark.parametrize("sides", [(5, 10), (7, 9), (13, 13), (16, 32), (17, 30), (19, 27)])
@pytest.mark.parametrize("levels", [0, 7])
def test_large_windows_are_scipys_filter(
    library: opsmith.Library, sides: tuple[int, int], levels: int
) -> None:
    """Windows of 50 to 513 elements, even ones too, of numbers with ties and without."""
    x = np.random.default_rng(sides[0]).normal(size=(2, 45, 70, 2)).astype(np.float32)
    if levels:
        x = np.round(x * levels)
    height, width = (n - side + 1 for n, side in zip(x.shape[1:3], sides, strict=True))
    top, left = (side // 2 for side in sides)
    expected = median_filter(x, size=(1, *sides, 1))[:, top : top + height, left : left + width]
    np.testing.assert_array_equal(library.median_pool(x, ksize=sides), expected)
    strided = library.median_pool(x, ksize=sides, strides=(3, 2))
    np.testing.assert_array_equal(strided, expected[:, ::3, ::2])


def test_strides_of_memory_and_four_numbers(library: opsmith.Library) -> None:
    x = np.random.default_rng(1).normal(size=(3, 40, 2, 30)).transpose(0, 3, 1, 2)[:, ::-1, ::2]
    pool = Pool(x.shape, (3, 2), (2, 1), "SAME")
    expected = medians(x, pool)[0]
    np.testing.assert_array_equal(library.median_pool(x, **pool.attrs), expected)
    four = {"ksize": [1, 3, 2, 1], "strides": [1, 2, 1, 1], "padding": "SAME"}
    np.testing.assert_array_equal(library.median_pool(x, **four), expected)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("pool", [Pool((1, 12, 150, 1), (3, 3), (1, 1), "SAME"), CASES[6]])
def test_nan_and_infinities(library: opsmith.Library, dtype: type, pool: Pool) -> None:
    x = images(pool, dtype)
    rng = np.random.default_rng(2)
    for value, count in ((np.nan, 6), (np.inf, 60), (-np.inf, 60), (-0.0, 60)):
        x.ravel()[rng.integers(0, x.size, count)] = value
    x.ravel()[0] = -np.float32(np.nan)
    expected, _ = medians(x, pool)
    assert np.isnan(expected.astype(np.float64)).any() and not np.isnan(expected.astype(np.float64)).all()
    y = library.median_pool(x, **pool.attrs)
    np.testing.assert_array_equal(y.astype(np.float64), expected.astype(np.float64))
    ones = np.ones(expected.shape, dtype)
    sums = gradient(x, pool, ones).astype(dtype)
    np.testing.assert_array_equal(library.median_pool_grad(x, ones, **pool.attrs), sums)


def test_gradients_of_halves_are_added_in_single_precision(library: opsmith.Library) -> None:
    # Every other window has as many ones as minus ones around the zero in the middle, which is its median.
    x = (np.indices((49, 49)).sum(0) % 2 * 2 - 1).astype(ml_dtypes.bfloat16).reshape(1, 49, 49, 1)
    x[0, 24, 24, 0] = 0
    pool = Pool(x.shape, (25, 25), (1, 1), "VALID")
    ones = np.ones((1, 25, 25, 1), ml_dtypes.bfloat16)
    # A bfloat16 cannot count beyond 256.
    assert library.median_pool_grad(x, ones, **pool.attrs)[0, 24, 24, 0] == ml_dtypes.bfloat16(313)
    assert gradient(x, pool, ones)[0, 24, 24, 0] == 313


BAD = [
    ({"ksize": [3]}, "`ksize` must be two numbers, for height and width, or four"),
    ({"ksize": [2, 3, 3, 1]}, "are 1; got"),
    ({"ksize": [0, 3]}, "`ksize` must be of numbers from 1 to 65535"),
    ({"ksize": [-3, 3]}, "`ksize` must be of numbers from 1"),
    ({"ksize": [3, 1 << 62]}, "`ksize` must be of numbers from 1"),
    ({"ksize": [3, 3], "strides": [1, 0]}, "`strides` must be of numbers from 1"),
    ({"ksize": [3, 3], "strides": []}, "`strides` must be two numbers"),
    ({"ksize": [3, 3], "padding": "valid"}, "must be one of 'SAME', 'VALID'"),
    ({"ksize": [3, 6]}, "at least 6 columns, the width of a window"),
]


@pytest.mark.parametrize(("attrs", "message"), BAD)
def test_what_does_not_fit_is_told(library: opsmith.Library, attrs: dict[str, object], message: str) -> None:
    with pytest.raises(opsmith.InvalidArgumentError, match="MedianPool: ") as caught:
        library.median_pool(np.ones((1, 5, 5, 1)), **attrs)
    assert message in str(caught.value)


def test_wrong_tensors_are_told(library: opsmith.Library) -> None:
    with pytest.raises(
        opsmith.InvalidArgumentError, match=r"must have rank 4|\(batch, height, width, channels\)"
    ):
        library.median_pool(np.ones((5, 5, 1)), ksize=[3, 3])
    with pytest.raises(opsmith.InvalidArgumentError, match="MedianPoolGrad"):
        library.median_pool_grad(np.ones((1, 5, 5, 1)), np.ones((1, 5, 5, 1)), ksize=[3, 3])
    with pytest.raises(opsmith.InvalidArgumentError, match="`x` is complex128"):
        library.median_pool(np.ones((1, 5, 5, 1), complex), ksize=[3, 3])


def drawn(rng: np.random.Generator, size: int) -> dict[str, np.ndarray]:
    """Images no two of whose elements are equal, of one channel or two."""
    shape = (1 + size % 2, 3 + size // 2, 4 + size // 3, 1 + size % 3)
    return {"x": rng.permutation(int(np.prod(shape))).reshape(shape) + 0.5}


def test_it_passes_the_checks(library: opsmith.Library) -> None:
    attrs = {"ksize": [[3, 2], [2, 2]], "strides": [[1, 2], [1, 1]], "padding": ["SAME", "VALID"]}

    def reference(x: np.ndarray, ksize: list[int], strides: list[int], padding: str) -> np.ndarray:
        return medians(x, Pool(x.shape, tuple(ksize), tuple(strides), padding))[0]

    report = opsmith.testing.check(library.median_pool, inputs=drawn, reference=reference, attrs=attrs)
    assert not report.failures
    assert {row.property for row in report.rows if row.verdict == "passed"} >= {
        "reference",
        "gradient",
        "shapes",
    }
    everything = opsmith.testing.check(library, raises=False)
    assert not everything.failures, str(everything)
