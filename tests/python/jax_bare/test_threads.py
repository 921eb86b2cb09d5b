"""Threads and loading: who computes, and where."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import Ops, library, like
from jax.errors import JaxRuntimeError

SIDE = 256


def test_eight_calls_at_once_do_not_wait_for_each_other(ops: Ops) -> None:
    """XLA runs independent calls on the very threads that it lends them."""

    @jax.jit
    def program(x: jax.Array) -> list[jax.Array]:
        flat = like(SIDE * SIDE, dtype="float64")
        return [ops.squares(flat, x + k) for k in range(8)]

    x = np.random.default_rng(0).normal(size=SIDE * SIDE)
    for round_ in range(300):
        outputs = program(x + round_)
        if round_ % 50 == 0:
            for k, output in enumerate(outputs):
                np.testing.assert_allclose(output, (x + round_ + k) ** 2)


def test_sixteen_threads_agree_with_one(ops: Ops) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 9)), rng.normal(size=(30, 9))
    good = jax.jit(lambda x, y: ops.pairwise(like(40, 30, dtype="float64"), x, y))
    bad = jax.jit(lambda x, y: ops.pairwise(like(40, 30, dtype="float64"), x[:, :3], y))
    expected = np.asarray(good(x, y))

    def work(i: int) -> bool:
        for k in range(100):
            if (i + k) % 3 == 0:
                with pytest.raises(JaxRuntimeError, match="Pairwise"):
                    bad(x, y).block_until_ready()
            if not np.array_equal(good(x, y), expected):
                return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(16)))


def test_the_threads_are_xlas(ops: Ops) -> None:
    offered, seen = ops.num_threads(like(2, dtype="int64")).tolist()
    assert 1 <= seen <= offered


def test_state_is_counted_across_calls(ops: Ops) -> None:
    before = ops.counter(like(dtype="int64")).item()
    count = jax.jit(lambda: ops.counter(like(dtype="int64")))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: [count().block_until_ready() for _ in range(100)], range(8)))
    assert ops.counter(like(dtype="int64")).item() == before + 801


def test_inside_loops_and_branches(ops: Ops) -> None:
    def body(i: jax.Array, x: jax.Array) -> jax.Array:
        square = like(8, dtype="float64")
        return jax.lax.cond(i % 2 == 0, lambda x: ops.squares(square, x), lambda x: x + 1, x)

    x = jax.jit(lambda x: jax.lax.fori_loop(0, 4, body, x))(jnp.full(8, 2.0))
    assert x.tolist() == [26.0] * 8


def test_a_library_opened_before_jax_is_the_same() -> None:
    code = """
import ctypes, sys
opened = ctypes.CDLL(sys.argv[1])
import jax, numpy as np
jax.ffi.register_ffi_target("testops.echo", jax.ffi.pycapsule(opened.echo_jax), platform="cpu")
x = np.arange(3, dtype=np.float32)
print(jax.ffi.ffi_call("testops.echo", jax.ShapeDtypeStruct((3,), "float32"))(x).tolist())
"""
    command = [sys.executable, "-c", code, library("opsmith_testops")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "[0.0, 1.0, 2.0]\n"


def test_handlers_by_position(ops: Ops) -> None:
    import ctypes

    handler = ops.library.opsmith_jax_handler
    handler.restype = ctypes.c_void_p
    # Whether it is the one that is exported by name, the compiler decides: what it does is what counts.
    capsule = jax.ffi.pycapsule(ctypes.cast(handler(0), ctypes.CFUNCTYPE(None)))
    jax.ffi.register_ffi_target("testops.by_position", capsule, platform="cpu")
    x = np.arange(3.0)
    y = jax.ffi.ffi_call("testops.by_position", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)
    assert np.array_equal(y, x)
    assert handler(10_000) is None
