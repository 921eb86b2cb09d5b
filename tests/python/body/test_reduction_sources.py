"""The CUDA sources of reductions and their gradients compile."""

from __future__ import annotations

import os
from pathlib import Path

import nvrtc
import opsmith
import pytest

LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", Path(__file__).parents[3] / "target" / "release"))
ARCHITECTURES = ["sm_75", "sm_80", "sm_90", "sm_100"]
DTYPES = ["float32", "float64", "float16", "bfloat16"]
OPS = ["norm", "softmax", "log_sum_exp", "layer_norm", "range"]
ORDERS = ["", "_grad", "_grad_grad", "_grad_grad_grad"]


@pytest.fixture(scope="module")
def reductions() -> opsmith.Library:
    """The example library."""
    path = LIBRARIES / "libreductions.so"
    assert path.exists(), f"{path} is missing: cargo build --release --package reductions"
    return opsmith.load(path)


@pytest.mark.parametrize(("position", "op"), list(enumerate(OPS)))
def test_every_source_compiles(reductions: opsmith.Library, position: int, op: str) -> None:
    for order, suffix in enumerate(ORDERS):
        dtype = DTYPES[(position + order) % 4]
        source = opsmith.explain(reductions, op + suffix, T=dtype).cuda_source
        complaints = nvrtc.compile_source(
            source, ARCHITECTURES[(position + 2 * order) % 4], f"-DONLY={(position + order) % 2}"
        )
        assert complaints is None, f"{op}{suffix} {dtype}:\n{complaints}\n{source}"


def test_a_source_compiles_for_every_dtype_and_architecture(reductions: opsmith.Library) -> None:
    for dtype, architecture in nvrtc.pairs(DTYPES, ARCHITECTURES):
        source = opsmith.explain(reductions, "softmax_grad", T=dtype).cuda_source
        assert "__shared__" in source
        assert nvrtc.compile_source(source, architecture, "-DONLY=0") is None
