"""What a user does after `pip install opsmith` and that of a wheel of ops, without Rust on the machine.

`cargo xtask dist --try` runs it under every Python that it finds.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

import opsmith
from opsmith import jit, testing

FRAMEWORKS = {"jax", "tensorflow", "torch"}


def ops_run() -> None:
    x = np.linspace(-2.0, 2.0, 24, dtype=np.float32).reshape(4, 6)
    np.testing.assert_allclose(opsmith.ops.mat_mul(x, x.T), x @ x.T, rtol=1e-5)
    np.testing.assert_allclose(opsmith.ops.tanh(x), np.tanh(x), rtol=1e-6)
    exponentials = np.exp(x - x.max(-1, keepdims=True))
    softmax = exponentials / exponentials.sum(-1, keepdims=True)
    np.testing.assert_allclose(opsmith.ops.softmax(x), softmax, rtol=1e-5)
    large = np.ones((2000, 1000))
    assert opsmith.ops.sum(large, axes=[0, 1], keep_dims=False) == large.size    # on all threads
    try:
        opsmith.ops.mat_mul(x, x)
    except opsmith.InvalidArgumentError as error:
        assert "mat_mul" in str(error).lower().replace("matmul", "mat_mul"), error
    else:
        raise AssertionError("matrices that do not fit were multiplied")


def a_graph_learns() -> None:
    graph = opsmith.Graph()
    x = graph.placeholder("float64", [None, 3], name="x")
    target = graph.placeholder("float64", [None, 1], name="target")
    w = graph.variable(np.zeros((3, 1)), name="w")
    loss = ((x @ w - target) ** 2).mean()
    train = opsmith.optimizers.GradientDescent(0.1).minimize(loss)
    inputs = np.random.default_rng(0).normal(size=(50, 3))
    feeds = {x: inputs, target: inputs @ [[1.0], [2.0], [3.0]]}
    session = opsmith.Session(graph)
    session.run(graph.initializer())
    before = session.run(loss, feeds)
    session.run(train, feeds)
    expected = 0.2 * inputs.T @ feeds[target] / 50
    np.testing.assert_allclose(session.run(w), expected, rtol=1e-12)
    assert session.run(loss, feeds) < before


def a_wheel_of_ops_runs() -> None:
    import distances

    x, y = np.array([[0.0, 1.0], [2.0, 3.0]]), np.array([[1.0, 1.0]])
    np.testing.assert_array_equal(distances.pairwise_manhattan_distance(x, y), [[1.0], [3.0]])
    # It generates calls from the ops' definitions and compares derivatives with differences.
    testing.check(distances.pairwise_manhattan_distance)


def a_panic_is_an_error() -> None:
    """The wheel's own unwinder of stacks has brought it back to the caller."""
    import testops

    for place, message in {"new": "instance", "compute": "result", "thread": "thread"}.items():
        try:
            testops.panics(np.ones(3, np.float32), place=place)
        except opsmith.InternalError as error:
            assert f"no {message} today" in str(error), error
        else:
            raise AssertionError(f"an op that panics in {place!r} has returned")


def building_says_what_it_takes(folder: Path) -> None:
    assert shutil.which("cargo") is None and shutil.which("rustc") is None, os.environ["PATH"]
    os.environ["OPSMITH_CACHE_DIR"] = str(folder / "cache")
    source = "#[pointwise] fn twice<S: Scalar>(x: S) -> S { x + x }"
    try:
        jit.load_inline("twice", source)
    except jit.BuildError as error:
        assert "there is no `rustc`, which builds need\n  → install Rust" in str(error), error
    else:
        raise AssertionError("built without Rust")


def the_program_runs() -> None:
    """As `pip` has installed it beside the interpreter."""
    import distances

    library = next(Path(distances.__file__).parent.rglob("*.so"))
    for arguments, expected in [(["--version"], opsmith.__version__), (["inspect", library], "manhattan")]:
        program = [Path(sys.executable).parent / "opsmith", *arguments]
        done = subprocess.run(program, capture_output=True, text=True, check=True)
        assert expected in done.stdout, done


def main() -> None:
    folder = Path(sys.argv[1])
    assert Path(opsmith.__file__).is_relative_to(sys.prefix), opsmith.__file__
    ops_run()
    a_graph_learns()
    a_wheel_of_ops_runs()
    a_panic_is_an_error()
    the_program_runs()
    building_says_what_it_takes(folder)
    assert not FRAMEWORKS & sys.modules.keys(), "a framework was imported"
    libc = " ".join(platform.libc_ver())
    print(f"opsmith {opsmith.__version__} on Python {platform.python_version()}, NumPy {np.__version__}, {libc}")


if __name__ == "__main__":
    main()
