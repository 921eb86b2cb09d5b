"""Forks a process whose other threads are busy, and has each child do all kinds of work.

    python forks.py KIND FORKS

Each process begins as a fork of one that has one thread and has called nothing, so what is done once in a
process is being done at many of the forks. A child that does not end in time, or whose results are wrong, is
an error.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import opsmith

DISTANCES = Path(os.environ["OPSMITH_LIB_DIR"]) / "libdistances.so"

LIMIT = 20.0
"""How many seconds a child has."""

N = 64
"""The rows of a matrix with enough work for several threads."""


def loop() -> None:
    """Call an op whose loop several threads share."""
    points = [[float(row + column) for column in range(N)] for row in range(N)]
    distances = opsmith.load(DISTANCES).pairwise_manhattan_distance(points, points)
    assert distances[0, 1] == N and distances[N - 1, 0] == N * (N - 1)


def standard() -> None:
    """Load the standard operators, and call some."""
    product = opsmith.ops.mat_mul([[1.0, 2.0]], [[3.0], [4.0]])
    assert product == [[11.0]]
    assert opsmith.ops.add([1.0], [2.0]) == [3.0]
    assert opsmith.ops.square([3.0]) == [9.0]


def build() -> tuple[opsmith.Session, opsmith.graph.Operation, opsmith.graph.Output]:
    """Build a graph, with a variable that grows by 1 at each step."""
    graph = opsmith.Graph()
    with graph.scope("layer"):
        x = graph.placeholder("float64", [None], name="x")
        w = graph.variable([1.0, 2.0], name="w")
        y = opsmith.ops.exp(x * 0.0) + w
    session = opsmith.Session(graph)
    session.initialize()
    assert list(session.run(y, {x: [5.0, 6.0]})) == [2.0, 3.0]
    return session, w.assign(w + 1.0), w


def graph() -> None:
    """Build a graph and run it."""
    build()


KINDS: dict[str, tuple[int, list[Callable[[], object]]]] = {
    # How many forks a process makes, and what its other threads do, again and again.
    "sessions": (25, []),
    "graphs": (25, [graph, graph]),
    "loops": (6, [loop, loop]),
    "first": (1, [loop]),
    "standard": (1, [standard]),
    "all": (10, [loop, standard, graph]),
}


def work(kind: str) -> tuple[int, list[Callable[[], object]], list[Callable[[], object]]]:
    """How often to fork, what is done beside, and what a child does."""
    forks, busy = KINDS[kind]
    child: list[Callable[[], object]] = [loop, standard, graph]
    if kind == "sessions":
        session, step, value = build()

        def shared() -> None:
            session.run([step])
            assert (session.run(value) >= 2.0).all()

        busy = [shared, shared]
        child.append(shared)
    return forks, busy, child


def attempt(kind: str, seed: int) -> int:
    """Fork beside busy threads; gives how many children failed."""
    forks, busy, child = work(kind)
    delay = random.Random(seed)
    stop = threading.Event()

    def again(body: Callable[[], object]) -> None:
        while not stop.is_set():
            try:
                body()
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)

    threads = [threading.Thread(target=again, args=(body,), daemon=True) for body in busy]
    for thread in threads:
        thread.start()
    failed = 0
    for _ in range(forks):
        time.sleep(delay.choice([0.0, 0.0005, 0.002, 0.01, 0.05]) * delay.random())
        failed += not ends_well(lambda: [body() for body in child])
    stop.set()
    # A thread that hangs is the process's failure.
    for thread in threads:
        thread.join()
    return failed


def ends_well(body: Callable[[], object], limit: float = LIMIT) -> bool:
    """Whether a forked child does this in time."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            body()
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)
    deadline = time.monotonic() + limit
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            # Where it hangs is shown.
            os.kill(child, signal.SIGUSR1)
            time.sleep(0.5)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return False
        time.sleep(0.0005)
    return os.waitstatus_to_exitcode(ended[1]) == 0


def main(kind: str, total: int) -> int:
    """Fork that often in all; gives how many children failed."""
    each = KINDS[kind][0]
    attempts = max(1, total // each)
    failed = 0
    for seed in range(attempts):
        failed += not ends_well(lambda seed=seed: os._exit(attempt(kind, seed) > 0), (each + 1) * LIMIT)
    print(f"{kind}: {attempts * each} forks of {attempts} processes, in {failed} of them a child failed")
    return failed


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)
    sys.exit(main(sys.argv[1], int(sys.argv[2])) > 0)
