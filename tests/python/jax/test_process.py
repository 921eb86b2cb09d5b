"""The process: imports in any order, threads, forks and memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import warnings
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import opsmith
import pytest
from conftest import library_path


def run(source: str) -> list[str]:
    """What the program prints, line by line. It finds `path`, of the library of distances."""
    head = f"import sys\npath = {str(library_path('distances'))!r}\n"
    command = [sys.executable, "-W", "error", "-c", head + textwrap.dedent(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def resident_kib() -> int:
    """The kibibytes of this process that are in memory."""
    with open("/proc/self/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1])


USE = """
import jax.numpy as jnp
f = library.pairwise_manhattan_distance
x, y = jnp.ones((1, 2)), jnp.zeros((1, 2))
print(f(x, y).tolist(), jax.jit(f)(x, y).tolist(), jax.grad(lambda x: f(x, y).sum())(x).tolist())
"""


@pytest.mark.parametrize(
    "order",
    [
        "import jax\nimport opsmith\nlibrary = opsmith.load(path)\n",
        "import opsmith\nimport jax\nlibrary = opsmith.load(path)\n",
        "import opsmith\nlibrary = opsmith.load(path)\nimport jax\n",
        "import opsmith\nlibrary = opsmith.load(path)\nopsmith.load(path)\nimport jax.numpy\nimport jax\n",
        "import jax\njax.numpy.ones(1).block_until_ready()\nimport opsmith\nlibrary = opsmith.load(path)\n",
        "import ctypes, jax\nlibrary = ctypes.CDLL(path)\n"
        "jax.ffi.register_ffi_target('distances.pairwise_manhattan_distance',"
        " jax.ffi.pycapsule(library.pairwise_manhattan_distance_jax))\n"
        "import opsmith\nlibrary = opsmith.load(path)\n",
    ],
    ids=["jax first", "package first", "library first", "twice", "a backend before", "registered by hand"],
)
def test_jax_may_be_imported_whenever(order: str) -> None:
    assert run(order + USE) == ["[[2.0]] [[2.0]] [[1.0, 1.0]]"]


def test_another_library_of_the_same_names() -> None:
    assert run("""
        import shutil, tempfile, opsmith, jax
        from opsmith import jax as adapter
        from dataclasses import replace
        loaded = opsmith.load(path)._opsmith_loaded
        other = replace(loaded, definition=replace(loaded.definition, version="2"))
        try:
            adapter.wire(other)
        except opsmith.AlreadyExistsError as error:
            print(error)
    """) == ["library `distances` is registered with JAX already, and differs"]


def test_threads_agree(distances: opsmith.Library) -> None:
    x, y = jnp.asarray(np.random.default_rng(0).random((30, 9))), jnp.ones((20, 9))
    gradient = jax.grad(lambda x: (distances.pairwise_manhattan_distance(x, y) ** 2).sum())

    def work(i: int) -> np.ndarray:
        if i % 7 == 0:
            with pytest.raises(jax.errors.JaxRuntimeError):
                distances.pairwise_manhattan_distance(x, y[:, :3])
        return np.asarray(gradient(x))

    expected = work(0)
    with ThreadPoolExecutor(16) as pool:
        assert all(np.array_equal(result, expected) for result in pool.map(work, range(200)))


def test_failing_calls_leak_nothing(distances: opsmith.Library, testops: opsmith.Library) -> None:
    """Those that fail while they run; a trace that fails leaves to JAX what JAX keeps of it."""
    fails = jax.jit(lambda x: testops.fails(x, message="as it should"))
    x = jnp.ones(3, np.float32)
    jax.config.update("jax_traceback_filtering", "off")

    def fail(times: int) -> None:
        for _ in range(times):
            for call in (fails, testops.fails):
                try:
                    call(x).block_until_ready()
                except jax.errors.JaxRuntimeError:
                    continue
                raise AssertionError("it did not fail")

    fail(2_000)
    before = resident_kib()
    fail(10_000)
    jax.config.update("jax_traceback_filtering", "auto")
    assert resident_kib() - before < 2_000


def test_a_forked_child_has_numpy(distances: opsmith.Library) -> None:
    """JAX itself does not survive a fork, and says so; the engine for NumPy does."""
    distances.pairwise_manhattan_distance(jnp.ones((300, 50)), jnp.ones((300, 50))).block_until_ready()
    x = np.random.default_rng(0).random((300, 50))
    expected = distances.pairwise_manhattan_distance(x, x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        right = np.array_equal(distances.pairwise_manhattan_distance(x, x), expected)
        os._exit(0 if right else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0
    assert distances.pairwise_manhattan_distance(jnp.ones((2, 3)), jnp.zeros((1, 3))).tolist() == [[3], [3]]
