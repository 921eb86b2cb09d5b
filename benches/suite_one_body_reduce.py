"""Reductions that are a few lines of arithmetic, float32, 4096 rows of 4096.

The peers are PyTorch's own functions, eager and compiled by `torch.compile` for these very shapes, and the
softmax as a user would write it, compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from harness import OURS, Case, Options, Target

if TYPE_CHECKING:
    import torch

TITLE = "Reductions written once"

SIZE = 4096


def written_out(x: torch.Tensor) -> torch.Tensor:
    """Softmax by its definition."""
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def cases(options: Options) -> Iterator[Case]:
    """Forward, and of softmax forward and backward."""
    import opsmith
    import torch

    torch.manual_seed(0)
    library = opsmith.load(options.library("reductions"))
    x, upstream = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)

    def both(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], object]:
        at = x.clone().requires_grad_()
        return lambda: torch.autograd.grad(function(at), at, upstream)

    own: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "softmax": lambda x: torch.softmax(x, -1),
        "log_sum_exp": lambda x: torch.logsumexp(x, -1),
        "norm": lambda x: torch.linalg.vector_norm(x, dim=-1),
    }
    for name, reference in own.items():
        ours = getattr(library, name)
        torch.testing.assert_close(ours(x), reference(x))
        compiled = torch.compile(reference, dynamic=False)
        contenders: dict[str, Callable[[], object]] = {
            OURS: lambda ours=ours: ours(x),
            "PyTorch": lambda reference=reference: reference(x),
            "torch.compile": lambda compiled=compiled: compiled(x),
        }
        if name == "softmax":
            plain = torch.compile(written_out, dynamic=False)
            contenders["torch.compile, written out"] = lambda plain=plain: plain(x)
        limits = [Target(1.0, tuple(contenders)[1:])] if name == "softmax" else []
        yield Case(f"{name}, forward", contenders, limits)

    compiled = torch.compile(own["softmax"], dynamic=False)
    contenders = {
        OURS: both(library.softmax),
        "PyTorch": both(own["softmax"]),
        "torch.compile": both(compiled),
    }
    yield Case("softmax, forward and backward", contenders, [])
