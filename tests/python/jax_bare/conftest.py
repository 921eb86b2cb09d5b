"""A process with JAX and the built libraries, and without the `opsmith` package."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", Path(__file__).parents[3] / "target" / "release"))

jax.config.update("jax_enable_x64", True)
# A hundred thousand errors take two minutes to be filtered.
jax.config.update("jax_traceback_filtering", "off")


def library(name: str) -> str:
    """The path of a built library; its absence fails the tests, for nothing may be skipped silently."""
    path = LIBRARIES / f"lib{name}.so"
    assert path.exists(), f"{path} is missing: cargo build --release --package {name}"
    return str(path)


class Ops:
    """The ops of a library: `ops.echo(results, x, a=1)` calls the target `<library>.echo`."""

    def __init__(self, name: str, file: str) -> None:
        self.name = name
        self.library = ctypes.CDLL(library(file))
        self.registered: set[str] = set()

    def __getattr__(self, op: str) -> Callable[..., Any]:
        target = f"{self.name}.{op}"
        if op not in self.registered:
            handler = getattr(self.library, f"{op}_jax")
            jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(handler), platform="cpu")
            self.registered.add(op)

        def call(results: Any, *inputs: Any, aliases: dict[int, int] | None = None, **attrs: Any) -> Any:
            function = jax.ffi.ffi_call(target, results, input_output_aliases=aliases, has_side_effect=True)
            return function(*inputs, **attrs)

        return call


OPS = Ops("testops", "opsmith_testops")
DISTANCES = Ops("distances", "distances")


def like(*shape: int, dtype: Any = "float32") -> jax.ShapeDtypeStruct:
    """What a result is."""
    return jax.ShapeDtypeStruct(shape, dtype)


@pytest.fixture
def ops() -> Ops:
    """The test operators."""
    return OPS


@pytest.fixture(autouse=True)
def bare() -> Iterator[None]:
    """Nothing here may bring in the Python package."""
    yield
    assert "opsmith" not in sys.modules
