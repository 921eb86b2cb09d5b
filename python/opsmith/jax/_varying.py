"""What JAX's types say of where values are: mesh axes that they vary over inside of `jax.shard_map`, and
explicit shardings.

What is typed as the same everywhere is taken from one device, and no gradients are summed for it. JAX cannot
know this of a handler's results: they are typed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
from jax import lax
from jax.core import ShapedArray
from jax.sharding import NamedSharding, PartitionSpec

# `pvary` before 0.8. Releases before 0.6 have no such types.
_cast = partial(lax.pcast, to="varying") if hasattr(lax, "pcast") else getattr(lax, "pvary", None)


def axes_of(values: Any) -> frozenset[Any]:
    """The axes that any array of a tree varies over. Those along which one is still to be summed count too:
    JAX refuses to cast it."""
    found: set[Any] = set()
    for x in jax.tree.leaves(values):
        kind = getattr(_type(x), "manual_axis_type", None)
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


def typed(
    likes: Sequence[Any], inputs: Sequence[Any], specs: Sequence[Any] | None = None
) -> list[ShapedArray]:
    """The types of what a call gives, of these shapes and dtypes. It varies over what the types of its inputs
    do; on a mesh of explicit axes the specs say how it is divided, and it is whole without them."""
    of = next((x for x in inputs if _mesh(x) is not None), None)
    if of is None:
        return [ShapedArray(like.shape, like.dtype) for like in likes]
    found = []
    for place, like in enumerate(likes):
        spec = PartitionSpec(*[None] * len(like.shape)) if specs is None else specs[place]
        sharding = NamedSharding(_mesh(of), spec)
        found.append(of.update(shape=like.shape, dtype=like.dtype, weak_type=False, sharding=sharding))
    return found


def explicit_mesh(inputs: Sequence[Any]) -> Any:
    """The mesh of these types, where it has explicit axes; else `None`."""
    mesh = next((mesh for x in inputs if (mesh := _mesh(x)) is not None), None)
    return mesh if mesh is not None and getattr(mesh, "explicit_axes", ()) else None


def specs_of(outputs: Sequence[Any]) -> tuple[Any, ...] | None:
    """How tensors are divided on a mesh of explicit axes; `None` on any other."""
    types = [_type(x) for x in outputs]
    return None if explicit_mesh(types) is None else tuple(kind.sharding.spec for kind in types)


def as_typed(x: Any, aval: Any) -> Any:
    """The array divided as a type says."""
    if explicit_mesh([aval]) is None or _type(x).sharding.spec == aval.sharding.spec:
        return x
    return jax.sharding.reshard(x, NamedSharding(_mesh(_type(x)) or _mesh(aval), aval.sharding.spec))


def _mesh(aval: Any) -> Any:
    """The mesh of a type; `None` where there is none."""
    mesh = getattr(getattr(aval, "sharding", None), "mesh", None)
    return None if mesh is None or mesh.empty else mesh


def _over(axes: frozenset[Any], x: Any) -> Any:
    # One by one, for JAX casts only what is in one state.
    for axis in sorted(axes - _varying(x), key=str):
        x = _cast(x, axis)
    return x


def _type(x: Any) -> Any:
    """The type of an array, or a type as it is."""
    return x if isinstance(x, ShapedArray) else jax.typeof(x)


def _varying(x: Any) -> frozenset[Any]:
    kind = _type(x)
    # The first name is of 0.10.
    kind = getattr(kind, "manual_axis_type", kind)
    found: frozenset[Any] = getattr(kind, "varying", None) or getattr(kind, "vma", frozenset())
    return found
