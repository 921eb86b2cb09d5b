"""The CUDA sources of the example libraries compile, forward and every order of gradients."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import nvrtc
import opsmith
import pytest

LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", Path(__file__).parents[3] / "target" / "release"))
DTYPES = ["float32", "float64", "float16", "bfloat16"]
ARCHITECTURES = ["sm_75", "sm_80", "sm_90", "sm_100"]


def check(source: str, architecture: str, job: tuple[str, str]) -> None:
    """One source compiles."""
    complaints = nvrtc.compile_source(source, architecture)
    assert complaints is None, f"{job} for {architecture}:\n{complaints}\n{source}"


@pytest.mark.parametrize(
    ("name", "attrs"),
    [("activations", {}), ("gelu", {"approximate": "none"}), ("gelu", {"approximate": "tanh"})],
)
def test_every_source_compiles(name: str, attrs: dict[str, str]) -> None:
    """Each op with each dtype, for one architecture in turn; with `OPSMITH_EVERY_SOURCE` for all of them."""
    path = LIBRARIES / f"lib{name}.so"
    assert path.exists(), f"{path} is missing: cargo build --release"
    library = opsmith.load(path)
    ops = [op for op in dir(library) if not op.startswith("_")]
    every = os.environ.get("OPSMITH_EVERY_SOURCE")
    jobs = []
    for index, job in enumerate(product(ops, DTYPES)):
        source = opsmith.explain(library, job[0], T=job[1], **attrs).cuda_source
        # To the assembly of that generation, which is half of the work.
        turn = ARCHITECTURES if every else [ARCHITECTURES[index % 4].replace("sm_", "compute_")]
        jobs += [(source, architecture, job) for architecture in turn]
    assert jobs
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda job: check(*job), jobs))
