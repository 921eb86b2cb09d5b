"""NVIDIA's run-time compiler, which comes with PyTorch and needs no card."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from itertools import product
from pathlib import Path


def _load() -> ctypes.CDLL:
    """The library among the packages that PyTorch depends on."""
    spec = importlib.util.find_spec("nvidia")
    assert spec is not None and spec.submodule_search_locations, "PyTorch's CUDA packages are missing"
    for folder in map(Path, spec.submodule_search_locations):
        for path in sorted(folder.glob("*/lib/libnvrtc.so.*")):
            return ctypes.CDLL(str(path))
    raise AssertionError("libnvrtc is missing: it comes with PyTorch for CUDA")


def _quick() -> list[str]:
    """The flags that make it optimise little; none of a version that has no such."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    assert _NVRTC.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) == 0
    return ["--Ofast-compile=max"] if major.value >= 13 else []


_NVRTC = _load()
_QUICK = _quick()
_HEADER = Path(__file__).parents[3] / "crates" / "opsmith-cuda" / "src" / "opsmith.cuh"


def pairs(dtypes: list[str], architectures: list[str]) -> list[tuple[str, str]]:
    """Each dtype and each architecture once; with `OPSMITH_EVERY_SOURCE` each with each."""
    each_with_each = list(product(dtypes, architectures))
    once = list(zip(dtypes, architectures, strict=True))
    return each_with_each if os.environ.get("OPSMITH_EVERY_SOURCE") else once


def compile_source(source: str, architecture: str, *flags: str) -> str | None:
    """Compiles for an architecture, `sm_90`, or to its assembly, `compute_90`: the complaints, if any.

    Little is optimised without `OPSMITH_EVERY_SOURCE`: that takes several times as long.
    """
    program = ctypes.c_void_p()
    texts, names = ((ctypes.c_char_p * 1)(text) for text in (_HEADER.read_bytes(), _HEADER.name.encode()))
    status = _NVRTC.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"body.cu", 1, texts, names)
    assert status == 0, f"nvrtcCreateProgram: {status}"
    quick = [] if os.environ.get("OPSMITH_EVERY_SOURCE") else _QUICK
    all_flags = [f"--gpu-architecture={architecture}", "--std=c++17", *quick, *flags]
    options = (ctypes.c_char_p * len(all_flags))(*[flag.encode() for flag in all_flags])
    status = _NVRTC.nvrtcCompileProgram(program, len(all_flags), options)
    size = ctypes.c_size_t()
    _NVRTC.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    _NVRTC.nvrtcGetProgramLog(program, log)
    _NVRTC.nvrtcDestroyProgram(ctypes.byref(program))
    return None if status == 0 else log.value.decode()
