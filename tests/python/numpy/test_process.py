"""The process: threads, forks and memory stay in order whatever is called."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import opsmith
import pytest
from conftest import library_path
from numpy.testing import assert_array_equal

Ops = Callable[[str], Any]

SIZE = 160


def answer(library: opsmith.Library, seed: int) -> np.ndarray:
    """Distances of some points, enough for several threads."""
    points = np.random.default_rng(seed).normal(size=(SIZE, SIZE))
    return library.pairwise_manhattan_distance(points, points)


def resident() -> int:
    """The bytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_sixteen_threads_agree_with_one(distances: opsmith.Library) -> None:
    expected = [answer(distances, seed) for seed in range(16)]
    with ThreadPoolExecutor(16) as pool:
        for _ in range(5):
            for got, alone in zip(
                pool.map(lambda seed: answer(distances, seed), range(16)), expected, strict=True
            ):
                assert_array_equal(got, alone)


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python has no threads that run side by side"
)
def test_threads_of_a_free_threaded_python_stay_free() -> None:
    assert not sys._is_gil_enabled()  # type: ignore[attr-defined]


def test_other_threads_run_while_an_op_does(distances: opsmith.Library) -> None:
    points = np.random.default_rng(0).normal(size=(1500, 200))
    done = threading.Event()
    ticks = []

    def tick() -> None:
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.0005)

    ticker = threading.Thread(target=tick)
    ticker.start()
    begin = time.perf_counter()
    distances.pairwise_manhattan_distance(points, points)
    end = time.perf_counter()
    done.set()
    ticker.join()
    assert sum(begin < at < end for at in ticks) >= 3


def in_fork(seed: int) -> np.ndarray:
    """What a forked worker answers."""
    return answer(opsmith.load(library_path("distances")), seed)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_forked_workers_answer(distances: opsmith.Library) -> None:
    expected = [answer(distances, seed) for seed in range(4)]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        answers = pool.map_async(in_fork, range(4)).get(timeout=60)
    for got, alone in zip(answers, expected, strict=True):
        assert_array_equal(got, alone)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_raw_fork_and_its_child_answer(distances: opsmith.Library) -> None:
    expected = answer(distances, 7)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if np.array_equal(answer(distances, 7), expected):
                grandchild = os.fork()
                if grandchild == 0:
                    os._exit(0 if np.array_equal(answer(distances, 7), expected) else 1)
                status = os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1])
        finally:
            os._exit(status)
    deadline = time.monotonic() + 60
    while (waited := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    if waited[0] == 0:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert waited[0] == child, "the forked child hung"
    assert os.waitstatus_to_exitcode(waited[1]) == 0
    assert_array_equal(answer(distances, 7), expected)


@pytest.mark.skipif(
    not getattr(sys, "_is_gil_enabled", lambda: True)(),
    reason="CPython's own locks may be held in a forked child where threads run side by side",
)
@pytest.mark.parametrize(
    ("kind", "forks"),
    [("sessions", 25), ("graphs", 25), ("loops", 6), ("first", 3), ("standard", 3), ("all", 10)],
)
def test_a_child_that_is_forked_beside_busy_threads_works(kind: str, forks: int) -> None:
    script = Path(__file__).with_name("forks.py")
    environment = {**os.environ, "OPSMITH_LIB_DIR": str(library_path("distances").parent)}
    run = subprocess.run(
        [sys.executable, script, kind, str(forks)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def failing_calls(testops: Ops) -> list[Callable[[], object]]:
    """Calls that fail at every depth."""
    x = np.ones(2, np.float32)
    pairwise, fails, panics, make = (testops(name) for name in ("pairwise", "fails", "panics", "make"))
    return [
        lambda: pairwise(np.ones((1, 2)), np.ones((1, 3))),
        lambda: pairwise(np.ones((1, 2)), object()),
        lambda: pairwise(np.ones((1, 2)), [[1], [2, 3]]),
        lambda: fails(x),
        lambda: panics(x, attrs=("compute",)),
        lambda: make(attrs={"shape": [1.5]}),
        lambda: make(attrs={"shap": 1}),
        lambda: testops("allocates")(attrs=(1 << 60,)),
    ]


def test_a_hundred_thousand_failures_leak_nothing(testops: Ops) -> None:
    calls = failing_calls(testops)

    def fail(times: int) -> None:
        for at in range(times):
            try:
                calls[at % len(calls)]()
            except opsmith.Error:
                continue
            raise AssertionError("the call did not fail")

    fail(5_000)
    before = resident()
    fail(100_000)
    assert resident() - before < 1 << 20


def test_calls_leak_nothing(testops: Ops, distances: opsmith.Library) -> None:
    x = np.ones((8, 8))
    echo, double_all, lengths = testops("echo"), testops("double_all"), testops("string_length")

    def call(times: int) -> None:
        for _ in range(times):
            distances.pairwise_manhattan_distance(x, x.T)
            echo(x.astype(">f4"))
            double_all([[1.0], np.float32(2)])
            lengths(["a", "b"])

    call(2_000)
    before = resident()
    call(20_000)
    assert resident() - before < 1 << 20


PROGRAM = """
import sys
from pathlib import Path
import numpy as np
import opsmith

def threads():
    return len(list(Path("/proc/self/task").iterdir()))

x = np.ones((400, 400))
before = threads()
counts = []
for path in sys.argv[1:]:
    library = opsmith.load(path)
    if hasattr(library, "pairwise_manhattan_distance"):
        library.pairwise_manhattan_distance(x, x)
    if hasattr(library, "squares"):
        library.num_threads()
        library.squares(np.ones(1_000_000))
    counts.append(threads() - before)
print(*counts)
"""


def thread_counts(*libraries: str, **environment: str) -> list[int]:
    """How many threads of ours there are after each of these libraries has been loaded and used."""
    paths = [str(library_path(name)) for name in libraries]
    command = [sys.executable, "-c", PROGRAM, *paths]
    environment = {**os.environ, **environment}
    output = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    return [int(count) for count in output.split()]


def test_libraries_share_one_pool() -> None:
    [alone] = thread_counts("distances", OPSMITH_NUM_THREADS="4")
    assert 0 < alone <= 4
    together = thread_counts("distances", "opsmith_testops", "zero_out", OPSMITH_NUM_THREADS="4")
    assert together == [alone] * 3


def test_one_thread_starts_none() -> None:
    assert thread_counts("distances", "opsmith_testops", OPSMITH_NUM_THREADS="1") == [0, 0]
