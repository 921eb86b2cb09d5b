"""Mesh axes that values vary over, inside of `jax.shard_map`.

JAX's types say along which axes devices may hold different values. What is typed as the same everywhere is
taken from one device, and no gradients are summed for it. JAX cannot know this of a handler's results: they
are typed here.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
from jax import lax

# `pvary` before 0.8. Releases before 0.6 have no such types.
_cast = partial(lax.pcast, to="varying") if hasattr(lax, "pcast") else getattr(lax, "pvary", None)


def axes_of(values: Any) -> frozenset[Any]:
    """The axes that any array of a tree varies over. Those along which one is still to be summed count too:
    JAX refuses to cast it."""
    found: set[Any] = set()
    for x in jax.tree.leaves(values):
        kind = getattr(jax.typeof(x), "manual_axis_type", None)
        found |= _varying(x) if kind is None else kind.varying | kind.reduced | kind.unreduced
    return frozenset(found)


def all_axes() -> frozenset[Any]:
    """The axes that anything can vary over here; none where JAX does not check."""
    if _cast is None:
        return frozenset()
    return axes_of([lax.axis_index(axis) for axis in jax.sharding.get_abstract_mesh().manual_axes])


def over(axes: frozenset[Any], values: Any) -> Any:
    """A tree of arrays, each typed as varying over these axes too. JAX sums its gradient over new ones."""
    return jax.tree.map(partial(_over, axes), values) if axes else values


def _over(axes: frozenset[Any], x: Any) -> Any:
    # One by one, for JAX casts only what is in one state.
    for axis in sorted(axes - _varying(x), key=str):
        x = _cast(x, axis)
    return x


def _varying(x: Any) -> frozenset[Any]:
    kind = jax.typeof(x)
    # The first name is of 0.10.
    kind = getattr(kind, "manual_axis_type", kind)
    found: frozenset[Any] = getattr(kind, "varying", None) or getattr(kind, "vma", frozenset())
    return found
