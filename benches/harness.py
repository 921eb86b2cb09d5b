"""How contenders are compared: interleaved rounds, medians, and targets as ratios.

A suite is a module `benches/suite_<name>.py` with `TITLE` and a function `cases(options) -> Iterator[Case]`.
Its docstring goes into the report. Each suite runs in a process of its own.
"""

from __future__ import annotations

import ctypes
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[1]
# The demo measures memory in the same way.
sys.path.append(str(ROOT / "demo"))

from peak_memory import peak_extra_bytes  # noqa: E402

__all__ = [
    "FRESH",
    "OURS",
    "REUSED",
    "ROOT",
    "SKIPPED",
    "Case",
    "Options",
    "Result",
    "Target",
    "is_usable",
    "isolated",
    "measured",
    "peak_extra_bytes",
]

T = TypeVar("T")

OURS = "Opsmith"
"""The name of our contender in every case."""

ROUNDS = 31
QUICK_ROUNDS = 5
BATCH_SECONDS = 0.05
TWICE_ROUNDS = 15
TWICE_BATCH_SECONDS = 0.02
WARM_UP_BATCHES = 6

FRESH, REUSED = "fresh output", "reused memory"
"""The two ways in which a case that is measured twice gets the memory of its outputs."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4
"""Of glibc's `mallopt`: from how much on free memory goes back to the system, from how much on an allocation
is a mapping of its own, and how many may be such mappings."""
ALLOCATOR = {
    FRESH: {M_MMAP_MAX: 1 << 16, M_MMAP_THRESHOLD: 1 << 16, M_TRIM_THRESHOLD: 0},
    REUSED: {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: (1 << 31) - 1},
}
"""To set a threshold also keeps glibc from moving it by itself."""

SKIPPED: list[str] = []
"""What this suite leaves out, and why, for the report."""


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
    With `twice`, calls are timed with outputs in fresh memory and with outputs in reused memory. The
    second comes when the suite is at its end, so the functions must not change meanwhile.
    """

    name: str
    contenders: dict[str, Callable[[], object]]
    targets: Sequence[Target] = ()
    memory: bool = False
    rounds: int = 0
    twice: bool = False


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


def measured(cases: Iterator[Case], options: Options) -> Iterator[Result]:
    """Measure cases one after another, and at the end those again that want reused memory.

    At the end, as the allocator would give memory that it has once kept to what is to get fresh memory.
    """
    again = []
    for case in cases:
        if case.twice:
            again.append(replace(case, name=f"{case.name}, {REUSED}"))
            set_allocator(FRESH)
            yield measure(replace(case, name=f"{case.name}, {FRESH}"), options)
        else:
            yield measure(case, options)
    for case in again:
        set_allocator(REUSED)
        yield measure(case, options)


def set_allocator(mode: str) -> None:
    """Make glibc take the memory of 64 KB and more from the system each time, or keep what it once had."""
    libc = ctypes.CDLL(None)
    for parameter, value in ALLOCATOR[mode].items():
        if libc.mallopt(parameter, value) != 1:
            raise OSError(f"mallopt refuses {value} for {parameter}")
    libc.malloc_trim(0)


def measure(case: Case, options: Options) -> Result:
    """Measure all contenders of a case in turns, so that a disturbance of the machine hits them alike."""
    if case.memory:
        values = {name: memory_of(function) for name, function in case.contenders.items()}
    elif case.rounds:
        values = timed_by_themselves(case, 1 if options.quick else case.rounds)
    else:
        rounds = QUICK_ROUNDS if options.quick else TWICE_ROUNDS if case.twice else ROUNDS
        values = interleaved(case.contenders, rounds, TWICE_BATCH_SECONDS if case.twice else BATCH_SECONDS)
    return Result(case.name, values, list(case.targets), case.memory)


def is_usable(name: str, trial: Callable[[], object]) -> bool:
    """Whether a peer that needs more than its package works here; if not, that it is left out is said."""
    try:
        trial()
    except Exception as error:
        why = next(iter(str(error).splitlines()), "")
        SKIPPED.append(f"{name} ({type(error).__name__}: {why})")
        print(f"  left out: {SKIPPED[-1]}", flush=True)
        return False
    return True


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


def interleaved(contenders: dict[str, Callable[[], object]], rounds: int, seconds: float) -> dict[str, float]:
    """The median over `rounds` of each contender's seconds per call; the order changes in every round."""
    calls = {name: calls_per_batch(function, seconds) for name, function in contenders.items()}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    order = list(contenders)
    rng = random.Random(0)
    for _ in range(rounds):
        rng.shuffle(order)
        for name in order:
            times[name].append(batch(contenders[name], calls[name]))
    return {name: statistics.median(values) for name, values in times.items()}


def calls_per_batch(function: Callable[[], object], seconds: float) -> int:
    """Warm a contender up and find how many calls fill a batch of so many seconds."""
    function()
    started = time.perf_counter()
    count = 0
    while count == 0 or time.perf_counter() - started < seconds * WARM_UP_BATCHES:
        function()
        count += 1
    per_call = (time.perf_counter() - started) / count
    return max(1, round(seconds / per_call))


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
