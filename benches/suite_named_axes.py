"""Bodies over named axes, float32: kernel sums, nearest neighbours, distances; attention in bfloat16 too.

The peers are what a user of PyTorch has at hand: matrix products where the formula allows them, eager or
compiled by `torch.compile`, `torch.cdist` and `scaled_dot_product_attention`. KeOps on the CPU, which
stores no matrix of pairs either, is another. A *new formula* is a kernel sum with another function of the
distances. Its figure is the time to the first result, ours by `opsmith.jit`, on a machine where everything
else is built. Slow contenders, and those with a small output, are measured once.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from harness import OURS, Case, Options, Target, is_usable

if TYPE_CHECKING:
    import torch

TITLE = "Bodies over named axes"

POINTS = 10_240
ROUNDS = 5
KEOPS = "KeOps"

BODY = """
/// A weighted sum of a function of the squared distances.
#[body("(i,k),(j,k),(j,e)->(i,e)")]
fn convolution<S: Indexed>(x: S, y: S, b: S) -> S {
    let d = ((x - y) * (x - y)).sum(k);
    (dSTEPS * b).sum(j)
}
"""

Function = Callable[..., Any]


def convolution(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A kernel sum by the squares of the rows and a product."""
    distance = (x * x).sum(-1)[:, None] + (y * y).sum(-1)[None, :] - 2 * (x @ y.T)
    return (-distance).exp() @ b


def pairs(x: torch.Tensor, y: torch.Tensor) -> Any:
    """The squared distances of all pairs, for KeOps."""
    from pykeops.torch import LazyTensor

    difference = LazyTensor(x[:, None, :]) - LazyTensor(y[None, :, :])
    return (difference**2).sum(-1)


def convolution_by_keops(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor) -> Any:
    """The same kernel sum by KeOps."""
    return (-pairs(x, y)).exp() @ b


def cosine(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Cosine distances by normalised rows."""
    import torch.nn.functional as functional

    return 1 - functional.normalize(x, dim=-1) @ functional.normalize(y, dim=-1).T


def cases(options: Options) -> Iterator[Case]:
    """Forward, and forward and backward or backward alone."""
    import opsmith
    import torch

    torch.manual_seed(0)
    library = opsmith.load(options.library("kernels"))
    tiny = torch.rand(2, 3)
    has_keops = is_usable(KEOPS, lambda: convolution_by_keops(tiny, tiny, tiny[:, :1]))
    for width in (3, 64):
        yield from convolutions(library, width, has_keops)
    yield nearest(library, has_keops)
    yield distances(library)
    yield from attentions(library, torch.float32)
    yield from attentions(library, torch.float32, (64, 4, 64, 64))
    yield from attentions(library, torch.float32, (1, 1, 4096, 64))
    yield from attentions(library, torch.float32, causal=True)
    yield from attentions(library, torch.bfloat16)
    if has_keops:
        yield new_formula()


def convolutions(library: Any, width: int, has_keops: bool) -> Iterator[Case]:
    """The kernel sum, forward and with its gradient."""
    import torch

    functions: dict[str, Function] = {
        OURS: library.gaussian_convolution,
        "PyTorch": convolution,
        "torch.compile": torch.compile(convolution, dynamic=False),
    }
    if has_keops:
        functions[KEOPS] = convolution_by_keops
    best = tuple(functions)[1:]
    targets = [Target(0.6, best)] if width == 64 else [Target(0.12, (KEOPS,))] if has_keops else []
    inputs = [torch.rand(POINTS, columns) * width**-0.5 for columns in (width, width, 1)]
    upstream = torch.rand(POINTS, 1)
    expected = convolution(*inputs)
    for function in functions.values():
        torch.testing.assert_close(function(*inputs), expected, rtol=1e-3, atol=1e-3)
    name = f"Gaussian convolution, {POINTS} x {POINTS} x {width}"
    contenders = {who: partial(function, *inputs) for who, function in functions.items()}
    yield few_rounds(f"{name}, forward", contenders, targets)
    contenders = {who: with_gradient(function, inputs, upstream) for who, function in functions.items()}
    yield few_rounds(f"{name}, forward and backward", contenders, targets)


def few_rounds(name: str, contenders: dict[str, Callable[[], object]], targets: list[Target]) -> Case:
    """A case of slow contenders: each is called once for what is made once, then timed call by call."""

    def seconds(function: Callable[[], object]) -> float:
        started = time.perf_counter()
        function()
        return time.perf_counter() - started

    for function in contenders.values():
        function()
    timed: dict[str, Callable[[], object]] = {
        who: partial(seconds, function) for who, function in contenders.items()
    }
    return Case(name, timed, targets, rounds=ROUNDS)


def with_gradient(
    function: Function, inputs: list[torch.Tensor], upstream: torch.Tensor
) -> Callable[[], object]:
    """Forward and backward, with the gradients of all inputs."""
    import torch

    wanted = [x.clone().requires_grad_() for x in inputs]
    return lambda: torch.autograd.grad(function(*wanted), wanted, upstream)


def nearest(library: Any, has_keops: bool) -> Case:
    """The nearest of all points."""
    import torch

    x, y = torch.rand(POINTS, 3), torch.rand(POINTS, 3)
    contenders: dict[str, Callable[[], object]] = {
        OURS: lambda: library.nearest(x, y),
        "PyTorch": lambda: torch.cdist(x, y).argmin(1),
    }
    targets = [Target(1.0, ("PyTorch",))]
    if has_keops:
        contenders[KEOPS] = lambda: pairs(x, y).argmin(1)
        targets.append(Target(0.3, (KEOPS,)))
    return few_rounds(f"nearest of {POINTS} points for each of as many", contenders, targets)


def distances(library: Any) -> Case:
    """Cosine distances of all pairs."""
    import torch

    x, y = torch.rand(4096, 128) - 0.5, torch.rand(4096, 128) - 0.5
    torch.testing.assert_close(library.cosine_distance(x, y), cosine(x, y), rtol=1e-4, atol=1e-5)
    compiled = torch.compile(cosine, dynamic=False)
    contenders: dict[str, Callable[[], object]] = {
        OURS: lambda: library.cosine_distance(x, y),
        "PyTorch": lambda: cosine(x, y),
        "torch.compile": lambda: compiled(x, y),
    }
    targets = [Target(1.1, ("PyTorch", "torch.compile"))]
    return Case("cosine distances, 4096 x 4096 x 128", contenders, targets, twice=True)


def attentions(
    library: Any, dtype: torch.dtype, shape: tuple[int, ...] = (2, 8, 1024, 64), *, causal: bool = False
) -> Iterator[Case]:
    """Attention forward, and backward alone."""
    import torch

    positions = shape[-2]
    query, key, value, upstream = (torch.randn(shape).to(dtype) for _ in range(4))
    length = torch.tensor(positions)
    attend = partial(torch.nn.functional.scaled_dot_product_attention, is_causal=causal)

    def ours(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return library.attention(query, key, value, length, causal=causal)  # type: ignore[no-any-return]

    is_half = dtype == torch.bfloat16
    tolerance = {"rtol": 2e-2, "atol": 2e-3} if is_half else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(ours(query, key, value), attend(query, key, value), **tolerance)
    kinds = ", causal" * causal + ", bfloat16" * is_half
    name = f"attention, {' x '.join(map(str, shape))}{kinds}"
    targets = [Target(1.2, ("PyTorch",))]
    functions: dict[str, Function] = {OURS: ours, "PyTorch": attend}
    forward = {who: partial(function, query, key, value) for who, function in functions.items()}
    yield Case(f"{name}, forward", forward, targets, twice=True)
    wanted = [x.clone().requires_grad_() for x in (query, key, value)]
    backward = {
        who: partial(torch.autograd.grad, function(*wanted), wanted, upstream, retain_graph=True)
        for who, function in functions.items()
    }
    yield Case(f"{name}, backward", backward, targets, twice=True)


def new_formula() -> Case:
    """From a formula that nobody has computed to its first result: another chain of sines and cosines."""
    import torch
    from opsmith import jit

    x, y, b = torch.rand(64, 3), torch.rand(64, 3), torch.rand(64, 1)
    chains = (
        ["sin" if number >> bit & 1 else "cos" for bit in range(16)]
        for number in itertools.count(time.time_ns() // 10**6)
    )

    def seconds(compute: Callable[[list[str]], torch.Tensor]) -> float:
        steps = next(chains)
        started = time.perf_counter()
        found = compute(steps)
        taken = time.perf_counter() - started
        expected = chained(torch.cdist(x, y) ** 2, steps) @ b
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
        return taken

    def ours(steps: list[str]) -> torch.Tensor:
        body = BODY.replace("STEPS", "".join(f".{step}()" for step in steps))
        return jit.load_inline("bench_formula", body).convolution(x, y, b)  # type: ignore[no-any-return]

    def theirs(steps: list[str]) -> torch.Tensor:
        return chained(pairs(x, y), steps) @ b  # type: ignore[no-any-return]

    # Once for what is built once on a machine.
    ours(next(chains))
    contenders: dict[str, Callable[[], object]] = {
        OURS: partial(seconds, ours),
        KEOPS: partial(seconds, theirs),
    }
    return Case("a new formula, to its first result", contenders, [Target(0.2, (KEOPS,))], rounds=3)


def chained(number: Any, steps: list[str]) -> Any:
    """The functions of these names, one after another."""
    return reduce(lambda number, step: getattr(number, step)(), steps, number)
