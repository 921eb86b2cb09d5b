"""The CUDA sources of pairwise ops and their gradients compile, with formulas as one would write them."""

from __future__ import annotations

import os
from pathlib import Path

import nvrtc
import opsmith
import pytest

LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", Path(__file__).parents[3] / "target" / "release"))
ARCHITECTURES = ["sm_75", "sm_80", "sm_90", "sm_100"]
DTYPES = ["float32", "float64", "float16", "bfloat16"]
OPS = [
    "manhattan",
    "squared_euclidean",
    "euclidean",
    "chebyshev",
    "canberra",
    "minkowski_power",
    "mean_squared",
]
ORDERS = ["", "_grad", "_grad_grad", "_grad_grad_grad"]


@pytest.fixture(scope="module")
def pairwise() -> opsmith.Library:
    """The example library."""
    path = LIBRARIES / "libpairwise.so"
    assert path.exists(), f"{path} is missing: cargo build --release --package pairwise"
    return opsmith.load(path)


@pytest.mark.parametrize(("position", "op"), list(enumerate(OPS)))
def test_every_source_compiles(pairwise: opsmith.Library, position: int, op: str) -> None:
    for order, suffix in enumerate(ORDERS):
        dtype = DTYPES[(position + order) % 4]
        source = opsmith.explain(pairwise, op + suffix, T=dtype).cuda_source
        complaints = nvrtc.compile_source(source, ARCHITECTURES[(position + 2 * order) % 4])
        assert complaints is None, f"{op}{suffix} {dtype}:\n{complaints}\n{source}"


def test_a_source_compiles_for_every_dtype_and_architecture(pairwise: opsmith.Library) -> None:
    for dtype, architecture in nvrtc.pairs(DTYPES, ARCHITECTURES):
        source = opsmith.explain(pairwise, "chebyshev_grad", T=dtype).cuda_source
        assert "__shared__" in source
        assert nvrtc.compile_source(source, architecture) is None


def test_formulas(pairwise: opsmith.Library) -> None:
    def formula(op: str) -> list[str]:
        return str(opsmith.explain(pairwise, op)).splitlines()

    assert formula("manhattan") == ["z = sum(abs(x - y), p)"]
    assert formula("manhattan_grad") == [
        "t0 = z_grad * sign(x - y)",
        "x_grad = sum(t0, m)",
        "y_grad = -sum(t0, n)",
    ]
    assert formula("manhattan_grad_grad")[:2] == ["x_grad = 0", "y_grad = 0"]
    assert formula("chebyshev") == ["z = amax(abs(x - y), p)"]
    assert formula("euclidean")[-1] == "z = sqrt(sum(t0 * t0, p))"
