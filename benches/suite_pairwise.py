"""Pairwise Manhattan distances, float32, n = m = p = 512.

The peers are what a user would otherwise write, at their best: broadcasting compiled by `torch.compile`
for these very shapes, a numba loop (parallel, fastmath), and the ready-made functions of PyTorch and
SciPy. Memory is the peak beyond the inputs, compared with that of the output alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from harness import OURS, Case, Options, Target

if TYPE_CHECKING:
    import numpy as np
    import torch

TITLE = "Pairwise Manhattan distances"

SIZE = 512
MEMORY_SLACK = 1.1
"""Pages, and what the allocator keeps, over the output's own 1 MiB."""


def broadcasting(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The distances in plain PyTorch, by way of all n x m x p differences."""
    return (x[:, None, :] - y[None, :, :]).abs().sum(-1)


def numba_distances() -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The loop that a numba user writes."""
    import numba
    import numpy as np

    @numba.njit(parallel=True, fastmath=True)
    def distances(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        z = np.empty((x.shape[0], y.shape[0]), x.dtype)
        for i in numba.prange(x.shape[0]):
            for j in range(y.shape[0]):
                total = np.float32(0)
                for k in range(x.shape[1]):
                    total += abs(x[i, k] - y[j, k])
                z[i, j] = total
        return z

    return distances


def cases(options: Options) -> Iterator[Case]:
    """Forward on NumPy arrays and on tensors, forward and backward, and memory."""
    import opsmith
    import torch
    from scipy.spatial.distance import cdist

    torch.manual_seed(0)
    ours = opsmith.load(options.library("distances")).pairwise_manhattan_distance
    x, y, upstream = (torch.rand(SIZE, SIZE) for _ in range(3))
    compiled = torch.compile(broadcasting, dynamic=False)
    loop = numba_distances()
    xs, ys = x.numpy(), y.numpy()
    peers: dict[str, Callable[[], object]] = {
        "torch.compile": lambda: compiled(x, y),
        "numba": lambda: loop(xs, ys),
        "torch.cdist": lambda: torch.cdist(x, y, p=1),
        "SciPy cdist": lambda: cdist(xs, ys, "cityblock"),
    }
    targets = [Target(0.65, ("torch.compile", "numba")), Target(0.08, ("torch.cdist", "SciPy cdist"))]
    torch.testing.assert_close(ours(x, y), compiled(x, y), rtol=1e-5, atol=0)
    yield Case("forward, PyTorch", {OURS: lambda: ours(x, y), **peers}, targets)
    yield Case("forward, NumPy", {OURS: lambda: ours(xs, ys), **peers}, targets)

    x.requires_grad_()
    y.requires_grad_()

    def both(op: Callable[..., torch.Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(op(x, y), (x, y), upstream)

    yield Case(
        "forward and backward, PyTorch",
        {
            OURS: both(ours),
            "torch.compile": both(compiled),
            "torch.cdist": both(lambda x, y: torch.cdist(x, y, p=1)),
        },
        [Target(0.5, ("torch.compile",))],
    )
    yield memory_case(ours, x.detach(), y.detach())


def memory_case(ours: Callable[..., torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> Case:
    """Peak extra memory of one call."""
    import torch

    contenders: dict[str, Callable[[], object]] = {
        OURS: lambda: ours(x, y),
        "the output alone": lambda: torch.ones(SIZE, SIZE),
        "torch.cdist": lambda: torch.cdist(x, y, p=1),
        "broadcasting": lambda: broadcasting(x, y),
    }
    targets = [Target(MEMORY_SLACK, ("the output alone",))]
    return Case("peak extra memory, PyTorch", contenders, targets, memory=True)
