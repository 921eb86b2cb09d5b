"""Just-in-time building: from a source in Rust to a loaded library, within a program or a notebook.

    >>> from opsmith import jit
    >>> activations = jit.load_inline("activations", '''
    ... #[pointwise]
    ... fn swish<S: Scalar>(x: S) -> S {
    ...     x * x.sigmoid()
    ... }
    ... ''')
    >>> activations.swish([0.0])
    array([0.])

A source says nothing but the ops. What is built is kept, and built again when the source, the compiler or
this package has changed. It takes Rust on the machine (https://rustup.rs).
"""

from __future__ import annotations

from opsmith.jit._cache import cache_folder
from opsmith.jit._errors import BuildError
from opsmith.jit._load import load, load_inline
from opsmith.jit._room import CacheInfo, CachePart, cache_info

__all__ = ["BuildError", "CacheInfo", "CachePart", "cache_folder", "cache_info", "load", "load_inline"]
