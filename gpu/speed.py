"""Times against PyTorch: eager, `torch.compile` and `torch.cdist`; and how much of what the card can do is
reached.

The card's own clock is asked, contenders take turns in an order that changes, and a median is given. The
limits are measured on the same card: bandwidth by a copy, arithmetic by a product of float32 matrices, in
whose every step one instruction multiplies and adds. A distance takes two instructions for each number, a
difference and a sum.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from devices import Device, Job
from misuse import load
from results import FAILED, NOT_RUN, PASSED, Results, Timing, amount
from values import subjects

OURS = "Opsmith"
EAGER = "PyTorch"
COMPILED = "torch.compile"
CDIST = "torch.cdist"
SDPA = "scaled_dot_product_attention"

ROUNDS = 31
BATCH_SECONDS = 0.02

Contenders = dict[str, Callable[[], Any]]


@dataclass(frozen=True)
class Limits:
    """What the card can do."""

    bytes_per_second: float
    instructions_per_second: float
    """Of float32 arithmetic."""


@dataclass(frozen=True)
class Sizes:
    """How large things are: of a card, or of a dry run."""

    pairs: tuple[int, int, int] = (4096, 4096, 512)
    cell: tuple[int, int, int] = (16, 32, 128)
    elements: int = 1 << 26
    rows: tuple[int, int] = (8192, 4096)
    product: int = 8192
    copied: int = 1 << 28
    products: tuple[int, ...] = (256, 1024, 4096)
    attention: tuple[int, int, int] = (16, 2048, 64)
    rounds: int = ROUNDS


DRY = Sizes((64, 64, 32), (4, 8, 16), 1 << 14, (64, 64), 128, 1 << 16, (64,), (2, 32, 8), 3)


@dataclass
class Bench:
    """A run of the times."""

    device: Device
    folder: Path
    sizes: Sizes
    limits: Limits
    results: Results

    def time(
        self,
        name: str,
        contenders: Contenders,
        targets: tuple[tuple[str, float], ...] = (),
        share: Callable[[float, Limits], str] | None = None,
    ) -> None:
        """Measure contenders of the same work, once they agree; what cannot run is said and left out."""
        able: Contenders = {}
        for who, function in contenders.items():
            try:
                function()
                self.device.synchronize()
            except Exception as error:
                verdict = FAILED if who == OURS else NOT_RUN
                self.results.say("times", f"{name}, {who}", verdict, f"{type(error).__name__}: {error}")
            else:
                able[who] = function
        if OURS not in able:
            return
        seconds = interleaved(self.device, able, self.sizes.rounds)
        judged = self.device.is_card
        met = [
            (who, seconds[OURS] / seconds[who], limit, seconds[OURS] <= limit * seconds[who])
            for who, limit in targets
            if judged and who in seconds
        ]
        told = share(seconds[OURS], self.limits) if share else ""
        self.results.timings.append(Timing(name, seconds, met, told))
        self.results.say("times", name, PASSED, cases=len(able))
        print(f"  {name}: " + ", ".join(f"{who} {amount(x)}" for who, x in seconds.items()), told, flush=True)
        self.device.release()


def interleaved(device: Device, contenders: Contenders, rounds: int) -> dict[str, float]:
    """The median over rounds of each contender's seconds per call."""
    calls = {}
    for name, function in contenders.items():
        device.seconds(function, 3)
        calls[name] = max(1, min(10_000, round(BATCH_SECONDS / max(device.seconds(function, 3), 1e-7))))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    order, rng = list(contenders), random.Random(0)
    for _ in range(rounds):
        rng.shuffle(order)
        for name in order:
            times[name].append(device.seconds(contenders[name], calls[name]))
    return {name: statistics.median(values) for name, values in times.items()}


def limits(device: Device, sizes: Sizes) -> Limits:
    """What the card does at its best."""
    x = torch.zeros(sizes.copied, device=device.torch)
    y = torch.empty_like(x)
    copy = interleaved(device, {OURS: lambda: y.copy_(x)}, sizes.rounds)[OURS]
    n = sizes.product
    torch.backends.cuda.matmul.allow_tf32 = False
    a, b = (torch.randn(n, n, device=device.torch) for _ in range(2))
    c = torch.empty_like(a)
    product = interleaved(device, {OURS: lambda: torch.mm(a, b, out=c)}, sizes.rounds)[OURS]
    return Limits(2 * x.numel() * x.element_size() / copy, n**3 / product)


def run(job: Job, results: Results) -> None:
    """Every table."""
    device = job.device
    sizes = Sizes(rounds=5) if job.quick else Sizes()
    if not device.is_card:
        sizes = DRY
    torch.manual_seed(0)
    found = limits(device, sizes)
    results.facts["bandwidth of a copy"] = f"{found.bytes_per_second / 1e9:.0f} GB/s"
    results.facts["float32 instructions of a product"] = f"{found.instructions_per_second / 1e12:.2f} T/s"
    device.release()
    bench = Bench(device, job.folder, sizes, found, results)
    for table in (distances, lltm, pointwise, reduced, products, attention):
        try:
            table(bench)
        except Exception as error:
            results.say("times", table.__name__, FAILED, f"{type(error).__name__}: {error}")


def of_bandwidth(moved: int) -> Callable[[float, Limits], str]:
    """How much of the bandwidth a call reaches that must move so many bytes."""
    return lambda seconds, limits: f"{moved / seconds / limits.bytes_per_second:.0%} of the bandwidth"


def of_arithmetic(instructions: int) -> Callable[[float, Limits], str]:
    """How much of the arithmetic a call reaches that must do so many instructions."""
    return lambda seconds, limits: (
        f"{instructions / seconds / limits.instructions_per_second:.0%} of a float32 product's arithmetic"
    )


def agree(found: list[Any]) -> None:
    """Raise where contenders do not give the same."""
    for other in found[1:]:
        torch.testing.assert_close(found[0], other, rtol=1e-3, atol=1e-3)


def backward(function: Callable[..., Any], inputs: list[torch.Tensor]) -> Callable[[], Any]:
    """Backward alone, of a call that has been made."""
    outputs = function(*inputs)
    outputs = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    upstream = [torch.ones_like(x) for x in outputs]
    return lambda: torch.autograd.grad(outputs, inputs, upstream, retain_graph=True)


def broadcasting(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The distances in plain PyTorch, by way of all differences."""
    return (x[:, None, :] - y[None, :, :]).abs().sum(-1)


def in_blocks(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The same, for 64 rows at a time: all differences at once do not fit into a card's memory."""
    return torch.cat([broadcasting(rows, y) for rows in x.split(64)])


def distances(bench: Bench) -> None:
    """Pairwise Manhattan distances, written in CUDA C++ and from a body."""
    n, m, p = bench.sizes.pairs
    x, y = (torch.rand(rows, p, device=bench.device.torch) for rows in (n, m))
    ours = load(bench.folder, "distances").pairwise_manhattan_distance
    body = load(bench.folder, "pairwise").manhattan
    compiled = torch.compile(broadcasting, dynamic=False)
    functions: dict[str, Callable[..., Any]] = {
        OURS: ours,
        "Opsmith, from a body": body,
        EAGER: in_blocks,
        COMPILED: compiled,
        CDIST: lambda x, y: torch.cdist(x, y, p=1),
    }
    few = [t[:64] for t in (x, y)]
    agree([function(*few) for who, function in functions.items() if who != COMPILED])
    name = f"distances {n} x {m} x {p}"
    calls: Contenders = {who: partial(f, x, y) for who, f in functions.items()}
    instructions = 2 * n * m * p
    bench.time(f"{name}, forward", calls, ((CDIST, 0.4), (COMPILED, 1.0)), of_arithmetic(instructions))
    del functions[EAGER]
    leaves = [t.requires_grad_() for t in (x, y)]
    calls = lazily(
        {who: partial(backward, f, leaves) for who, f in functions.items()}, bench, f"{name}, backward"
    )
    bench.time(f"{name}, backward", calls, ((CDIST, 0.4), (COMPILED, 1.0)), of_arithmetic(2 * instructions))


def lazily(makers: Mapping[str, Callable[[], Callable[[], Any]]], bench: Bench, name: str) -> Contenders:
    """Contenders that must be made first; one that cannot be is said and left out."""
    made: Contenders = {}
    for who, maker in makers.items():
        try:
            made[who] = maker()
        except Exception as error:
            verdict = FAILED if who == OURS else NOT_RUN
            bench.results.say("times", f"{name}, {who}", verdict, f"{type(error).__name__}: {error}")
    return made


def cell(
    input: torch.Tensor,
    weights: torch.Tensor,
    bias: torch.Tensor,
    old_h: torch.Tensor,
    old_cell: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """A step of an LLTM as a composition of PyTorch's own ops."""
    gates = torch.nn.functional.linear(torch.cat([old_h, input], 1), weights, bias)
    g0, g1, g2 = gates.chunk(3, 1)
    new_cell = old_cell + torch.nn.functional.elu(g2) * torch.sigmoid(g0)
    return torch.tanh(new_cell) * torch.sigmoid(g1), new_cell


def lltm(bench: Bench) -> None:
    """A step of an LLTM, forward and backward."""
    b, f, s = bench.sizes.cell
    name = f"LLTM b={b} f={f} s={s}"
    library = load(bench.folder, "lltm")
    if not subjects(library)["Lltm"].has_cuda:
        bench.results.say("times", name, NOT_RUN, "the op has no CUDA kernel")
        return
    shapes = [(b, f), (3 * s, s + f), (3 * s,), (b, s), (b, s)]
    inputs = [torch.randn(shape, device=bench.device.torch) * s**-0.5 for shape in shapes]
    functions: dict[str, Callable[..., Any]] = {
        OURS: library.lltm,
        EAGER: cell,
        COMPILED: torch.compile(cell, dynamic=False),
    }
    # What is compiled is made by the first call, and may fail by itself.
    agree([list(functions[who](*inputs)) for who in (OURS, EAGER)])
    moved = 4 * sum(x.numel() for x in inputs) + 4 * 2 * b * s
    calls: Contenders = {who: partial(g, *inputs) for who, g in functions.items()}
    bench.time(f"{name}, forward", calls, ((EAGER, 0.7),), of_bandwidth(moved))
    leaves = [x.requires_grad_() for x in inputs]
    calls = lazily({who: partial(backward, g, leaves) for who, g in functions.items()}, bench, name)
    bench.time(f"{name}, backward", calls, ((EAGER, 0.7),), of_bandwidth(2 * moved))


def pointwise(bench: Bench) -> None:
    """GELU, from a body, forward and backward."""
    count = bench.sizes.elements
    ours = load(bench.folder, "gelu").gelu
    for dtype in (torch.float32, torch.float16):
        x = torch.randn(count, device=bench.device.torch).to(dtype)
        functions: dict[str, Callable[..., Any]] = {
            OURS: ours,
            EAGER: torch.nn.functional.gelu,
            COMPILED: torch.compile(torch.nn.functional.gelu, dynamic=False),
        }
        agree([function(x[:1000]) for function in (ours, torch.nn.functional.gelu)])
        name, size = f"GELU of {count} {str(dtype).removeprefix('torch.')}", x.element_size()
        calls: Contenders = {who: partial(f, x) for who, f in functions.items()}
        bench.time(f"{name}, forward", calls, (), of_bandwidth(2 * count * size))
        leaves = [x.requires_grad_()]
        makers = {who: partial(backward, f, leaves) for who, f in functions.items()}
        calls = lazily(makers, bench, name)
        bench.time(f"{name}, backward", calls, (), of_bandwidth(3 * count * size))


def reduced(bench: Bench) -> None:
    """Softmax and layer normalisation of rows, from a body."""
    shape = bench.sizes.rows
    library = load(bench.folder, "reductions")
    x = torch.randn(shape, device=bench.device.torch)
    gamma, beta = (torch.randn(shape[1], device=bench.device.torch) for _ in range(2))

    def softmax(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)

    def normalised(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, (shape[1],), gamma, beta, 1e-5)

    moved = 2 * x.numel() * x.element_size()
    for name, ours, theirs, inputs in (
        ("softmax", library.softmax, softmax, [x]),
        ("layer norm", library.layer_norm, normalised, [x, gamma, beta]),
    ):
        functions: dict[str, Callable[..., Any]] = {
            OURS: ours,
            EAGER: theirs,
            COMPILED: torch.compile(theirs, dynamic=False),
        }
        agree([function(*inputs) for function in (ours, theirs)])
        title = f"{name} of {shape[0]} x {shape[1]}"
        calls: Contenders = {who: partial(f, *inputs) for who, f in functions.items()}
        bench.time(f"{title}, forward", calls, (), of_bandwidth(moved))
        leaves = [t.detach().requires_grad_() for t in inputs]
        makers = {who: partial(backward, f, leaves) for who, f in functions.items()}
        calls = lazily(makers, bench, title)
        bench.time(f"{title}, backward", calls, (), of_bandwidth(moved * 3 // 2))


def products(bench: Bench) -> None:
    """Products of matrices by the standard op, against what PyTorch calls: cuBLAS."""
    ours = load(bench.folder, "opsmith_ops").mat_mul
    for dtype in (torch.float32, torch.float16):
        for n in bench.sizes.products:
            a, b = (torch.randn(n, n, device=bench.device.torch).to(dtype) for _ in range(2))
            calls: Contenders = {OURS: partial(ours, a, b), EAGER: partial(torch.mm, a, b)}
            name = f"product of {n} x {n} {str(dtype).removeprefix('torch.')}"
            bench.time(name, calls, (), of_arithmetic(n**3))


def plain_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention as a composition of PyTorch's own ops."""
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v


def attention(bench: Bench) -> None:
    """Attention in float32, from a body, against one that keeps all weights, and a fused kernel."""
    heads, rows, width = bench.sizes.attention
    body = load(bench.folder, "kernels").attention
    inputs = [torch.randn(heads, rows, width, device=bench.device.torch) for _ in range(3)]
    length = torch.tensor(rows, device=bench.device.torch)

    def ours(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        return body(q, k, v, length)

    functions: dict[str, Callable[..., Any]] = {
        OURS: ours,
        EAGER: plain_attention,
        COMPILED: torch.compile(plain_attention, dynamic=False),
        SDPA: torch.nn.functional.scaled_dot_product_attention,
    }
    agree([function(*inputs) for who, function in functions.items() if who != COMPILED])
    title = f"attention of {heads} x {rows} x {width}"
    calls: Contenders = {who: partial(f, *inputs) for who, f in functions.items()}
    work = 2 * heads * rows * rows * width
    bench.time(f"{title}, forward", calls, (), of_arithmetic(work))
    leaves = [t.detach().requires_grad_() for t in inputs]
    calls = lazily({who: partial(backward, f, leaves) for who, f in functions.items()}, bench, title)
    bench.time(f"{title}, backward", calls, (), of_arithmetic(5 * work // 2))
