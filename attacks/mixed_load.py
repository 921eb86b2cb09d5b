"""Sixteen threads for minutes, in one process with all frameworks: calls with gradients, graphs, sessions,
files, just-in-time builds, and calls that fail.

Every result is compared with NumPy's, every failure has to be the error it should be, and at the end the
process may have no more memory, threads and open files than half-way. What is new is built just in time in
the first half alone, since a library stays in its process, and its entry in the cache is held open.

Run it with the folder of the built libraries: `python attacks/mixed_load.py target/release [MINUTES [SEED]]`.
"""

from __future__ import annotations

import faulthandler
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import numpy as np
import opsmith
import tensorflow as tf
import torch
from opsmith import jit

THREADS = 16
PATIENCE = 600
"""So many seconds without a line mean that it hangs."""
PAUSE = 20.0
"""So many seconds lie between two builds of something new."""
ROOM_KIB = 32 << 10
"""So much memory may be there at the end that was not there half-way: blocks that allocators keep."""
SOURCE = """
/// Adds VALUE to each number.
#[op(shape = "(n)->(n)")]
fn shifted(x: ArrayView1<f64>, mut y: ArrayViewMut1<f64>) {
    azip!((y in &mut y, &x in &x) *y = x + VALUE.0);
}
"""
# JAX and TensorFlow compile, and keep, something for each shape.
SHAPES = [(3, 4, 5), (16, 8, 3), (40, 30, 20)]

Job = Callable[[random.Random], None]


class Wrong(Exception):
    """What must not be."""


def same(found: Any, expected: np.ndarray, what: str) -> None:
    """Fail where the numbers differ."""
    found = np.asarray(found)
    if found.shape != expected.shape or not np.allclose(found, expected, rtol=1e-4, atol=1e-5):
        raise Wrong(f"{what}: {found!r} instead of {expected!r}")


@contextmanager
def fails(said: str, *errors: type[Exception]) -> Iterator[None]:
    """Fail unless this is an error that says so."""
    try:
        yield
    except errors as error:
        if said not in str(error):
            raise Wrong(f"instead of {said!r} it says {error!r}") from error
        return
    raise Wrong(f"no error says {said!r}")


class Load:
    """The jobs, and what they share."""

    def __init__(self, libraries: Path, folder: Path) -> None:
        self.folder = folder
        self.file = libraries / "libdistances.so"
        self.cut = folder / "libcut.so"
        self.cut.write_bytes(self.file.read_bytes()[:10_000])
        self.distances = opsmith.load(self.file)
        self.testops = opsmith.load(libraries / "libopsmith_testops.so")
        self.ops = opsmith.load(libraries / "libopsmith_ops.so")
        self.pairwise = self.distances.pairwise_manhattan_distance
        self.jax_gradient = jax.jit(jax.grad(lambda x, y: self.pairwise(x, y).sum()))
        self.tensorflow_gradient = tf.function(self.tape, reduce_retracing=True)
        graph = opsmith.Graph()
        x = graph.placeholder("float64", [None, None], name="x")
        weights = graph.variable(np.ones((4, 4)), name="weights")
        loss = opsmith.ops.tanh(x @ weights).sum()
        (gradient,) = opsmith.gradients(loss, weights)
        self.graph, self.x, self.fetched = graph, x, [loss, gradient]
        self.session = opsmith.Session(graph, threads=2)
        self.session.initialize()
        self.session.save(folder / "weights")
        self.building = threading.Lock()
        self.built: list[int] = []
        self.next_build = 0.0
        self.last_build = float("inf")
        # What ops depend on is compiled before the time begins.
        self.builds(random.Random(0))

    def tape(self, x: Any, y: Any) -> Any:
        """TensorFlow's gradient."""
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(self.pairwise(x, y))
        return tape.gradient(total, x)

    def numbers(self, rng: random.Random) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Two inputs, and the gradient of the sum of their distances by the first."""
        n, m, k = rng.choice(SHAPES)
        generator = np.random.default_rng(rng.randrange(1 << 30))
        x, y = (generator.normal(size=(rows, k)).astype("float32") for rows in (n, m))
        return x, y, np.sign(x[:, None] - y).sum(1)

    def numpy(self, rng: random.Random) -> None:
        """Eager calls of a library and of the standard operators."""
        x, y, _ = self.numbers(rng)
        same(self.pairwise(x, y), np.abs(x[:, None] - y).sum(-1), "numpy")
        same(opsmith.ops.mat_mul(x, np.ascontiguousarray(y.T)), x @ y.T, "mat_mul")

    def torch(self, rng: random.Random) -> None:
        """A call with its gradient."""
        x, y, expected = self.numbers(rng)
        tensor = torch.tensor(x, requires_grad=True)
        self.pairwise(tensor, torch.from_numpy(y)).sum().backward()
        same(tensor.grad, expected, "torch")
        same(self.ops.exp(torch.from_numpy(x)), np.exp(x), "exp")

    def tensorflow(self, rng: random.Random) -> None:
        """A gradient, compiled or not."""
        x, y, expected = self.numbers(rng)
        gradient = rng.choice([self.tape, self.tensorflow_gradient])
        same(gradient(tf.constant(x), tf.constant(y)), expected, "tensorflow")

    def jax(self, rng: random.Random) -> None:
        """A compiled gradient."""
        x, y, expected = self.numbers(rng)
        same(self.jax_gradient(x, y), expected, "jax")

    def sessions(self, rng: random.Random) -> None:
        """A session that all threads share, and one of a graph that this thread has saved and loaded."""
        x = np.random.default_rng(rng.randrange(1 << 30)).normal(size=(rng.choice([2, 50]), 4))
        expected = np.tanh(x @ np.ones((4, 4)))
        loss, gradient = self.session.run(self.fetched, {self.x: x})
        same(loss, expected.sum(), "session")
        same(gradient, x.T @ (1 - expected**2), "its gradient")
        path = self.folder / f"graph-{threading.get_ident()}"
        self.graph.save(path)
        graph = opsmith.Graph.load(path)
        session = opsmith.Session(graph, threads=rng.choice([1, 2]))
        session.restore(self.folder / "weights")
        output = graph.output(self.fetched[0].name)
        same(session.run(output, {graph.output("x"): x}), expected.sum(), "loaded")
        session.save(path)

    def builds(self, rng: random.Random) -> None:
        """A library built just in time, or one that was."""
        with self.building:
            now = time.monotonic()
            new = not self.built or self.next_build <= now < self.last_build
            if new:
                self.built.append(len(self.built) + 1)
                self.next_build = now + PAUSE
            value = self.built[-1] if new else rng.choice(self.built)
        library = jit.load_inline("shifting", SOURCE.replace("VALUE", str(value)))
        same(library.shifted(np.zeros(3)), np.full(3, float(value)), "built")

    def failures(self, rng: random.Random) -> None:
        """Calls that fail before, while and after they compute, and files that are none."""
        x, bad = np.ones((2, 3), "float32"), np.ones((2, 2), "float32")
        makers: list[tuple[Callable[[np.ndarray], Any], tuple[type[Exception], ...]]] = [
            (np.asarray, (opsmith.Error,)),
            (torch.from_numpy, (RuntimeError,)),
            (tf.constant, (tf.errors.OpError,)),
            (jax.numpy.asarray, (opsmith.Error, jax.errors.JaxRuntimeError)),
        ]
        make, errors = rng.choice(makers)
        with fails("", *errors):
            self.pairwise(make(x), make(bad))
        with fails("as it should", *errors):
            out = self.testops.fails(make(x), message="as it should")
            getattr(out, "block_until_ready", lambda: None)()
        if make is not jax.numpy.asarray:
            with fails("panicked", *errors):
                self.testops.panics(make(x), place="compute")
        with fails("", opsmith.Error):
            opsmith.load(self.cut)
        with fails("", opsmith.Error):
            opsmith.Graph.load(self.cut)
        with fails("", opsmith.Error):
            self.session.run(self.fetched, {self.x: np.ones((2, 3))})

    def jobs(self) -> dict[str, tuple[Job, int]]:
        """What there is to do, and how often each is chosen."""
        return {
            "NumPy": (self.numpy, 8),
            "PyTorch": (self.torch, 8),
            "TensorFlow": (self.tensorflow, 8),
            "JAX": (self.jax, 8),
            "sessions": (self.sessions, 4),
            "builds": (self.builds, 1),
            "failures": (self.failures, 4),
        }


def state() -> tuple[int, int, int, int]:
    """Memory in KiB, threads, open files, and maps of this process."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    maps = len(Path("/proc/self/maps").read_text().splitlines())
    return (
        int(status["VmRSS"].split()[0]),
        int(status["Threads"]),
        len(os.listdir("/proc/self/fd")),
        maps,
    )


def work(load: Load, number: int, seed: int, end: float, done: Counter[str], wrong: list[str]) -> None:
    """One thread's jobs until the time is over."""
    rng = random.Random(f"{seed}/{number}")
    jobs = load.jobs()
    names, weights = list(jobs), [weight for _, weight in jobs.values()]
    while time.monotonic() < end and len(wrong) < 20:
        (name,) = rng.choices(names, weights)
        try:
            jobs[name][0](rng)
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {error}")
        done[name] += 1


def watch(load: Load, begin: float, end: float, counts: list[Counter[str]]) -> list[tuple[int, ...]]:
    """What the process has, again and again until the time is over; printed as a table."""
    print("| minute | jobs | built | MiB | threads | files | maps |\n|---|---|---|---|---|---|---|")
    states: list[tuple[int, ...]] = []
    pause = max(1.0, (end - begin) / 60)
    while (now := time.monotonic()) < end:
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        time.sleep(min(pause, max(0.0, end - now)))
        states.append(state())
        kib, *others = states[-1]
        jobs = sum(sum(count.values()) for count in counts)
        row = [f"{(time.monotonic() - begin) / 60:.1f}", jobs, len(load.built), kib >> 10, *others]
        print("| " + " | ".join(map(str, row)) + " |", flush=True)
    return states


def growth(states: list[tuple[int, ...]]) -> list[str]:
    """What there is more of at the end than half-way: of each quarter the least, since files are open for a
    moment."""
    half, quarter = len(states) // 2, max(1, len(states) // 4)
    parts = [states[half : half + quarter], states[-quarter:]]
    names, rooms = ["KiB of memory", "threads", "open files"], [ROOM_KIB, 0, 0]
    more = []
    for at, (name, room) in enumerate(zip(names, rooms, strict=True)):
        before, after = (min(state[at] for state in part) for part in parts)
        print(f"{name}: {before} half-way, {after} at the end")
        if after > before + room:
            more.append(f"{after - before} {name} more")
    return more


def main() -> int:
    """Run the threads, and show what came of it; the status says whether all was well."""
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    minutes, seed = [*map(float, sys.argv[2:]), *[90.0, 1.0][len(sys.argv) - 2 :]]
    libraries, folder = Path(sys.argv[1]).resolve(), Path(tempfile.mkdtemp())
    # What the tests have compiled that ops depend on.
    os.environ.setdefault("OPSMITH_CACHE_DIR", str(libraries.parent / "tests" / "jit"))
    try:
        load = Load(libraries, folder)
        begin = time.monotonic()
        end = begin + 60 * minutes
        load.last_build = begin + 30 * minutes
        counts: list[Counter[str]] = [Counter() for _ in range(THREADS)]
        wrong: list[str] = []
        threads = [
            threading.Thread(target=work, args=(load, at, int(seed), end, count, wrong))
            for at, count in enumerate(counts)
        ]
        for thread in threads:
            thread.start()
        states = watch(load, begin, end, counts)
        for thread in threads:
            thread.join()
    finally:
        shutil.rmtree(folder)
    faulthandler.cancel_dump_traceback_later()
    print(dict(sum(counts, Counter()).most_common()))
    wrong += growth(states)
    for text in wrong:
        print(f"WRONG {text}")
    print(f"{sum(sum(count.values()) for count in counts)} jobs, {len(wrong)} wrong", flush=True)
    # Not what frameworks do when they end, which is not ours.
    os._exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
