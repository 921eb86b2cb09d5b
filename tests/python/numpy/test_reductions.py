"""Reductions that are written once: values against NumPy and SciPy, accuracy, threads, and bad input."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import opsmith
import pytest
import scipy.special
from conftest import library_path

SHAPES = [(1,), (7,), (5, 128), (3, 4, 129), (300, 20), (2, 70_000), (20, 5000)]


@pytest.fixture(scope="module")
def reductions() -> opsmith.Library:
    """The example library."""
    return opsmith.load(library_path("reductions"))


def numbers(*shape: int, dtype: str = "float64", seed: int = 0) -> np.ndarray:
    """Normally distributed numbers."""
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def layer_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, epsilon: float = 1e-5) -> np.ndarray:
    """As its definition says."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * gamma + beta


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-6), ("float64", 1e-14), ("float16", 2e-3)])
def test_values_are_numpys(
    reductions: opsmith.Library, shape: tuple[int, ...], dtype: str, tolerance: float
) -> None:
    x = numbers(*shape, dtype=dtype)
    wide = x.astype("float64")
    gamma, beta = numbers(shape[-1], dtype=dtype, seed=1), numbers(shape[-1], dtype=dtype, seed=2)
    smallest, largest = reductions.range(x)
    np.testing.assert_array_equal(smallest, x.min(-1))
    np.testing.assert_array_equal(largest, x.max(-1))
    expected = [
        (reductions.norm(x), np.linalg.norm(wide, axis=-1)),
        (reductions.softmax(x), scipy.special.softmax(wide, -1)),
        (reductions.log_sum_exp(x), scipy.special.logsumexp(wide, -1)),
        (reductions.layer_norm(x, gamma, beta), layer_norm(wide, gamma.astype("f8"), beta.astype("f8"))),
    ]
    for ours, theirs in expected:
        assert ours.dtype == x.dtype
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def test_strides_and_several_axes(reductions: opsmith.Library) -> None:
    x = numbers(6, 7, 8)
    for view in [x.transpose(2, 0, 1), x[:, ::-2, 1:6], np.broadcast_to(x[:, :1], x.shape), x[..., :0]]:
        np.testing.assert_allclose(reductions.norm(view), np.linalg.norm(view, axis=-1), rtol=1e-13)
        flat = view.reshape(len(view), -1)
        np.testing.assert_allclose(reductions.norm(view, axes=2), np.linalg.norm(flat, axis=-1), rtol=1e-13)
    assert reductions.norm(x, axes=3).shape == ()


def test_empty_rows_and_batches(reductions: opsmith.Library) -> None:
    np.testing.assert_array_equal(reductions.norm(np.ones((2, 0))), [0.0, 0.0])
    np.testing.assert_array_equal(reductions.log_sum_exp(np.ones((2, 0))), [-np.inf, -np.inf])
    np.testing.assert_array_equal(reductions.range(np.ones((1, 0)))[0], [np.inf])
    assert reductions.softmax(np.ones((0, 3))).shape == (0, 3)
    assert reductions.softmax(np.ones((3, 0))).shape == (3, 0)
    assert reductions.norm(np.ones((0, 3))).shape == (0,)


def test_nan_and_infinities(reductions: opsmith.Library) -> None:
    x = np.array([[1, np.inf, 2], [-np.inf, 0, 0], [np.nan, 1, 2], [-np.inf, -np.inf, -np.inf]])
    np.testing.assert_array_equal(reductions.range(x)[0], x.min(-1))
    np.testing.assert_array_equal(reductions.range(x)[1], x.max(-1))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(reductions.log_sum_exp(x), scipy.special.logsumexp(x, -1))
    np.testing.assert_array_equal(reductions.softmax(x)[1], [0, 0.5, 0.5])
    assert np.isnan(reductions.softmax(x)[[0, 2, 3]]).any(-1).all()
    big = np.array([1e4, 1e4 + 1, -1e4], "float32")
    np.testing.assert_allclose(reductions.log_sum_exp(big), 10001.313, rtol=1e-7)


def test_a_long_sum_is_exact_but_for_few_roundings(reductions: opsmith.Library) -> None:
    """The stated bound, with the square's own rounding: n additions in a row would be off by far more."""
    x = np.random.default_rng(0).random(10_000_000, dtype="float32")
    exact = float(np.linalg.norm(x.astype("float64")))
    bound = (24 + np.ceil(np.log2(len(x) / 2048)) + 1) * 2.0**-24
    assert abs(float(reductions.norm(x)) / exact - 1) <= bound


def test_half_precision_reads_nothing_that_is_saved(reductions: opsmith.Library) -> None:
    x, gamma = numbers(3, 50, dtype="float16"), numbers(50, dtype="float16")
    none, zeros = np.full(3, np.nan, "float16"), np.zeros(3, "float16")
    for gradient in zip(
        reductions.layer_norm_grad(x, gamma, gamma, none, none, x),
        reductions.layer_norm_grad(x, gamma, gamma, zeros, zeros, x),
        strict=True,
    ):
        assert np.isfinite(gradient[0]).all()
        np.testing.assert_array_equal(*gradient)


SAME_BITS = """
import hashlib, sys
import numpy as np, opsmith
library = opsmith.load(sys.argv[1])
rng, digest = np.random.default_rng(0), hashlib.sha256()
for shape in [(1, 1_000_003), (3, 70_001), (40, 5000), (900, 33)]:
    x = rng.normal(size=shape).astype("float32")
    gamma = x[0].copy()
    # Two sums for each row are saved for the gradient.
    saved = rng.normal(size=(2, shape[0])).astype("float32") ** 2
    gradients = library.layer_norm_grad(x, gamma, gamma, *saved, x)
    results = [library.softmax(x), library.norm(x), library.layer_norm(x, gamma, gamma), *gradients]
    for result in results:
        digest.update(np.ascontiguousarray(result).tobytes())
print(digest.hexdigest())
"""


def test_bits_do_not_depend_on_the_number_of_threads() -> None:
    def digest(threads: int) -> str:
        command = [sys.executable, "-c", SAME_BITS, str(library_path("reductions"))]
        environment = {**os.environ, "OPSMITH_NUM_THREADS": str(threads)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert digest(1) == digest(2) == digest(16) != ""


def test_what_does_not_fit_is_told(reductions: opsmith.Library) -> None:
    with pytest.raises(opsmith.InvalidArgumentError, match="`axes` is 3, but the inputs have only 2 dims"):
        reductions.norm(np.ones((2, 3)), axes=3)
    with pytest.raises(opsmith.InvalidArgumentError, match="`axes` is 1, but the inputs have only 0 dims"):
        reductions.norm(np.float32(1))
    with pytest.raises(opsmith.InvalidArgumentError, match="axes"):
        reductions.norm(np.ones((2, 3)), axes=0)
    with pytest.raises(opsmith.InvalidArgumentError, match="int64"):
        reductions.softmax(np.ones((2, 3), "int64"))
    with pytest.raises(
        opsmith.InvalidArgumentError, match=r"LayerNorm: .*: dim 0 of input `gamma` must equal"
    ):
        reductions.layer_norm(np.ones((2, 3)), np.ones(4), np.ones(3))


def test_formulas(reductions: opsmith.Library) -> None:
    assert str(opsmith.explain(reductions, "norm")) == "y = sqrt(sum(x * x))"
    assert str(opsmith.explain(reductions, "softmax")).splitlines() == [
        "t0 = exp(x - detached(amax(x)))",
        "y = t0 / sum(t0)",
    ]
