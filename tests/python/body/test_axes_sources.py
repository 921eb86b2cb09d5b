"""The CUDA sources of bodies over named axes and their gradients compile."""

from __future__ import annotations

import axes_bodies
import nvrtc
import opsmith
import pytest

ARCHITECTURES = ["sm_75", "sm_80", "sm_90", "sm_100"]
DTYPES = ["float32", "float64", "float16", "bfloat16"]
ORDERS = ["", "_grad", "_grad_grad", "_grad_grad_grad"]
COUNT = 12


@pytest.fixture(scope="module")
def library() -> opsmith.Library:
    """All random bodies."""
    return axes_bodies.build()


@pytest.mark.parametrize("position", range(COUNT))
def test_a_source_compiles(library: opsmith.Library, position: int) -> None:
    """Each of an order, a dtype and an architecture."""
    name = f"random{position}{ORDERS[position % 4]}"
    source = opsmith.explain(library, name, T=DTYPES[(position + position // 4) % 4]).cuda_source
    assert f"{name}_0_32" in source
    complaints = nvrtc.compile_source(source, ARCHITECTURES[position // 3], f"-DONLY={position % 2}")
    assert complaints is None, f"{name}:\n{complaints}\n{source}"
