"""Pointwise ops that are written once, float32: a cell of an LLTM on 2^20 elements, and GELU on 10^7.

The peers are the same formulas in PyTorch, eager and compiled by `torch.compile` for these very shapes.
The copy goes into existing memory, which no computation into new memory can match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from harness import OURS, Case, Options, Target

if TYPE_CHECKING:
    import torch

TITLE = "Pointwise ops that are written once"

CELL = 1 << 20
GELU = 10**7


def cell(
    g0: torch.Tensor, g1: torch.Tensor, g2: torch.Tensor, old_cell: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The cell in plain PyTorch."""
    import torch

    new_cell = old_cell + torch.nn.functional.elu(g2) * torch.sigmoid(g0)
    return torch.tanh(new_cell) * torch.sigmoid(g1), new_cell


def cases(options: Options) -> Iterator[Case]:
    """The cell forward and backward, GELU forward and with its gradient."""
    import opsmith
    import torch

    torch.manual_seed(0)
    library = opsmith.load(options.library("activations"))
    yield from cell_cases(library.lltm_cell)
    gelu = torch.nn.functional.gelu
    compiled = torch.compile(gelu, dynamic=False)
    x, upstream, copied = torch.randn(GELU), torch.randn(GELU), torch.empty(GELU)
    torch.testing.assert_close(library.gelu(x), gelu(x))
    contenders: dict[str, Callable[[], object]] = {
        OURS: lambda: library.gelu(x),
        "torch.compile": lambda: compiled(x),
        "PyTorch": lambda: gelu(x),
        "a copy": lambda: copied.copy_(x),
    }
    yield Case("GELU, forward", contenders)
    wanted = x.clone().requires_grad_()

    def both(op: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(op(wanted), wanted, upstream)

    contenders = {OURS: both(library.gelu), "torch.compile": both(compiled), "PyTorch": both(gelu)}
    yield Case("GELU, forward and backward", contenders, [Target(0.7, ("torch.compile",))])


def cell_cases(ours: Callable[..., tuple[torch.Tensor, torch.Tensor]]) -> Iterator[Case]:
    """The cell: forward, and backward alone."""
    import torch

    compiled = torch.compile(cell, dynamic=False)
    inputs = [torch.randn(CELL) for _ in range(4)]
    torch.testing.assert_close(ours(*inputs), cell(*inputs))
    contenders: dict[str, Callable[[], object]] = {
        OURS: lambda: ours(*inputs),
        "torch.compile": lambda: compiled(*inputs),
        "PyTorch": lambda: cell(*inputs),
    }
    yield Case("LLTM cell, forward", contenders, [Target(0.35, ("torch.compile",))])
    wanted = [x.clone().requires_grad_() for x in inputs]
    upstream = [torch.randn(CELL) for _ in range(2)]

    def backward(op: Callable[..., tuple[torch.Tensor, torch.Tensor]]) -> Callable[[], object]:
        outputs = op(*wanted)
        return lambda: torch.autograd.grad(outputs, wanted, upstream, retain_graph=True)

    contenders = {OURS: backward(ours), "torch.compile": backward(compiled), "PyTorch": backward(cell)}
    yield Case("LLTM cell, backward", contenders, [Target(0.6, ("torch.compile",))])
