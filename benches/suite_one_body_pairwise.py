"""Pairwise kernels that are one line of arithmetic, float32, n = m = p = 512.

Manhattan distances by `#[pairwise]` stand beside the hand-written kernel. The latter saves one of three
operations a term by the identity |x - y| = 2 max(x, y) - x - y. The peers of squared Euclidean distances
are what a user would otherwise write: a numba loop (parallel, fastmath), and broadcasting compiled by
`torch.compile` for these very shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from harness import OURS, Case, Options, Target

if TYPE_CHECKING:
    import numpy as np
    import torch

TITLE = "Pairwise kernels written once"

SIZE = 512
BY_HAND = "by hand"


def broadcasting(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Squared Euclidean distances in plain PyTorch, by way of all n x m x p differences."""
    return ((x[:, None, :] - y[None, :, :]) ** 2).sum(-1)


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
                    difference = x[i, k] - y[j, k]
                    total += difference * difference
                z[i, j] = total
        return z

    return distances


def cases(options: Options) -> Iterator[Case]:
    """Forward, and forward and backward."""
    import opsmith
    import torch

    torch.manual_seed(0)
    library = opsmith.load(options.library("pairwise"))
    by_hand = opsmith.load(options.library("distances")).pairwise_manhattan_distance
    manhattan, squared = library.manhattan, library.squared_euclidean
    x, y, upstream = (torch.rand(SIZE, SIZE) for _ in range(3))
    xs, ys = x.numpy(), y.numpy()
    compiled = torch.compile(broadcasting, dynamic=False)
    loop = numba_distances()
    torch.testing.assert_close(manhattan(x, y), by_hand(x, y), rtol=1e-5, atol=0)
    torch.testing.assert_close(squared(x, y), compiled(x, y), rtol=1e-5, atol=0)
    yield Case(
        "Manhattan, forward",
        {OURS: lambda: manhattan(x, y), BY_HAND: lambda: by_hand(x, y)},
        [Target(1.05, (BY_HAND,))],
    )
    yield Case(
        "squared Euclidean, forward",
        {OURS: lambda: squared(x, y), "torch.compile": lambda: compiled(x, y), "numba": lambda: loop(xs, ys)},
        [Target(1.0, ("torch.compile", "numba"))],
    )

    x, y = x.clone().requires_grad_(), y.clone().requires_grad_()

    def both(op: Callable[..., torch.Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(op(x, y), (x, y), upstream)

    yield Case("Manhattan, forward and backward", {OURS: both(manhattan), BY_HAND: both(by_hand)}, [])
    yield Case(
        "squared Euclidean, forward and backward",
        {OURS: both(squared), "torch.compile": both(compiled)},
        [Target(1.0, ("torch.compile",))],
    )
