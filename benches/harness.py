"""How contenders are compared: interleaved rounds, medians, and targets as ratios.

A suite is a module `benches/suite_<name>.py` with `TITLE` and a function `cases(options) -> Iterator[Case]`.
Its docstring goes into the report. Each suite runs in a process of its own.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[1]
# The demo measures memory in the same way.
sys.path.append(str(ROOT / "demo"))

from peak_memory import peak_extra_bytes  # noqa: E402

__all__ = ["OURS", "ROOT", "Case", "Options", "Result", "Target", "isolated", "measure", "peak_extra_bytes"]

T = TypeVar("T")

OURS = "Opsmith"
"""The name of our contender in every case."""

ROUNDS = 31
QUICK_ROUNDS = 5
BATCH_SECONDS = 0.05
WARM_UP_SECONDS = 0.3


@dataclass(frozen=True)
class Options:
    """What a suite gets: where the built libraries lie, and whether only a quick look is wanted."""

    libraries: Path
    quick: bool

    def library(self, name: str) -> str:
        """The path of the built library `name`, such as `"distances"`."""
        return str(self.libraries / f"lib{name}.so")

    def kept(self, suite: str) -> Path:
        """The file that keeps what has been measured of a suite, beside the folder of the libraries."""
        return self.libraries.parent / "bench" / f"{suite}.json"


@dataclass(frozen=True)
class Target:
    """Ours is to be at most `limit` times the best of `peers`; without peers, at most `limit` seconds."""

    limit: float
    peers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """One line of a table: the same work by `OURS` and by every peer.

    `contenders` maps a name to a function without arguments that does the work once. With `memory` the peak
    extra memory of one call is compared instead of its time. With `rounds`, the functions are called that
    often and no more, and give the seconds that they took: for what is slow, or does more than is measured.
    """

    name: str
    contenders: dict[str, Callable[[], object]]
    targets: Sequence[Target] = ()
    memory: bool = False
    rounds: int = 0


@dataclass
class Result:
    """A case and what was measured: seconds per call, or bytes for a case of memory."""

    name: str
    values: dict[str, float]
    targets: list[Target] = field(default_factory=list)
    memory: bool = False

    def ratio(self, target: Target) -> float:
        """Ours divided by the best of the target's peers; ours itself, if there are none."""
        if not target.peers:
            return self.values[OURS]
        return self.values[OURS] / min(self.values[peer] for peer in target.peers)

    def is_met(self, target: Target) -> bool:
        """Whether ours is within the target."""
        return self.ratio(target) <= target.limit


def measure(case: Case, options: Options) -> Result:
    """Measure all contenders of a case in turns, so that a disturbance of the machine hits them alike."""
    if case.memory:
        values = {name: memory_of(function) for name, function in case.contenders.items()}
    elif case.rounds:
        values = timed_by_themselves(case, 1 if options.quick else case.rounds)
    else:
        values = interleaved(case.contenders, QUICK_ROUNDS if options.quick else ROUNDS)
    return Result(case.name, values, list(case.targets), case.memory)


def timed_by_themselves(case: Case, rounds: int) -> dict[str, float]:
    """The median over `rounds` of the seconds that each contender gives."""
    times: dict[str, list[float]] = {name: [] for name in case.contenders}
    for _ in range(rounds):
        for name, function in case.contenders.items():
            times[name].append(float(function()))  # type: ignore[arg-type]
    return {name: statistics.median(values) for name, values in times.items()}


def memory_of(function: Callable[[], object]) -> float:
    """The peak extra memory of one call in bytes, after a first call that pays for what is made once."""
    function()
    measured = peak_extra_bytes(function)
    return float("nan") if measured is None else float(measured)


def interleaved(contenders: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median over `rounds` of each contender's seconds per call; the order changes in every round."""
    calls = {name: calls_per_batch(function) for name, function in contenders.items()}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    order = list(contenders)
    rng = random.Random(0)
    for _ in range(rounds):
        rng.shuffle(order)
        for name in order:
            times[name].append(batch(contenders[name], calls[name]))
    return {name: statistics.median(values) for name, values in times.items()}


def calls_per_batch(function: Callable[[], object]) -> int:
    """Warm a contender up and find how many calls fill a batch."""
    function()
    started = time.perf_counter()
    count = 0
    while count == 0 or time.perf_counter() - started < WARM_UP_SECONDS:
        function()
        count += 1
    per_call = (time.perf_counter() - started) / count
    return max(1, round(BATCH_SECONDS / per_call))


def batch(function: Callable[[], object], calls: int) -> float:
    """Seconds per call over `calls` calls in a row."""
    started = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - started) / calls


def isolated(function: Callable[..., T], *arguments: object) -> T:
    """Call a function of a module in a fresh process, for what must not share one (memory, registrations)."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()
