"""What a PyTorch call costs when there is nothing to compute: `x` and `y` of shape (1, 1), float32.

The library is loaded by `torch.ops.load_library`, without the Python package. The peer is the same
operator in C++ with `TORCH_LIBRARY`.
"""

from __future__ import annotations

from collections.abc import Iterator

import cpp_peer
from harness import OURS, Case, Options, Target

TITLE = "A call in PyTorch"


def cases(options: Options) -> Iterator[Case]:
    """One call through `torch.ops` each."""
    import torch

    cpp_peer.load(options)
    torch.ops.load_library(options.library("distances"))
    x, y = torch.rand(1, 1), torch.rand(1, 1)
    ours = torch.ops.distances.pairwise_manhattan_distance
    peer = torch.ops.peer.pairwise_manhattan_distance
    assert torch.equal(ours(x, y), peer(x, y))
    yield Case(
        "forward",
        {OURS: lambda: ours(x, y), "C++": lambda: peer(x, y)},
        [Target(1.25, ("C++",))],
    )
