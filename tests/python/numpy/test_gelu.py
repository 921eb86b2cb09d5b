"""GELU of both kinds on NumPy's arrays: values and slopes, what it turns into, what is refused."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import opsmith
import opsmith.testing
import pytest
from conftest import library_path
from scipy.special import ndtr

DTYPES = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
KINDS = ["none", "tanh"]


@pytest.fixture(scope="session")
def library() -> opsmith.Library:
    """The example library."""
    return opsmith.load(library_path("gelu"))


def exact(x: np.ndarray, approximate: str) -> tuple[np.ndarray, np.ndarray]:
    """The function and its slope in double precision."""
    if approximate == "none":
        return x * ndtr(x), ndtr(x) + x * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    tanh = np.tanh(inner)
    slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)
    return x / 2 * (1 + tanh), (1 + tanh) / 2 + x / 2 * (1 - tanh**2) * slope


@pytest.mark.parametrize("approximate", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_and_slopes(library: opsmith.Library, dtype: type, approximate: str) -> None:
    x = np.linspace(-6, 9, 20_001).astype(dtype)
    y = library.gelu(x, approximate=approximate)
    grad = library.gelu_grad(x, np.ones_like(x), approximate=approximate)
    assert y.dtype == grad.dtype == x.dtype
    eps = float(ml_dtypes.finfo(dtype).eps)
    value, slope = exact(x.astype(np.float64), approximate)
    # The formulas in double precision lose what cancels where the function is next to zero.
    np.testing.assert_allclose(y.astype(np.float64), value, rtol=2 * eps, atol=max(eps, 4e-8) * 1e-3)
    # So does the slope in its own precision: it is a sum of terms of both signs.
    rounding = float(ml_dtypes.finfo(np.promote_types(dtype, np.float32)).eps)
    np.testing.assert_allclose(grad.astype(np.float64), slope, rtol=2 * eps, atol=64 * rounding)


@pytest.mark.parametrize("approximate", KINDS)
def test_half_precision_is_rounded_once(library: opsmith.Library, approximate: str) -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    for dtype in (np.float16, ml_dtypes.bfloat16):
        x = every.view(dtype)
        x = x[np.isfinite(x.astype(np.float32))]
        y = library.gelu(x, approximate=approximate)
        wide = library.gelu(x.astype(np.float32), approximate=approximate).astype(dtype)
        np.testing.assert_array_equal(y.view(np.uint16), wide.view(np.uint16))


@pytest.mark.parametrize("approximate", KINDS)
def test_ends_empty_and_strided(library: opsmith.Library, approximate: str) -> None:
    ends = np.array([-np.inf, -50, -0.0, 0.0, 50, np.inf, np.nan])
    y = library.gelu(ends, approximate=approximate)
    np.testing.assert_array_equal(y[[2, 3, 4, 5, 6]], [0, 0, 50, np.inf, np.nan])
    assert abs(y[0]) == 0 and abs(y[1]) < 1e-300
    assert library.gelu(np.zeros((0, 3)), approximate=approximate).shape == (0, 3)
    x = np.random.default_rng(0).normal(size=(30, 41, 5))
    turned = x.transpose(2, 0, 1)[:, ::-2]
    np.testing.assert_array_equal(
        library.gelu(turned, approximate=approximate), library.gelu(turned.copy(), approximate=approximate)
    )


def test_the_default_is_exact(library: opsmith.Library) -> None:
    x = np.linspace(-3, 3, 100)
    np.testing.assert_array_equal(library.gelu(x), library.gelu(x, approximate="none"))
    assert np.abs(library.gelu(x) - library.gelu(x, approximate="tanh")).max() > 1e-4


def test_each_kind_has_its_own_source(library: opsmith.Library) -> None:
    exact, approximated = (opsmith.explain(library, "gelu", approximate=kind) for kind in KINDS)
    assert exact.formula == "y = gelu(x)"
    assert approximated.formula == "y = gelu_tanh(x)"
    assert exact.cuda_source != approximated.cuda_source
    assert "gelu_32" in exact.cuda_source and "gelu_32" in approximated.cuda_source
    gradients = [opsmith.explain(library, "gelu_grad", approximate=kind).cuda_source for kind in KINDS]
    assert gradients[0] != gradients[1]


def test_what_does_not_fit_is_told(library: opsmith.Library) -> None:
    message = r"Gelu: attribute `approximate` must be one of 'none', 'tanh', got 'erf'"
    with pytest.raises(opsmith.InvalidArgumentError, match=message):
        library.gelu(np.ones(3), approximate="erf")
    with pytest.raises(opsmith.InvalidArgumentError, match="`x` is int64, but must be one of"):
        library.gelu(np.arange(3))
    with pytest.raises((opsmith.InvalidArgumentError, TypeError), match="approximate"):
        library.gelu(np.ones(3), approximate=1)


def test_it_passes_the_checks(library: opsmith.Library) -> None:
    def reference(x: np.ndarray, approximate: str) -> np.ndarray:
        return exact(x.astype(np.float64), approximate)[0]

    report = opsmith.testing.check(
        library.gelu, reference=reference, properties=["reference", "gradient"], atol=1e-6
    )
    assert not report.failures
    everything = opsmith.testing.check(library, raises=False)
    assert not everything.failures, str(everything)
