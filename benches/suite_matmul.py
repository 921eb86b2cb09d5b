"""The standard operators in float32: products of matrices, and what goes through memory once.

Products are compared with `torch.mm` on the same tensors, with as many threads. The chain is
`(x + y) * y - x` on 10^7 numbers, in a session, and the sum is that of as many: both are compared with a
copy into memory that is there, which is what memory allows. The chain reads two arrays and writes one where
a copy reads one and writes one; a sum reads its numbers and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
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
    chain = _session_chain(x.numpy(), y.numpy())
    torch.testing.assert_close(torch.from_numpy(chain()), (x + y) * y - x)
    compiled = torch.compile(lambda x, y: (x + y) * y - x, dynamic=False)
    contenders = {
        OURS: chain,
        "torch.compile": lambda: compiled(x, y),
        "PyTorch": lambda: (x + y) * y - x,
        "a copy": lambda: copied.copy_(x),
    }
    # Three arrays go through memory where a copy moves two, at 80 % of its speed.
    yield Case("A chain of three on 10^7 numbers", contenders, [Target(3 / 2 / 0.8, ("a copy",))])
    contenders = {
        OURS: lambda: library.sum(x),
        "PyTorch": lambda: x.sum(),
        "a copy": lambda: copied.copy_(x),
    }
    yield Case("The sum of 10^7 numbers", contenders, [Target(1.25, ("a copy",))])


def _session_chain(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> Callable[[], np.ndarray[Any, Any]]:
    import opsmith

    graph = opsmith.Graph()
    a, b = graph.placeholder("float32", [None]), graph.placeholder("float32", [None])
    chain = (a + b) * b - a
    session = opsmith.Session(graph)
    feeds = {a: x, b: y}
    return lambda: session.run(chain, feeds)  # type: ignore[no-any-return]
