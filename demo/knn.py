"""Handwritten digits by Manhattan distance: an operator written in Rust against NumPy and SciPy.

Two classic uses of the distances between the rows of two tables, on scikit-learn's digits of 8 x 8 pixels:

- k nearest neighbours: a fifth of the digits is classified by a vote of its neighbours among the rest;
- k-medians, which is k-means with the Manhattan distance: ten clusters without looking at the labels.

Every method does the same work in a process of its own, so that none sees another's memory or threads. The
distances alone are timed; what comes before and after them is the same code for all.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from peak_memory import peak_extra_bytes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Distances = Callable[[Floats, Floats], Floats]

CLASSES = 10
NEIGHBOURS = 5
RESTARTS = 10
REPEATS = 7


def numpy_distances(_: Path) -> Distances:
    """What one writes without a library: simple, and it holds all n x m x p differences at once."""
    return lambda x, y: np.abs(x[:, None, :] - y[None, :, :]).sum(axis=2)


def scipy_distances(_: Path) -> Distances:
    """SciPy's compiled loop."""
    from scipy.spatial.distance import cdist

    return lambda x, y: cdist(x, y, metric="cityblock")


def opsmith_distances(library: Path) -> Distances:
    """The operator on NumPy arrays, through Opsmith's own engine."""
    import opsmith

    return opsmith.load(library).pairwise_manhattan_distance


def torch_distances(library: Path) -> Distances:
    """The same file as a native PyTorch operator; the tensors share the arrays' memory."""
    import torch

    torch.ops.load_library(library)
    op = torch.ops.distances.pairwise_manhattan_distance
    return lambda x, y: op(torch.from_numpy(x), torch.from_numpy(y)).numpy()


METHODS: dict[str, Callable[[Path], Distances]] = {
    "NumPy broadcasting": numpy_distances,
    "SciPy cdist": scipy_distances,
    "Opsmith on NumPy": opsmith_distances,
    "Opsmith in PyTorch": torch_distances,
}


@dataclass
class Digits:
    """The data set: loaded once and handed to every process, as scikit-learn takes long to import."""

    rows: Floats
    labels: Ints


@dataclass
class Outcome:
    """What one method found in one task."""

    labels: Ints
    accuracy: float
    distances: Floats
    seconds: float
    extra_bytes: int | None


@dataclass
class Stopwatch:
    """A distance function that notes how long each call of it takes."""

    function: Distances
    times: list[float] = field(default_factory=list)

    def __call__(self, x: Floats, y: Floats) -> Floats:
        """The distances between the rows of `x` and the rows of `y`."""
        started = time.perf_counter()
        result = self.function(x, y)
        self.times.append(time.perf_counter() - started)
        return result

    def median(self) -> float:
        """The median of the calls so far, in seconds."""
        return float(np.median(self.times))


def nearest_neighbours(digits: Digits, distances: Distances) -> Outcome:
    """Classify a fifth of the digits by the vote of their neighbours among the rest."""
    data, labels = digits.rows, digits.labels
    order = np.random.default_rng(0).permutation(len(data))
    test, train = order[: len(data) // 5], order[len(data) // 5 :]
    x, y = np.ascontiguousarray(data[test]), np.ascontiguousarray(data[train])
    extra_bytes = peak_extra_bytes(lambda: distances(x, y))
    watch = Stopwatch(distances)
    for _ in range(REPEATS):
        z = watch(x, y)
    neighbours = labels[train][np.argsort(z, axis=1, kind="stable")[:, :NEIGHBOURS]]
    votes = (neighbours[:, :, None] == np.arange(CLASSES)).sum(axis=1)
    found = votes.argmax(axis=1)
    return Outcome(found, float((found == labels[test]).mean()), z, watch.median(), extra_bytes)


def k_medians(digits: Digits, distances: Distances) -> Outcome:
    """Find ten clusters; their accuracy is that of giving each cluster its most frequent label."""
    data, labels = digits.rows, digits.labels
    rng = np.random.default_rng(0)
    starts = [data[rng.choice(len(data), CLASSES, replace=False)] for _ in range(RESTARTS)]
    extra_bytes = peak_extra_bytes(lambda: distances(data, starts[0]))
    watch = Stopwatch(distances)
    runs = [one_clustering(data, centres, watch) for centres in starts]
    clusters, z = min(runs, key=lambda run: float(run[1].min(axis=1).sum()))
    hits = sum(np.bincount(labels[clusters == cluster]).max(initial=0) for cluster in range(CLASSES))
    return Outcome(clusters, float(hits / len(data)), z, watch.median(), extra_bytes)


def one_clustering(data: Floats, centres: Floats, distances: Distances) -> tuple[Ints, Floats]:
    """Move each centre to the median of the rows nearest to it until no row changes its cluster."""
    centres = centres.copy()
    clusters = np.full(len(data), -1)
    while True:
        z = distances(data, centres)
        nearest = z.argmin(axis=1)
        if np.array_equal(nearest, clusters):
            return clusters, z
        clusters = nearest
        for cluster in np.unique(clusters):
            centres[cluster] = np.median(data[clusters == cluster], axis=0)


def load_digits() -> Digits:
    """scikit-learn's digits, which are in its package."""
    from sklearn import datasets

    return Digits(*datasets.load_digits(return_X_y=True))


TASKS: dict[str, Callable[[Digits, Distances], Outcome]] = {
    f"{NEIGHBOURS} nearest neighbours": nearest_neighbours,
    f"k-medians, {RESTARTS} restarts": k_medians,
}


def run_method(method: str, library: Path, digits: Digits) -> dict[str, Outcome]:
    """All tasks by one method, after a first call that pays for loading and starting threads."""
    distances = METHODS[method](library)
    distances(np.zeros((64, 8)), np.zeros((64, 8)))
    return {task: function(digits, distances) for task, function in TASKS.items()}


def run_methods(
    methods: list[str], library: Path, digits: Digits
) -> Iterator[tuple[str, dict[str, Outcome]]]:
    """Each method's outcomes, from a fresh process each."""
    for method in methods:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            yield method, pool.submit(run_method, method, library, digits).result()


def row(task: str, method: str, outcome: Outcome, reference: Outcome, is_reference: bool) -> list[str]:
    """One line of the table; `reference` is NumPy's outcome of the same task."""
    same = float((outcome.labels == reference.labels).mean())
    difference = float(np.abs(outcome.distances - reference.distances).max())
    memory = "not measured" if outcome.extra_bytes is None else f"{outcome.extra_bytes / 1e6:.1f} MB"
    return [
        task,
        method,
        f"{outcome.accuracy:.1%}",
        "reference" if is_reference else f"{same:.1%}",
        "reference" if is_reference else f"{difference:.1e}" if difference else "none",
        f"{outcome.seconds * 1e3:.2f} ms",
        f"{reference.seconds / outcome.seconds:.1f} x",
        memory,
    ]


def aligned(rows: list[list[str]]) -> str:
    """The rows as text, words to the left and figures to the right, with a rule under the headings."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows = [rows[0], ["-" * width for width in widths], *rows[1:]]
    lines = []
    for cells in rows:
        padded = [
            cell.ljust(width) if index < 2 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def main() -> int:
    """Print the table; the exit status is 1 when a method disagrees with NumPy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=Path, required=True, help="the built libdistances.so")
    library = parser.parse_args().library.resolve()
    methods = [name for name in METHODS if "PyTorch" not in name or importlib.util.find_spec("torch")]

    digits = load_digits()
    count, pixels = digits.rows.shape
    print(f"{count:,} handwritten digits of {pixels} pixels, float64, {os.cpu_count()} cores\n", flush=True)
    outcomes = {}
    for method, outcome in run_methods(methods, library, digits):
        outcomes[method] = outcome
        print(f"  {method}: done", flush=True)

    reference = methods[0]
    rows = [["task", "method", "accuracy", "same labels", "difference", "one call", "speed", "extra memory"]]
    for task in TASKS:
        for method in methods:
            rows.append(
                row(task, method, outcomes[method][task], outcomes[reference][task], method == reference)
            )
    print(f"\n{aligned(rows)}\n")
    print("same labels, difference: predictions equal to NumPy's, and the largest difference of a distance")
    print("one call: the median time of a call of the distance function")
    print("extra memory: growth of the process's peak resident memory in one call, the result included")

    agree = all(
        np.allclose(outcomes[method][task].distances, outcomes[reference][task].distances, rtol=1e-12)
        for method in methods
        for task in TASKS
    )
    print(f"\n{'All methods agree.' if agree else 'A METHOD DISAGREES WITH NUMPY.'}")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
