"""Pairwise Manhattan distances, with their gradient, for PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

torch.ops.load_library(next(Path(__file__).parent.glob("_C*.so")))


@torch.library.register_fake("distances::pairwise_distance")
def _(x: Tensor, y: Tensor) -> Tensor:
    torch._check(x.dim() == 2 and y.dim() == 2, lambda: "x and y must have rank 2")
    torch._check(x.shape[1] == y.shape[1], lambda: "x and y must have as many columns")
    torch._check(x.dtype == y.dtype, lambda: "x and y must have one dtype")
    return x.new_empty(x.shape[0], y.shape[0])


@torch.library.register_fake("distances::pairwise_distance_grad")
def _(x: Tensor, y: Tensor, z_grad: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), y.new_empty(y.shape)


def _setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, z_grad: Tensor) -> tuple[Tensor, Tensor]:
    return torch.ops.distances.pairwise_distance_grad.default(*ctx.saved_tensors, z_grad)


torch.library.register_autograd("distances::pairwise_distance", _backward, setup_context=_setup_context)


def pairwise_distance(x: Tensor, y: Tensor) -> Tensor:
    """Pairwise Manhattan (L1) distances between the rows of `x` and the rows of `y`."""
    return torch.ops.distances.pairwise_distance.default(x, y)
