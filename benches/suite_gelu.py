"""GELU on 10^7 elements, float32: exact, and approximated by tanh.

The peers are PyTorch's own function, eager and compiled by `torch.compile` for this very shape, and an
operation that moves as many bytes and computes next to nothing. Forward that is a copy (`x.clone()`, which
allocates, as all contenders do), backward a sum of the two tensors that are read. 80 % of their bandwidth
is a ratio of 1.25. A fresh output and reused memory have the same targets. Memory is the peak
beyond the inputs; for a forward and a backward pass, beyond the output and the gradient too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from harness import OURS, Case, Options, Target

if TYPE_CHECKING:
    import torch

TITLE = "GELU in one pass"

SIZE = 10**7
COMPILED, PYTORCH = "torch.compile", "PyTorch"
COPY, SUM, BOTH = "a copy", "a sum of two", "a copy and a sum"
OUTPUT, RESULTS = "the output alone", "the output and the gradient alone"
OF_BANDWIDTH = 1.25
"""80 % of the bandwidth of what only moves memory."""
MEMORY_SLACK = 1.1

Unary = dict[str, "Callable[[torch.Tensor], torch.Tensor]"]


def contenders_of(library: object, approximate: str) -> Unary:
    """The function, by name of who computes it."""
    import torch

    def ours(x: torch.Tensor) -> torch.Tensor:
        return library.gelu(x, approximate=approximate)  # type: ignore[attr-defined, no-any-return]

    def theirs(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x, approximate=approximate)

    return {OURS: ours, COMPILED: torch.compile(theirs, dynamic=False), PYTORCH: theirs}


def cases(options: Options) -> Iterator[Case]:
    """Forward, backward and both, and how much memory it is."""
    import opsmith
    import torch

    torch.manual_seed(0)
    library = opsmith.load(options.library("gelu"))
    x, upstream = torch.randn(SIZE), torch.randn(SIZE)
    exact, approximated = contenders_of(library, "none"), contenders_of(library, "tanh")
    for functions in (exact, approximated):
        wanted = x.clone().requires_grad_()
        expected = functions[PYTORCH](wanted)
        (grad,) = torch.autograd.grad(expected, wanted, upstream)
        for function in functions.values():
            y = function(wanted)
            torch.testing.assert_close(y, expected)
            torch.testing.assert_close(torch.autograd.grad(y, wanted, upstream)[0], grad)
    for name, functions in (("", exact), (", tanh", approximated)):
        yield forward(f"forward{name}", functions, x)
        yield backward(f"backward{name}", functions, x, upstream)
        yield both(f"forward and backward{name}", functions, x, upstream)
    yield from memory(exact, x, upstream)


def memory(functions: Unary, x: torch.Tensor, upstream: torch.Tensor) -> Iterator[Case]:
    """Peak extra memory of the function, and of it and its gradient."""
    import torch

    limited: dict[str, Callable[[], object]] = {
        OURS: lambda: functions[OURS](x),
        OUTPUT: lambda: torch.ones(SIZE),
        PYTORCH: lambda: functions[PYTORCH](x),
    }
    targets = [Target(MEMORY_SLACK, (OUTPUT,))]
    yield Case("peak extra memory, forward", limited, targets, memory=True)
    wanted = x.clone().requires_grad_()

    def gradient(name: str) -> Callable[[], object]:
        return lambda: torch.autograd.grad(functions[name](wanted), wanted, upstream)

    limited = {
        OURS: gradient(OURS),
        RESULTS: lambda: (torch.ones(SIZE), torch.ones(SIZE)),
        PYTORCH: gradient(PYTORCH),
    }
    targets = [Target(MEMORY_SLACK, (RESULTS,))]
    yield Case("peak extra memory, forward and backward", limited, targets, memory=True)


def forward(name: str, functions: Unary, x: torch.Tensor) -> Case:
    """The function alone, and a copy."""
    contenders: dict[str, Callable[[], object]] = {
        name: lambda function=function: function(x)  # type: ignore[misc]
        for name, function in functions.items()
    }
    contenders[COPY] = lambda: x.clone()
    return Case(name, contenders, [Target(1.0, (COMPILED,)), Target(OF_BANDWIDTH, (COPY,))], twice=True)


def backward(name: str, functions: Unary, x: torch.Tensor, upstream: torch.Tensor) -> Case:
    """The gradient alone, and the sum of what it reads."""
    import torch

    wanted = x.clone().requires_grad_()

    def gradient(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], object]:
        y = function(wanted)
        return lambda: torch.autograd.grad(y, wanted, upstream, retain_graph=True)

    contenders = {name: gradient(function) for name, function in functions.items()}
    contenders[SUM] = lambda: x + upstream
    return Case(name, contenders, [Target(1.0, (COMPILED,)), Target(OF_BANDWIDTH, (SUM,))], twice=True)


def both(name: str, functions: Unary, x: torch.Tensor, upstream: torch.Tensor) -> Case:
    """The function and its gradient."""
    import torch

    wanted = x.clone().requires_grad_()

    def contender(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(function(wanted), wanted, upstream)

    contenders = {name: contender(function) for name, function in functions.items()}
    contenders[BOTH] = lambda: (x.clone(), x + upstream)
    return Case(name, contenders, [Target(1.0, (COMPILED,)), Target(OF_BANDWIDTH, (BOTH,))], twice=True)
