"""The batching rule of an op, for `jax.vmap`.

A batch is one call where the op says which of its dims are independent of each other. Any other op is called
for each element of the batch: nothing quicker is sound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp

from opsmith._batches import InFront
from opsmith.jax import _primitives
from opsmith.jax._op import flat

if TYPE_CHECKING:
    from opsmith.jax._gradients import Call

Value: TypeAlias = Any


def batched(call: Call, size: int, is_batched: list[bool], arrays: list[Value]) -> list[Value]:
    """What calls on each element of a batch give: one array for each that one call gives, with the batch in
    front. It is in front of the arrays that have it."""
    found = _in_one_call(call, size, is_batched, arrays)
    if found is None:
        call.op.batches.warn(size)
        found = _one_by_one(call, is_batched, arrays)
    return found


def _in_one_call(call: Call, size: int, is_batched: list[bool], arrays: list[Value]) -> list[Value] | None:
    """By one call on the whole batch; `None` where that cannot be."""
    # What is part of the program has no batch dim.
    if any(not isinstance(group, int | None) for group in call.layout.groups):
        return None
    layout, op = call.layout, call.op.definition
    groups = [
        list(zip(x, b, strict=True))
        for x, b in zip(layout.split(arrays), layout.split(is_batched), strict=True)
    ]
    shapes = [[x.shape[1:] if has else x.shape for x, has in group] for group in groups]
    ranks = [max(map(len, group)) if group else None for group in shapes]
    any_batched = [any(has for _, has in group) for group in groups]
    known = dict(zip((attr.name for attr in op.call_attrs), call.attrs, strict=True))
    for way in call.op.batches.ways(known, ranks, any_batched, call.wanted):
        if isinstance(way, InFront):
            changed = {**known, **way.attrs}
            new = tuple(tuple(value) if isinstance(value, list) else value for value in changed.values())
            pairs = zip(groups, way.ranks, strict=True)
            given = [_in_front(x, has, rank, size) for group, rank in pairs for x, has in group]
            outputs = _apart(call.again(layout.grouped(given), new), way.outputs, size, None)
            if not way.pads(ranks):
                return outputs
            likes = [x for group, own in zip(shapes, groups, strict=True) for x in _likes(group, own)]
            elements = call.shapes(likes)
            return [x.reshape(size, *like.shape) for x, like in zip(outputs, elements, strict=True)]
        length = way.size(shapes)
        if length is not None:
            both = zip(groups, way.inputs, strict=True)
            given = [_beside(x, has, axis, size) for group, axis in both for x, has in group]
            return _apart(call.again(layout.grouped(given), call.attrs), way.outputs, size, length)
    return None


def _likes(shapes: list[Any], group: list[tuple[Value, bool]]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(shape, x.dtype) for shape, (x, _) in zip(shapes, group, strict=True)]


def _in_front(x: Value, is_batched: bool, rank: int | None, size: int) -> Value:
    """The array with the batch as dim 0, and as many dims of 1 behind it as the rank wants."""
    if rank is None:
        return x
    if not is_batched:
        x = jnp.broadcast_to(x, (size, *x.shape))
    return x.reshape(size, *[1] * (rank - x.ndim), *x.shape[1:])


def _beside(x: Value, is_batched: bool, axis: int | None, size: int) -> Value:
    """The array with the batch put together with the dim `axis`, counted from the end."""
    if axis is None:
        return x
    if not is_batched:
        x = jnp.broadcast_to(x, (size, *x.shape))
    at = x.ndim - 1 - axis
    moved = jnp.moveaxis(x, 0, at)
    return moved.reshape(*moved.shape[:at], size * moved.shape[at + 1], *moved.shape[at + 2 :])


def _apart(
    outputs: tuple[Value, ...], dims: Sequence[int | None], size: int, length: int | None
) -> list[Value]:
    """The arrays of the outputs with the batch as dim 0. It is a dim of these, counted from the end, where
    that has a `length` of its own put together with it."""

    def one(x: Value, dim: int | None) -> Value:
        at = x.ndim - (dim or 0)
        whole = x if length is None else x.reshape(*x.shape[:at], size, length, *x.shape[at + 1 :])
        return jnp.moveaxis(whole, at, 0)

    return [one(x, dim) for output, dim in zip(outputs, dims, strict=True) for x in flat([output])]


def _one_by_one(call: Call, is_batched: list[bool], arrays: list[Value]) -> list[Value]:
    def one(given: list[Value]) -> list[Value]:
        rest = iter(given)
        each = [next(rest) if has else x for x, has in zip(arrays, is_batched, strict=True)]
        return _primitives.call(call, each)

    outputs: list[Value] = jax.lax.map(one, [x for x, has in zip(arrays, is_batched, strict=True) if has])
    return outputs
