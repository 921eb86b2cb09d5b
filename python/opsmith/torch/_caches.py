"""PyTorch's caches of compiled functions, which outlive a process.

A compiled function calls an op and its gradient's op by name, and PyTorch finds it again by these names. Once
a library is built anew, its gradient may take other tensors. So the file is part of the key.
"""

from __future__ import annotations

import os

import torch

from opsmith._definition import Loaded

_PREFIX = "opsmith:"


def tell(loaded: Loaded) -> None:
    """Have what is compiled from now on be found again only beside this file of the library."""
    config = getattr(torch.compiler, "config", None)
    if not hasattr(config, "cache_key_tag"):
        return
    file = os.stat(loaded.native.path)
    own = f"{_PREFIX}{loaded.definition.name}:{file.st_size}:{file.st_mtime_ns}"
    # In one order, in whichever they are loaded; what the user has set comes first.
    tags = config.cache_key_tag.split()
    others = [tag for tag in tags if not tag.startswith(_PREFIX)]
    known = {tag for tag in tags if tag.startswith(_PREFIX)}
    config.cache_key_tag = " ".join([*others, *sorted({*known, own})])
