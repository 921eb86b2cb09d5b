"""The batching rule of an op, for `jax.vmap`.

A batch is one call where the op says which of its dims are independent of each other. Any other op is called
for each element of the batch: nothing quicker is sound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from opsmith._batches import Batches, InFront
from opsmith._definition import Op

Value: TypeAlias = Any
Once: TypeAlias = Callable[[Sequence[Value], tuple[Any, ...], int], tuple[Value, ...]]
"""Inputs, canonical attributes and wanted outputs of one call, to its outputs."""


class Batching:
    """An op as a function with a batching rule."""

    def __init__(self, batches: Batches, op: Op, once: Once) -> None:
        self._batches = batches
        self._op = op
        self._once = once

    def __call__(self, inputs: Sequence[Value], attrs: tuple[Any, ...], wanted: int) -> tuple[Value, ...]:
        """The outputs of a call, which may be batched later."""
        leaves, tree = jax.tree.flatten(list(inputs), is_leaf=lambda x: x is None)
        arrays = [x for x in leaves if x is not None]

        def grouped(values: Sequence[Value]) -> list[Value]:
            """One for each array, as the inputs are grouped."""
            rest = iter(values)
            return jax.tree.unflatten(tree, [None if x is None else next(rest) for x in leaves])

        def call(*arrays: Value) -> tuple[Value, ...]:
            return self._once(grouped(arrays), attrs, wanted)

        def rule(size: int, in_batched: Sequence[bool], *arrays: Value) -> tuple[Value, Value]:
            result = self._in_one_call(size, grouped(in_batched), grouped(arrays), attrs, wanted)
            if result is None:
                self._batches.warn(size)
                again = lambda *arrays: self(grouped(arrays), attrs, wanted)  # noqa: E731
                result = _one_by_one(again, in_batched, arrays)
            return result, jax.tree.map(lambda _: True, result)

        # What has no arrays cannot be batched.
        if not arrays:
            return call()
        function = custom_vmap(call)
        function.def_vmap(rule)
        outputs: tuple[Value, ...] = function(*arrays)
        return outputs

    def _in_one_call(
        self, size: int, batched: list[Value], inputs: list[Value], attrs: tuple[Any, ...], wanted: int
    ) -> tuple[Value, ...] | None:
        """The outputs of one call on the whole batch, its dim in front; `None` where that cannot be."""
        groups = [list(zip(_list(x), _list(b), strict=True)) for x, b in zip(inputs, batched, strict=True)]
        shapes = [[x.shape[1:] if is_batched else x.shape for x, is_batched in group] for group in groups]
        ranks = [max(map(len, group)) if group else None for group in shapes]
        is_batched = [any(is_b for _, is_b in group) for group in groups]
        known = dict(zip((attr.name for attr in self._op.call_attrs), attrs, strict=True))
        for way in self._batches.ways(known, ranks, is_batched, wanted):
            if isinstance(way, InFront):
                changed = {**known, **way.attrs}
                new = tuple(tuple(value) if isinstance(value, list) else value for value in changed.values())
                pairs = zip(groups, way.ranks, strict=True)
                given = [[_in_front(x, is_b, rank, size) for x, is_b in group] for group, rank in pairs]
                outputs = _apart(self(_like(inputs, given), new, wanted), way.outputs, size, None)
                if not way.pads(ranks):
                    return outputs
                elements = self._elements(inputs, shapes, attrs, wanted)
                return jax.tree.map(lambda x, like: x.reshape(size, *like.shape), outputs, elements)
            length = way.size(shapes)
            if length is not None:
                both = zip(groups, way.inputs, strict=True)
                given = [[_beside(x, is_b, axis, size) for x, is_b in group] for group, axis in both]
                return _apart(self(_like(inputs, given), attrs, wanted), way.outputs, size, length)
        return None

    def _elements(
        self, inputs: list[Value], shapes: list[list[Any]], attrs: tuple[Any, ...], wanted: int
    ) -> tuple[Value, ...]:
        """The shapes of the outputs of one call."""
        likes = [
            [jax.ShapeDtypeStruct(shape, x.dtype) for shape, x in zip(group, _list(own), strict=True)]
            for group, own in zip(shapes, inputs, strict=True)
        ]
        found: tuple[Value, ...] = jax.eval_shape(
            lambda given: self._once(given, attrs, wanted), _like(inputs, likes)
        )
        return found


def _like(inputs: list[Value], given: list[list[Value]]) -> list[Value]:
    """The arrays, grouped as the inputs are."""
    both = zip(inputs, given, strict=True)
    return [None if x is None else group if isinstance(x, list | tuple) else group[0] for x, group in both]


def _list(value: Value) -> list[Value]:
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


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
) -> tuple[Value, ...]:
    """The outputs with the batch as dim 0. It is a dim of these, counted from the end, where that has a
    `length` of its own put together with it."""

    def one(x: Value, dim: int | None) -> Value:
        at = x.ndim - (dim or 0)
        whole = x if length is None else x.reshape(*x.shape[:at], size, length, *x.shape[at + 1 :])
        return jnp.moveaxis(whole, at, 0)

    return tuple(
        jax.tree.map(lambda x, dim=dim: one(x, dim), output)
        for output, dim in zip(outputs, dims, strict=True)
    )


def _one_by_one(
    call: Callable[..., tuple[Value, ...]], in_batched: Sequence[bool], arrays: Sequence[Value]
) -> tuple[Value, ...]:
    def one(batched: list[Value]) -> tuple[Value, ...]:
        rest = iter(batched)
        return call(*(next(rest) if is_b else x for x, is_b in zip(arrays, in_batched, strict=True)))

    outputs: tuple[Value, ...] = jax.lax.map(
        one, [x for x, is_b in zip(arrays, in_batched, strict=True) if is_b]
    )
    return outputs
