"""Libraries and their functions, pickled here and unpickled in processes that have loaded nothing."""

from __future__ import annotations

import copy
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import opsmith
import pytest

LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", Path(__file__).parents[3] / "target" / "release"))
DISTANCES = LIBRARIES / "libdistances.so"
X, Y = np.ones((2, 3)), np.zeros((4, 3))

WAYS: dict[str, Callable[[Any], bytes]] = {
    **{
        f"protocol {n}": lambda value, n=n: pickle.dumps(value, n) for n in range(pickle.HIGHEST_PROTOCOL + 1)
    },
    "in Python": lambda value: pickle._dumps(value),  # type: ignore[attr-defined]
    "cloudpickle": cloudpickle.dumps,
}


def fresh(data: bytes, source: str) -> subprocess.CompletedProcess[str]:
    """Run `source` in a new process, in which `load()` unpickles `data`."""
    head = f"import pickle, sys\nload = lambda: pickle.loads({data!r})\n"
    command = [sys.executable, "-c", head + textwrap.dedent(source)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def said(data: bytes, source: str = "load()") -> str:
    """The last line of the exception that the process ends with."""
    done = fresh(data, source)
    assert done.returncode == 1, done
    return done.stderr.splitlines()[-1]


@pytest.fixture
def distances() -> opsmith.Library:
    return opsmith.load(DISTANCES)


@pytest.mark.parametrize("way", WAYS)
def test_a_function_works_where_only_the_package_is(distances: opsmith.Library, way: str) -> None:
    pair = (distances.pairwise_manhattan_distance, opsmith.ops.mat_mul, distances)
    data = WAYS[way](pair)
    assert pickle.loads(data) == pair
    source = """
        distance, product, library = load()
        import opsmith
        assert distance is library.pairwise_manhattan_distance and product is opsmith.ops.mat_mul
        print(distance([[1.0]], [[3.0]]), product([[2.0]], [[3.0]]), distance, library.__file__)
        assert not {"torch", "tensorflow", "jax"} & sys.modules.keys()
    """
    done = fresh(data, source)
    assert done.stdout.startswith("[[2.]] [[6.]] <function distances.pairwise_manhattan_distance"), (
        done.stderr
    )
    assert done.stdout.endswith(f"{DISTANCES.resolve()}\n")


def test_a_copy_is_the_same(distances: opsmith.Library) -> None:
    for value in (distances, distances.pairwise_manhattan_distance, opsmith.ops, opsmith.ops.mat_mul):
        assert copy.copy(value) is value and copy.deepcopy(value) is value


def test_standard_operators_are_found_by_their_module() -> None:
    data = pickle.dumps(opsmith.ops.mat_mul)
    assert b"opsmith" in data and b"ops.mat_mul" in data and b"/" not in data


def test_functions_reach_spawned_processes(distances: opsmith.Library) -> None:
    expected = np.full((2, 4), 3.0)
    context = get_context("spawn")
    with context.Pool(1) as pool:
        function = distances.pairwise_manhattan_distance
        np.testing.assert_array_equal(pool.apply(function, (X, Y)), expected)
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        np.testing.assert_array_equal(executor.submit(function, X, y=Y).result(), expected)
        np.testing.assert_array_equal(executor.submit(opsmith.ops.exp, np.zeros(2)).result(), [1, 1])


def test_loaded_libraries_are_there_by_name(distances: opsmith.Library) -> None:
    assert opsmith.libraries.distances is distances and "distances" in dir(opsmith.libraries)
    with pytest.raises(AttributeError, match="no library `nothing` has been loaded"):
        _ = opsmith.libraries.nothing


@pytest.fixture
def moved(tmp_path: Path) -> tuple[Path, bytes]:
    """A library's file, and what a process has pickled that loaded it from there."""
    file = tmp_path / "libmoved.so"
    shutil.copyfile(DISTANCES, file)
    code = f"""
        import opsmith, pickle
        function = opsmith.load({str(file)!r}).pairwise_manhattan_distance
        sys.stdout.buffer.write(pickle.dumps(function))
    """
    command = [sys.executable, "-c", "import sys\n" + textwrap.dedent(code)]
    return file, subprocess.run(command, capture_output=True, timeout=300, check=True).stdout


def test_a_library_that_is_missing(moved: tuple[Path, bytes]) -> None:
    file, data = moved
    file.unlink()
    what = f"cannot unpickle what is of the library `distances` 0.1.0 from {file}: "
    line = said(data)
    assert f"opsmith.NotFoundError: {what}" in fresh(data, "load()").stderr
    assert line == "  → put the file back there, or install the ops as a package (docs/publishing.md)"
    told = fresh(data, f"import opsmith\nopsmith.load({str(DISTANCES)!r})\nload()").stderr
    assert what in told and f"; this process has `distances` 0.1.0 from {DISTANCES.resolve()}\n  → " in told


def test_another_library_is_there(moved: tuple[Path, bytes]) -> None:
    file, data = moved
    what = f"FailedPreconditionError: cannot unpickle what is of the library `distances` 0.1.0 from {file}: "
    digest = opsmith.load(DISTANCES).__reduce__()[1][3].encode()
    assert digest in data and b"0.1.0" in data
    line = said(data.replace(b"0.1.0", b"0.9.0"))
    assert line.endswith(f"`distances` 0.9.0 from {file}: found `distances` 0.1.0 from {file}"), line
    line = said(data.replace(digest, digest[::-1]))
    assert what in line and line.endswith(f"found `distances` 0.1.0 from {file}, whose definitions differ")
    file.unlink()
    shutil.copyfile(LIBRARIES / "libzero_out.so", file)
    line = said(data)
    assert what in line and line.endswith(f"found `zero_out` 0.1.0 from {file}"), line


def test_another_build_of_the_same_definitions_is_in_the_process(moved: tuple[Path, bytes]) -> None:
    """The engine gives the library that was loaded first, whose kernels may compute something else."""
    file, data = moved
    load = f"import opsmith\nopsmith.load({str(DISTANCES)!r})\n"
    assert fresh(data, load + "print(load().__name__)").stdout == "pairwise_manhattan_distance\n"
    with open(file, "ab") as opened:
        opened.write(b"\0")
    line = said(data, load + "load()")
    assert f"from {file}: this process has `distances` 0.1.0 from {DISTANCES.resolve()}" in line, line
    assert line.endswith("and the files differ")
