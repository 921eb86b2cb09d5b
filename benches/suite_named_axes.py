"""Bodies over named axes, float32: kernel sums, nearest neighbours, cosine distances and attention.

The peers are what a user of PyTorch has at hand: products of matrices where the formula allows, compiled by
`torch.compile` or not, `torch.cdist` and `scaled_dot_product_attention`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from harness import OURS, Case, Options, Target

if TYPE_CHECKING:
    import torch

TITLE = "Bodies over named axes"


def convolution(x: torch.Tensor, y: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A kernel sum by the squares of the rows and a product."""
    distance = (x * x).sum(-1)[:, None] + (y * y).sum(-1)[None, :] - 2 * (x @ y.T)
    return (-distance).exp() @ b


def cosine(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Cosine distances by normalised rows."""
    import torch.nn.functional as functional

    return 1 - functional.normalize(x, dim=-1) @ functional.normalize(y, dim=-1).T


def cases(options: Options) -> Iterator[Case]:
    """Forward, and forward and backward."""
    import opsmith
    import torch

    torch.manual_seed(0)
    library = opsmith.load(options.library("kernels"))

    def both(
        function: Callable[..., torch.Tensor], inputs: list[torch.Tensor], upstream: torch.Tensor
    ) -> Callable[[], object]:
        at = [x.clone().requires_grad_() for x in inputs]
        return lambda: torch.autograd.grad(function(*at), at, upstream)

    compiled = torch.compile(convolution, dynamic=False)
    for width in (3, 64):
        n = 10_240 if width == 3 else 4096
        x, y, b = (torch.rand(n, columns) * width**-0.5 for columns in (width, width, 1))
        torch.testing.assert_close(
            library.gaussian_convolution(x, y, b), convolution(x, y, b), rtol=1e-3, atol=1e-3
        )
        forward = {
            OURS: lambda x=x, y=y, b=b: library.gaussian_convolution(x, y, b),
            "PyTorch": lambda x=x, y=y, b=b: convolution(x, y, b),
            "torch.compile": lambda x=x, y=y, b=b: compiled(x, y, b),
        }
        yield Case(f"Gaussian convolution, {n} x {n} x {width}", forward, [Target(0.6, tuple(forward)[1:])])
        upstream = torch.rand(n, 1)
        backward = {
            OURS: both(library.gaussian_convolution, [x, y, b], upstream),
            "PyTorch": both(convolution, [x, y, b], upstream),
            "torch.compile": both(compiled, [x, y, b], upstream),
        }
        yield Case(
            f"Gaussian convolution, {n} x {n} x {width}, forward and backward",
            backward,
            [Target(0.6, tuple(backward)[1:])],
        )

    x, y = torch.rand(4096, 16), torch.rand(4096, 16)
    yield Case(
        "nearest of 4096 rows of 16",
        {OURS: lambda: library.nearest(x, y), "PyTorch": lambda: torch.cdist(x, y).argmin(1)},
        [Target(1.0, ("PyTorch",))],
    )

    rows, others = torch.rand(2048, 128) - 0.5, torch.rand(2048, 128) - 0.5
    torch.testing.assert_close(
        library.cosine_distance(rows, others), cosine(rows, others), rtol=1e-4, atol=1e-5
    )
    yield Case(
        "cosine distances, 2048 x 2048 x 128",
        {OURS: lambda: library.cosine_distance(rows, others), "PyTorch": lambda: cosine(rows, others)},
        [Target(1.1, ("PyTorch",))],
    )

    query, key, value, upstream = (torch.randn(2, 8, 512, 64) for _ in range(4))
    length = torch.tensor(512)
    attend = torch.nn.functional.scaled_dot_product_attention

    def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return library.attention(query, key, value, length)

    torch.testing.assert_close(attention(query, key, value), attend(query, key, value), rtol=1e-4, atol=1e-5)
    yield Case(
        "attention, 16 x 512 x 64",
        {OURS: lambda: attention(query, key, value), "PyTorch": lambda: attend(query, key, value)},
        [Target(1.2, ("PyTorch",))],
    )
    yield Case(
        "attention, 16 x 512 x 64, forward and backward",
        {
            OURS: both(attention, [query, key, value], upstream),
            "PyTorch": both(attend, [query, key, value], upstream),
        },
        [Target(1.2, ("PyTorch",))],
    )
