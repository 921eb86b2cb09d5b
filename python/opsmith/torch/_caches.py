"""PyTorch's caches of compiled functions, which outlive a process.

A compiled function calls an op and its gradient's op by name, and PyTorch finds it again by these names. Once
a library is built anew, its gradient may take other tensors. So the build is part of the key.
"""

from __future__ import annotations

import torch

from opsmith._definition import Loaded

_PREFIX = "opsmith:"


def tag(loaded: Loaded) -> str:
    """What a key says of the library: nothing in it is white space."""
    return f"{_PREFIX}{loaded.definition.name}:{'_'.join(loaded.native.build.split())}"


def tell(own: str) -> None:
    """Have what this thread is compiling be found again only beside the library with this tag.

    Settings of PyTorch are those of a thread, and may be patched for a while, so they are looked at whenever
    an op is traced.
    """
    config = getattr(torch.compiler, "config", None)
    if not hasattr(config, "cache_key_tag"):
        return
    tags = config.cache_key_tag.split()
    if own in tags:
        return
    # In one order, in whichever they are traced; what the user has set comes first.
    others = [known for known in tags if not known.startswith(_PREFIX)]
    libraries = sorted({own, *(known for known in tags if known.startswith(_PREFIX))})
    config.cache_key_tag = " ".join([*others, *libraries])
