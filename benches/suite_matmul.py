"""The standard operators in float32: products of matrices, and what goes through memory once.

Products are compared with `torch.mm` on the same tensors, with as many threads. The chain is three
element-wise operators one after another on 10^7 numbers, and the sum is that of as many: both are compared
with copies, which is what memory allows. A sum reads its numbers and writes nothing, so that it may take
less than a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from harness import OURS, Case, Options, Target

TITLE = "The standard operators"

SHAPES = [
    ("16x384x160", 16, 384, 160, 1.0),
    ("256x256x256", 256, 256, 256, 1.0),
    ("1024x1024x1024", 1024, 1024, 1024, 1 / 1.4),
    ("1x1024x1024", 1, 1024, 1024, 1.0),
]
COUNT = 10**7


def cases(options: Options) -> Iterator[Case]:
    """Products, then a chain and a sum."""
    import opsmith
    import torch

    torch.manual_seed(0)
    library = opsmith.load(options.library("opsmith_ops"))
    for name, n, k, m, limit in SHAPES:
        a, b = torch.randn(n, k), torch.randn(k, m)
        in_numpy = a.numpy(), b.numpy()
        torch.testing.assert_close(library.mat_mul(a, b), a @ b, rtol=1e-4, atol=1e-4)
        contenders: dict[str, Callable[[], object]] = {
            OURS: lambda a=a, b=b: library.mat_mul(a, b),
            "torch.mm": lambda a=a, b=b: torch.mm(a, b),
            "NumPy": lambda arrays=in_numpy: arrays[0] @ arrays[1],
        }
        yield Case(f"MatMul {name}", contenders, [Target(limit, ("torch.mm",))])
    x, y, copied = torch.randn(COUNT), torch.randn(COUNT), torch.empty(COUNT)
    torch.testing.assert_close(library.sum(x), x.sum(), rtol=1e-3, atol=1e-2)
    contenders = {
        OURS: lambda: library.tanh(library.mul(library.add(x, y), y)),
        "PyTorch": lambda: torch.tanh((x + y) * y),
        "three copies": lambda: (copied.copy_(x), copied.copy_(y), copied.copy_(x)),
    }
    # A sum of two reads twice what a copy reads, so the chain moves 8 arrays where three copies move 6.
    yield Case("A chain of three on 10^7 numbers", contenders, [Target(8 / 6 / 0.8, ("three copies",))])
    contenders = {
        OURS: lambda: library.sum(x),
        "PyTorch": lambda: x.sum(),
        "a copy": lambda: copied.copy_(x),
    }
    yield Case("The sum of 10^7 numbers", contenders, [Target(1.25, ("a copy",))])
