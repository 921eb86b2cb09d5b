"""Pairwise Manhattan distances as three graphs: by loops, by broadcasting, and as one op of this library.

    python graphs.py --library PATH [--sizes 32 64 128] [--draw FOLDER]

prints how many nodes each graph has, how long a run takes and how much memory its tensors take at most;
with `--draw`, pictures of the three for two and three rows.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import opsmith
from opsmith import Graph, Library, Session
from opsmith.graph import Output

COLUMNS = 16
REPETITIONS = 7

Build = Callable[[Library, Output, Output], Output]


def loops(_: Library, x: Output, y: Output) -> Output:
    """A node for every difference of two rows, its absolute value and its sum."""
    assert x.shape and y.shape
    rows = [[x[i] for i in range(x.shape[0] or 0)], [y[j] for j in range(y.shape[0] or 0)]]
    distances = [abs(a - b).sum() for a in rows[0] for b in rows[1]]
    stacked: Output = opsmith.ops.stack(distances)
    return stacked.reshape(len(rows[0]), len(rows[1]))


def broadcasting(_: Library, x: Output, y: Output) -> Output:
    """Five nodes, and a tensor of shape (n, m, p) between them."""
    assert x.shape and y.shape
    difference = x.reshape(x.shape[0] or 0, 1, COLUMNS) - y.reshape(1, y.shape[0] or 0, COLUMNS)
    return abs(difference).sum(2)


def custom(library: Library, x: Output, y: Output) -> Output:
    """One node, and no memory but the result's."""
    distances: Output = library.pairwise_manhattan_distance(x, y)
    return distances


BUILDS: dict[str, Build] = {"loops": loops, "broadcasting": broadcasting, "custom": custom}


def build(library: Library, how: Build, n: int, m: int) -> tuple[Graph, Output, Output, Output]:
    """A graph of (n, p) and (m, p) inputs and their distances."""
    graph = Graph()
    x = graph.placeholder("float64", [n, COLUMNS], name="x")
    y = graph.placeholder("float64", [m, COLUMNS], name="y")
    return graph, x, y, how(library, x, y)


def measure(library: Library, how: Build, size: int) -> tuple[int, float, int]:
    """Nodes, seconds of a run (median), bytes of tensors at most."""
    graph, x, y, z = build(library, how, size, size)
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(size, COLUMNS)), rng.normal(size=(size, COLUMNS))
    session = Session(graph)
    feeds = {x: a, y: b}
    result = session.run(z, feeds)
    np.testing.assert_allclose(result, np.abs(a[:, None] - b[None]).sum(2), rtol=1e-13)
    del result
    session.reset_peak_memory()
    times = []
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        session.run(z, feeds)
        times.append(time.perf_counter() - start)
    return len(graph), statistics.median(times), session.memory[1]


def main() -> None:
    """Print the table, and draw if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--library", required=True, help="the built library, libdistances.so")
    parser.add_argument("--sizes", type=int, nargs="+", default=[32, 64, 128])
    parser.add_argument("--draw", type=Path, help="where to put pictures of the graphs")
    options = parser.parse_args()
    library = opsmith.load(options.library)
    print(f"{'n = m':>6} {'graph':<13} {'nodes':>7} {'time (ms)':>10} {'peak memory (KiB)':>18}")
    for size in options.sizes:
        for name, how in BUILDS.items():
            nodes, seconds, peak = measure(library, how, size)
            print(f"{size:>6} {name:<13} {nodes:>7} {1e3 * seconds:>10.3f} {peak / 1024:>18.1f}")
    if options.draw:
        options.draw.mkdir(parents=True, exist_ok=True)
        for name, how in BUILDS.items():
            graph, *_ = build(library, how, 2, 3)
            path = options.draw / f"pairwise_{name}.svg"
            path.write_text(graph.to_svg(), encoding="utf-8")
            print(f"{path}: {len(graph)} nodes")


if __name__ == "__main__":
    main()
