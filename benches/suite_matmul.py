"""The standard operators in float32: matrix products, and operations that go through memory once.

The peers of a product are `torch.matmul` on the same tensors with as many threads, and NumPy. The chain is
`(x + y) * y - x` on 10^7 numbers, in a session, and the sum is over as many numbers. Both are compared with a
copy into existing memory, which is the limit that memory sets. A copy reads one array and writes one; the
chain reads two and writes one; the sum reads one and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from harness import OURS, Case, Options, Target

TITLE = "The standard operators"

SHAPES = [
    ("4,096 of 16x16x16", (4096, 16), 16, 16, 1.0),
    ("4,096 of 8x12x20", (4096, 8), 12, 20, 1.0),
    ("16x384x160", (16,), 384, 160, 1.0),
    ("256x256x256", (256,), 256, 256, 1.0),
    ("1024x1024x1024", (1024,), 1024, 1024, 1 / 1.4),
    ("1x1024x1024", (1,), 1024, 1024, 1.0),
    ("1024x1024x1", (1024,), 1024, 1, 1.0),
    ("1000x64x1", (1000,), 64, 1, 1.0),
    ("353x10x1", (353,), 10, 1, 1.0),
]
COUNT = 10**7


def cases(options: Options) -> Iterator[Case]:
    """Products, then a chain and a sum."""
    import opsmith
    import torch

    torch.manual_seed(0)
    library = opsmith.load(options.library("opsmith_ops"))
    for name, rows, k, m, limit in SHAPES:
        a, b = torch.randn(*rows, k), torch.randn(*rows[:-1], k, m)
        in_numpy = a.numpy(), b.numpy()
        torch.testing.assert_close(library.mat_mul(a, b), a @ b, rtol=1e-4, atol=1e-4)
        contenders: dict[str, Callable[[], object]] = {
            OURS: lambda a=a, b=b: library.mat_mul(a, b),
            "torch.matmul": lambda a=a, b=b: torch.matmul(a, b),
            "NumPy": lambda arrays=in_numpy: arrays[0] @ arrays[1],
        }
        yield Case(f"MatMul {name}", contenders, [Target(limit, ("torch.matmul", "NumPy"))])
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
