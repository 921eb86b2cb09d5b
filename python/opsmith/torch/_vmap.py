"""The batching rule of an op, for `torch.vmap` and `torch.func`.

An op whose shape signature has batch dims (`...`) everywhere is called once. Any other is called for each
element of the batch: a shape signature says nothing about which outputs depend on which rows, so nothing
quicker is sound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from opsmith.torch._op import TorchOp, Value, device_of


def rule(op: TorchOp) -> Callable[..., tuple[Value, Value]]:
    """The function for `torch.library.register_vmap`."""

    def batched(info: Any, in_dims: Sequence[Value], *args: Value, **kwargs: Value) -> tuple[Value, Value]:
        _refuse_shared_changes(op, in_dims, args)
        if op.definition.batchable:
            result = op.overload(
                *_map(lambda t, dim: _with_leading_dim(t, dim, info.batch_size), args, in_dims), **kwargs
            )
        elif info.batch_size == 0:
            result = _empty(op, in_dims, args, kwargs)
        else:
            result = _stacked(op, info.batch_size, in_dims, args, kwargs)
        return result, pytree.tree_map(lambda _: 0, result)

    return batched


def _map(
    change: Callable[[Value, int | None], Value], args: Sequence[Value], in_dims: Sequence[Value]
) -> list[Value]:
    """The arguments with `change` done to each tensor and its batch dim."""

    def one(value: Value, dim: Value) -> Value:
        if isinstance(value, torch.Tensor):
            return change(value, dim)
        if isinstance(value, list | tuple) and value and isinstance(value[0], torch.Tensor):
            return [change(tensor, each) for tensor, each in zip(value, dim, strict=True)]
        return value

    return [one(value, dim) for value, dim in zip(args, in_dims, strict=True)]


def _with_leading_dim(tensor: torch.Tensor, dim: int | None, size: int) -> torch.Tensor:
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _stacked(
    op: TorchOp, size: int, in_dims: Sequence[Value], args: Sequence[Value], kwargs: dict[str, Value]
) -> Value:
    def call(index: int) -> tuple[tuple[torch.Tensor, ...], tuple[int, ...]]:
        element = _map(lambda t, dim: t if dim is None else t.select(dim, index), args, in_dims)
        return op.flatten(op.overload(*element, **kwargs))

    calls = [call(index) for index in range(size)]
    columns = zip(*(tensors for tensors, _ in calls), strict=True)
    return op.unflatten([torch.stack(column) for column in columns], calls[0][1])


def _empty(op: TorchOp, in_dims: Sequence[Value], args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """The result for a batch of nothing: its shapes come from a call on meta tensors."""

    def element(tensor: torch.Tensor, dim: int | None) -> torch.Tensor:
        shape = list(tensor.shape)
        if dim is not None:
            del shape[dim]
        return tensor.new_empty(shape, device="meta")

    result = op.overload(*_map(element, args, in_dims), **kwargs)
    device = device_of(op.definition, args)
    return pytree.tree_map(lambda t: t.new_empty((0, *t.shape), device=device), result)


def _refuse_shared_changes(op: TorchOp, in_dims: Sequence[Value], args: Sequence[Value]) -> None:
    for arg, dim in zip(op.definition.inputs, in_dims[: len(op.definition.inputs)], strict=False):
        dims = dim if arg.is_list else [dim]
        if arg.ref and any(each is None for each in dims):
            raise RuntimeError(
                f"{op.name}: vmap changes input `{arg.name}` in place, so it must be batched itself"
            )
