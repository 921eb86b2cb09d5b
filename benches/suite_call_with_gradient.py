"""The same call on inputs that require a gradient. Opsmith goes through the Python package, which wires the
gradient from the definition. The peer is the operator with a C++ `torch::autograd::Function`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import cpp_peer
from harness import OURS, Case, Options, Target

if TYPE_CHECKING:
    import torch

TITLE = "A call in PyTorch with a gradient"

Op = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]


def cases(options: Options) -> Iterator[Case]:
    """Forward, then forward and backward."""
    import opsmith
    import torch

    cpp_peer.load(options)
    ours: Op = opsmith.load(options.library("distances")).pairwise_manhattan_distance
    peer: Op = torch.ops.peer_autograd.pairwise_manhattan_distance
    x, y = torch.rand(1, 1, requires_grad=True), torch.rand(1, 1, requires_grad=True)
    assert torch.equal(ours(x, y), peer(x, y))
    target = [Target(1.2, ("C++ autograd",))]
    yield Case("forward", {OURS: lambda: ours(x, y), "C++ autograd": lambda: peer(x, y)}, target)

    upstream = torch.ones(1, 1)

    def both(op: Op) -> Callable[[], object]:
        return lambda: torch.autograd.grad(op(x, y), (x, y), upstream)

    yield Case("forward and backward", {OURS: both(ours), "C++ autograd": both(peer)}, target)
