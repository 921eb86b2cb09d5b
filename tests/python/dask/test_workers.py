"""Chunks that other processes compute: the library is found there, or the caller is told."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import dask.array as da
import numpy as np
import opsmith
import pytest
from conftest import library_path, load
from distributed import Client, LocalCluster
from numpy.testing import assert_allclose, assert_array_equal

X = np.random.default_rng(0).random((7, 4))
Y = np.random.default_rng(1).random((9, 4))
LAZY = da.from_array(X, chunks=(3, 2))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two worker processes of one thread each, which have loaded nothing."""
    settings = {
        "distributed.worker.use-file-locking": False,
        "distributed.scheduler.active-memory-manager.start": False,
        "temporary-directory": str(tmp_path_factory.mktemp("dask")),
    }
    with (
        dask.config.set(settings),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def moved(tmp_path: Path) -> Any:
    """Two lazy results that another process has made of a library in a file which is gone, and the file."""
    file = tmp_path / "libmoved.so"
    shutil.copyfile(library_path("pairwise"), file)
    code = f"""
        import os, sys, cloudpickle, opsmith, dask.array as da
        x = da.ones((7, 4), chunks=(3, 2))
        chebyshev = opsmith.load({str(file)!r}).chebyshev
        results = [chebyshev(x, 2 * x), chebyshev(x, 3 * x)]
        os.unlink({str(file)!r})
        assert (results[0].compute(scheduler="synchronous") == 1).all()  # it is loaded here
        sys.stdout.buffer.write(cloudpickle.dumps(results))
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return pickle.loads(done.stdout), file


def calls() -> list[tuple[Any, Any]]:
    """Lazy outputs of forward ops and of gradients, and what they are."""
    found = []
    g = np.random.default_rng(2).random((7, 9))
    G = da.from_array(g, chunks=(2, 5))
    distances, kernels = load("distances"), load("kernels")
    found.append((distances.pairwise_manhattan_distance, (LAZY, Y), (X, Y)))
    found.append((distances.pairwise_manhattan_distance_grad, (LAZY, Y, G), (X, Y, g)))
    found.append((kernels.gaussian_convolution, (LAZY, Y, np.ones((9, 2))), (X, Y, np.ones((9, 2)))))
    found.append((kernels.rbf_kernel_grad, (LAZY, Y, g, G), (X, Y, g, g)))
    found.append((opsmith.ops.softmax, (LAZY,), (X,)))
    return [(function(*given), function(*whole)) for function, given, whole in found]


def check(pairs: list[tuple[Any, Any]], **options: Any) -> None:
    computed = dask.compute([lazy for lazy, _ in pairs], **options)[0]
    for own, (_, expected) in zip(computed, pairs, strict=True):
        for one, other in zip(
            *([x] if isinstance(x, np.ndarray) else x for x in (own, expected)), strict=True
        ):
            assert_allclose(one, other, rtol=1e-12)


def test_threads() -> None:
    check(calls(), scheduler="threads", num_workers=4)


def test_processes() -> None:
    check(calls(), scheduler="processes", num_workers=2)


def test_a_cluster(client: Any) -> None:
    check(calls(), scheduler=client)
    told = client.run(lambda: (os.getpid(), os.environ["OPSMITH_NUM_THREADS"]))
    assert len({pid for pid, _ in told.values()} - {os.getpid()}) == 2
    assert {threads for _, threads in told.values()} == {"1"}


def test_functions_reach_workers(client: Any) -> None:
    distance = load("distances").pairwise_manhattan_distance
    assert_array_equal(client.submit(distance, X, Y).result(), distance(X, Y))
    norm = dask.delayed(load("reductions").norm)
    assert_array_equal(norm(X).compute(scheduler=client), load("reductions").norm(X))


def test_a_result_can_be_pickled(distances: opsmith.Library) -> None:
    z = distances.pairwise_manhattan_distance(LAZY, Y)
    for dumps in (pickle.dumps, cloudpickle.dumps):
        again = pickle.loads(dumps(z))
        assert_allclose(again.compute(), distances.pairwise_manhattan_distance(X, Y), rtol=1e-14)


def test_an_error_comes_back_from_a_worker(client: Any) -> None:
    texts = np.array(["1", "2", "three", "4"])
    numbers = load("zero_out").string_to_number(da.from_array(texts, chunks=2))
    message = r"StringToNumber: in the chunk \.\.\.\[-1\] = 2:4: .*three"
    with pytest.raises(opsmith.InvalidArgumentError, match=message) as raised:
        numbers.compute(scheduler=client)
    assert raised.value.code == "InvalidArgument"


def test_a_worker_without_the_library(moved: Any, client: Any) -> None:
    # A scheduler may still have the failure of the first when the second is asked for: two results.
    (first, second), file = moved
    what = rf"cannot unpickle what is of the library `pairwise` .* from {file}"
    with pytest.raises(opsmith.NotFoundError, match=f"Chebyshev: in the chunk n = .*: {what}") as raised:
        first.compute(scheduler=client)
    assert "put the file back there, or install the ops as a package" in str(raised.value)
    shutil.copyfile(library_path("zero_out"), file)
    with pytest.raises(opsmith.FailedPreconditionError, match=f"Chebyshev: .*{what}: found `zero_out`"):
        second.compute(scheduler=client)
