"""Pointwise ops that are written once: their values on NumPy's arrays, and what they refuse."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import opsmith
import pytest
from conftest import library_path
from scipy.special import erf, expit

DTYPES = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


@pytest.fixture(scope="session")
def activations() -> opsmith.Library:
    """The example library."""
    return opsmith.load(library_path("activations"))


@pytest.mark.parametrize("dtype", DTYPES)
def test_gelu(activations: opsmith.Library, dtype: type) -> None:
    x = np.linspace(-3, 9, 10_001).astype(dtype)
    wide = x.astype(np.float64)
    y = activations.gelu(x)
    assert y.dtype == x.dtype
    exact = wide * 0.5 * (1 + erf(wide / math.sqrt(2)))
    if dtype is np.float64:
        np.testing.assert_allclose(y, exact, rtol=1e-13, atol=1e-15)
    else:
        narrow = exact.astype(dtype).astype(np.float64)
        assert np.max(np.abs(y.astype(np.float64) - narrow)) <= 2 * ml_dtypes.finfo(dtype).eps * 9
    assert activations.gelu(np.zeros((0, 3), dtype)).shape == (0, 3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_broadcasting_and_strides(activations: opsmith.Library, dtype: type) -> None:
    rng = np.random.default_rng(0)
    gate, x = rng.normal(size=(7, 1, 130)).astype(dtype), rng.normal(size=(4, 130, 5)).astype(dtype)
    turned = x.transpose(2, 0, 1)[:, ::-1]
    y = activations.swiglu(gate[:, :, ::-1], turned[:1])
    wide = gate[:, :, ::-1].astype(np.float64)
    exact = wide * expit(wide) * turned[:1].astype(np.float64)
    assert y.shape == (7, 4, 130)
    limits = ml_dtypes.finfo(dtype)
    np.testing.assert_allclose(
        y.astype(np.float64), exact, rtol=4 * float(limits.eps), atol=float(limits.tiny)
    )


def test_attributes(activations: opsmith.Library) -> None:
    x = np.array([-2.0, -0.0, 3.0])
    np.testing.assert_array_equal(activations.leaky_relu(x), [-0.02, 0, 3])
    np.testing.assert_array_equal(activations.leaky_relu(x, slope=0.5), [-1, 0, 3])


def test_the_branch_not_taken_leaves_no_nan(activations: opsmith.Library) -> None:
    x = np.array([0.0, 1.0, math.inf, math.nan])
    y = activations.entropy(x)
    np.testing.assert_array_equal(y, [0, 0, -math.inf, math.nan])
    np.testing.assert_array_equal(activations.entropy_grad(x, np.ones(4))[:2], [0, -1])


def test_what_does_not_fit_is_told(activations: opsmith.Library) -> None:
    with pytest.raises(opsmith.InvalidArgumentError, match="must equal dim 0 of input `gate`, or one"):
        activations.swiglu(np.ones(2), np.ones(3))
    with pytest.raises(opsmith.InvalidArgumentError, match="`x` is int64, but must be one of"):
        activations.gelu(np.arange(3))


def test_a_gradient_is_summed_over_what_was_repeated(activations: opsmith.Library) -> None:
    rng = np.random.default_rng(1)
    gate, x, upstream = rng.normal(size=5), rng.normal(size=(300, 5)), rng.normal(size=(300, 5))
    gate_grad, x_grad = activations.swiglu_grad(gate, x, upstream)
    np.testing.assert_allclose(x_grad, gate * expit(gate) * upstream, rtol=1e-13)
    slope = expit(gate) * (1 + gate * (1 - expit(gate)))
    np.testing.assert_allclose(gate_grad, (slope * x * upstream).sum(0), rtol=1e-12)


def test_it_is_explained(activations: opsmith.Library) -> None:
    assert opsmith.explain(activations, "gelu").formula == "y = x * normal_cdf(x)"
    told = opsmith.explain(activations, "leaky_relu_grad", slope=0.5, T="float16")
    assert "slope" in told.formula
    assert "leaky_relu_grad_32" in told.cuda_source
