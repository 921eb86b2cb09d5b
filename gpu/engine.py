"""Graphs of the embedded engine on a card, against the same graphs on the CPU.

Values, gradients, training, what is copied between, and what is wrong. It needs NumPy and the package, and no
framework.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import opsmith
from devices import Job
from results import FAILED, NOT_RUN, PASSED, Results

TOLERANCES = {"float64": 1e-9, "float32": 1e-4}
NO_SUCH_CARD = "cuda:99"


class Missing(Exception):
    """Why a check cannot be made here."""


def run(job: Job, results: Results) -> None:
    """Every check, each followed by a graph that must run."""
    place = f"cuda:{job.device.torch.index}" if job.device.is_card else "cpu"
    for check in CHECKS:
        what = (check.__doc__ or "").rstrip(".")
        try:
            cases = check(place, job.folder)
            usual(place)
        except Missing as missing:
            results.say("engine", what, NOT_RUN, str(missing))
        except Exception as error:
            results.say("engine", what, FAILED, f"{type(error).__name__}: {error}")
        else:
            results.say("engine", what, PASSED, cases=cases)


def usual(place: str) -> None:
    """A graph as any other."""
    graph = opsmith.Graph()
    with graph.device(place):
        x = graph.placeholder("float32", [None])
        y = opsmith.ops.exp(x) + 1.0
    found = opsmith.Session(graph).run(y, {x: [0.0, 1.0]})
    close("a usual graph", found, np.exp([0.0, 1.0]) + 1.0, "float32")


def close(what: str, found: Any, expected: Any, dtype: str) -> None:
    """Raise where numbers differ by more than rounding."""
    tolerance = TOLERANCES[dtype]
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=what)


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray[Any, Any]:
    """Numbers between 0.1 and 2: where every function is smooth."""
    return np.random.default_rng(seed).uniform(0.1, 2.0, shape).astype(dtype)


def refused(function: Callable[[], object], kind: type[Exception], *words: str) -> None:
    """Raise unless the call is an error of this kind with these words in it."""
    try:
        function()
    except kind as error:
        wrong = [word for word in words if word not in str(error)]
        assert not wrong, f"the error does not say {wrong}: {error}"
        return
    raise AssertionError("no error came")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": lambda x, y: x + y[:1],
    "product": lambda x, y: x * y,
    "quotient": lambda x, y: x / y,
    "power": lambda x, y: x**2 * y,
    "functions": lambda x, y: opsmith.ops.tanh(opsmith.ops.exp(x) - opsmith.ops.log(y)),
    "roots": lambda x, y: opsmith.ops.sqrt(x) * opsmith.ops.gelu(y) + opsmith.ops.sigmoid(x),
    "matrices": lambda x, y: x @ y.T,
    "layout": lambda x, y: opsmith.ops.pad(x.T.reshape(-1, 4), [[1, 0], [0, 2]])[:, 1:-1],
    "reductions": lambda x, y: x.sum(axis=0) * y.mean(axis=0),
    "softmax": lambda x, y: opsmith.ops.softmax(x) * opsmith.ops.log_softmax(y),
}
"""Of two tensors of one shape, differentiable twice."""


def functions(place: str, folder: Path) -> int:
    """Functions of standard operators, with derivatives of two orders."""
    for dtype in TOLERANCES:
        for name, function in FUNCTIONS.items():
            compare(f"{name} in {dtype}", place, function, dtype)
    return len(TOLERANCES) * len(FUNCTIONS)


def library_ops(place: str, folder: Path) -> int:
    """Ops of a library of one's own, with derivatives of two orders."""
    path = folder / "libdistances.so"
    if not path.exists():
        raise Missing(f"{path.name} is not among the libraries")
    op: Any = opsmith.load(path).pairwise_manhattan_distance
    for dtype in TOLERANCES:
        compare(f"distances in {dtype}", place, lambda x, y: op(x, y) ** 2, dtype)
    return len(TOLERANCES)


def compare(what: str, place: str, function: Callable[..., Any], dtype: str) -> None:
    """The values and derivatives of a function, there and on the CPU, for two shapes by one plan."""
    answers = []
    for device in ("cpu", place):
        graph = opsmith.Graph()
        with graph.device(device):
            x, y = (graph.placeholder(dtype, [None, 8], name=name) for name in "xy")
            z = function(x, y)
            first = opsmith.gradients((z * z).sum(), [x, y])
            second = opsmith.gradients([(g * g).sum() for g in first if g is not None], [x, y])
        fetches = [z, *(g for g in (*first, *second) if g is not None)]
        session = opsmith.Session(graph)
        shapes = [(4, 8), (20, 8)]
        feeds = [{x: numbers(shape, dtype), y: numbers(shape, dtype, seed=1)} for shape in shapes]
        answers.append([value for fed in feeds for value in session.run(fetches, fed)])
    for at, (expected, found) in enumerate(zip(*answers, strict=True)):
        close(f"{what}, output {at}", found, expected, dtype)


class Network:
    """Two layers, a loss, and a step of training."""

    def __init__(self, place: str, dtype: str, optimizer: Any) -> None:
        self.graph = opsmith.Graph()
        with self.graph.device(place):
            self.x = self.graph.placeholder(dtype, [None, 16], name="x")
            self.target = self.graph.placeholder(dtype, [None, 3], name="target")
            w = self.graph.variable(numbers((16, 32), dtype) - 1.0, name="w")
            b = self.graph.variable(np.zeros(32, dtype), name="b")
            v = self.graph.variable(numbers((32, 3), dtype, seed=1) - 1.0, name="v")
            hidden = opsmith.ops.relu(self.x @ w + b)
            self.loss = -(opsmith.ops.log_softmax(hidden @ v) * self.target).mean()
            self.train = optimizer.minimize(self.loss)

    def feeds(self, dtype: str, step: int) -> dict[Any, Any]:
        """The numbers of a step."""
        target = np.eye(3, dtype=dtype)[np.arange(64) % 3]
        return {self.x: numbers((64, 16), dtype, seed=step), self.target: target}


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "GradientDescent": lambda: opsmith.optimizers.GradientDescent(0.1),
    "Momentum": lambda: opsmith.optimizers.Momentum(0.05, 0.9),
    "Adam": lambda: opsmith.optimizers.Adam(0.01),
}


def training(place: str, folder: Path) -> int:
    """Training, with each optimiser."""
    for dtype in TOLERANCES:
        for name in OPTIMIZERS:
            for expected, found in zip(*(trained(it, dtype, name) for it in ("cpu", place)), strict=True):
                close(f"{name} in {dtype}", found, expected, dtype)
    return len(TOLERANCES) * len(OPTIMIZERS)


def trained(place: str, dtype: str, optimizer: str) -> list[Any]:
    """The losses of some steps, and the variables after them."""
    network = Network(place, dtype, OPTIMIZERS[optimizer]())
    session = opsmith.Session(network.graph)
    session.run(network.graph.initializer())
    losses = []
    for step in range(10):
        losses.append(session.run([network.loss, network.train], network.feeds(dtype, step))[0])
    return [np.array(losses), *session.run(network.graph.variables)]


def checkpoints(place: str, folder: Path) -> int:
    """Variables saved from there and restored on the CPU, and the other way round."""
    with tempfile.TemporaryDirectory() as files:
        file = Path(files) / "variables"
        for first, second in ((place, "cpu"), ("cpu", place)):
            values: list[Any] = []
            for device in (first, second):
                network = Network(device, "float32", OPTIMIZERS["Momentum"]())
                session = opsmith.Session(network.graph)
                if device == first and not values:
                    session.run(network.graph.initializer())
                    session.run(network.train, network.feeds("float32", 0))
                    session.save(file)
                else:
                    session.restore(file)
                values.append(session.run(network.graph.variables))
            for ours, theirs in zip(*values, strict=True):
                np.testing.assert_array_equal(ours, theirs)
    return 2


def crossings(place: str, folder: Path) -> int:
    """Values that go there and back, with ops that have no CUDA kernel between."""
    graph = opsmith.Graph()
    x = graph.placeholder("float32", [None], name="x")
    with graph.device(place):
        scaled = x * 3.0 + 1.0
        _, order, _ = opsmith.ops.unique(scaled, name="order")
        again = opsmith.ops.exp(scaled) - scaled
    on_cpu = again * 2.0
    with graph.device(place):
        last = on_cpu + again
    session = opsmith.Session(graph, allow_soft_placement=True)
    given = numbers((1000,), "float32")
    for _ in range(3):
        found = session.run({"scaled": scaled, "order": order, "again": again, "last": last}, {x: given})
        expected = np.exp(given * 3 + 1) - (given * 3 + 1)
        order_of_scaled = np.unique(found["scaled"], return_inverse=True)[1]
        np.testing.assert_array_equal(found["order"], order_of_scaled)
        close("what was fetched", found["again"], expected, "float32")
        close("what came back", found["last"], 3 * expected, "float32")
    return 3


def large(place: str, folder: Path) -> int:
    """Large tensors fed and fetched, whose memory is changed between the runs."""
    graph = opsmith.Graph()
    with graph.device(place):
        x = graph.placeholder("float32", [None], name="x")
        y = x + x
    session = opsmith.Session(graph)
    given = np.arange(1 << 24, dtype="float32")
    for step in range(4):
        given[:] = np.arange(1 << 24) % (step + 2)
        found = session.run(y, {x: given})
        given[:] = -1.0
        np.testing.assert_array_equal(found, 2 * (np.arange(1 << 24) % (step + 2)))
    return 4


def threads(place: str, folder: Path) -> int:
    """Threads that share a session."""
    graph = opsmith.Graph()
    with graph.device(place):
        x = graph.placeholder("float32", [None, 64], name="x")
        total = graph.variable(np.zeros((64, 64), "float32"), name="total")
        y = opsmith.ops.tanh(x @ x.T) @ x
        added = total.assign(total + x)
    session = opsmith.Session(graph)
    session.run(graph.initializer())
    plain = opsmith.Graph()
    x_of_plain = plain.placeholder("float32", [None, 64], name="x")
    y_of_plain = opsmith.ops.tanh(x_of_plain @ x_of_plain.T) @ x_of_plain
    expected = [
        opsmith.Session(plain).run(y_of_plain, {x_of_plain: numbers((64, 64), "float32", seed)})
        for seed in range(4)
    ]
    problems: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            given = numbers((64, 64), "float32", seed)
            for _ in range(25):
                found, _ = session.run([y, added], {x: given})
                close(f"thread {seed}", found, expected[seed], "float32")
        except BaseException as error:
            problems.append(error)

    started = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    if problems:
        raise problems[0]
    sums = 25.0 * sum(numbers((64, 64), "float32", seed) for seed in range(4))
    close("what all added", session.run(total), sums, "float32")
    return 100


def no_kernel(place: str, folder: Path) -> int:
    """A node whose op has no CUDA kernel is named, with its line."""
    if place == "cpu":
        raise Missing("the dry run has no card")
    graph = opsmith.Graph()
    with graph.device(place):
        _, order, _ = opsmith.ops.unique(graph.placeholder("float32", [2], name="x"), name="order")
    session = opsmith.Session(graph)
    words = ("node `order`, made at", "engine.py:", "Unique: has no CUDA kernel")
    feeds = {graph.output("x"): [2.0, 1.0]}
    refused(lambda: session.run(order, feeds), opsmith.UnimplementedError, *words)
    return 1


def no_card(place: str, folder: Path) -> int:
    """A card that there is not is an error that names the node, or is the CPU where that is allowed."""
    graph = opsmith.Graph()
    x = graph.placeholder("float32", [2], name="x")
    with graph.device(NO_SUCH_CARD):
        y = opsmith.ops.exp(x)
    feeds = {x: [0.0, 1.0]}
    session = opsmith.Session(graph)
    refused(lambda: session.run(y, feeds), opsmith.Error, "node `Exp`, made at", NO_SUCH_CARD)
    soft = opsmith.Session(graph, allow_soft_placement=True)
    close("without the card", soft.run(y, feeds), np.exp([0.0, 1.0]), "float32")
    return 2


def no_memory(place: str, folder: Path) -> int:
    """A tensor that no memory holds is an error that names the node, and variables are as they were."""
    graph = opsmith.Graph()
    with graph.device(place):
        x = graph.placeholder("float32", [None, 1], name="x")
        count = graph.variable(np.zeros(1, "float32"), name="count")
        product = opsmith.ops.mat_mul(x, x, transpose_b=True, name="product")
        counted = count.assign(count + 1.0)
    session = opsmith.Session(graph)
    session.run(graph.initializer())
    feeds = {x: np.ones((1 << 23, 1), "float32")}
    refused(
        lambda: session.run([counted, product], feeds),
        opsmith.ResourceExhaustedError,
        "node `product`, made at",
    )
    assert session.run(count).tolist() == [0.0]
    assert session.run([counted, product], {x: [[2.0]]})[1].tolist() == [[4.0]]
    return 2


def traced(place: str, folder: Path) -> int:
    """A trace tells what ran where, and what was copied."""
    network = Network(place, "float32", OPTIMIZERS["GradientDescent"]())
    session = opsmith.Session(network.graph)
    session.run(network.graph.initializer())
    _, trace = session.run_traced([network.loss, network.train], network.feeds("float32", 0))
    if place == "cpu":
        assert "cuda" not in trace.summary
    else:
        for word in (f"MatMul on {place}", f"CopyTo {place}", "CopyTo cpu"):
            assert word in trace.summary, trace.summary
    return 1


CHECKS = (
    functions,
    library_ops,
    training,
    checkpoints,
    crossings,
    large,
    threads,
    no_kernel,
    no_card,
    no_memory,
    traced,
)
