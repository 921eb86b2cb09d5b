"""The batching rule of an op, for `torch.vmap` and `torch.func`.

A batch is one call where the op says which of its dims are independent of each other. Any other op is called
for each element of the batch: nothing quicker is sound.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch.utils import _pytree as pytree

from opsmith._batches import Batches, InFront
from opsmith._definition import Loaded
from opsmith.torch._op import Call, TorchOp, Value, device_of

Group: TypeAlias = list[tuple[torch.Tensor, int | None]]
"""The tensors of an input, each with the dim of the batch."""


def rule(loaded: Loaded, op: TorchOp) -> Callable[..., tuple[Value, Value]]:
    """The function for `torch.library.register_vmap`."""
    batches = Batches(loaded, op.definition)

    def batched(info: Any, in_dims: Sequence[Value], *args: Value, **kwargs: Value) -> tuple[Value, Value]:
        _refuse_shared_changes(op, in_dims, args)
        result = _in_one_call(op, batches, info.batch_size, in_dims, args, kwargs)
        if result is None and info.batch_size == 0:
            result = _empty(op, in_dims, args, kwargs)
        elif result is None:
            batches.warn(info.batch_size)
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


def _in_one_call(
    op: TorchOp,
    batches: Batches,
    size: int,
    in_dims: Sequence[Value],
    args: Sequence[Value],
    kwargs: dict[str, Value],
) -> Value:
    """The result of one call on the whole batch, its dim in front; `None` where that cannot be."""
    count = len(op.definition.inputs)
    groups = [_group(value, dim) for value, dim in itertools.zip_longest(args[:count], in_dims[:count])]
    groups += [[] for _ in range(count - len(groups))]
    if any(dim is not None for dim in in_dims[count:]):
        # A `tensor` attribute is one value.
        return None
    call = op.bind(args, kwargs)
    shapes = [[_element(*each) for each in group] for group in groups]
    ranks = [max(map(len, group)) if group else None for group in shapes]
    is_batched = [any(dim is not None for _, dim in group) for group in groups]
    for way in batches.ways(call.attrs, ranks, is_batched, call.wanted):
        if isinstance(way, InFront):
            # First, for what is an error of one element might not be one of the batch.
            elements = _elements(op, in_dims, args, kwargs) if way.pads(ranks) else None
            inputs = [_in_front(group, rank, size) for group, rank in zip(groups, way.ranks, strict=True)]
            result = _call(op, inputs, args, {**kwargs, **_keywords(op, way.attrs)})
            return _with_batch(op, call, result, size, way.outputs, None, elements)
        length = way.size(shapes)
        if length is not None:
            inputs = [_beside(group, dim, size) for group, dim in zip(groups, way.inputs, strict=True)]
            result = _call(op, inputs, args, kwargs)
            return _with_batch(op, call, result, size, way.outputs, length)
    return None


def _group(value: Value, dim: Value) -> Group:
    if value is None:
        return []
    return [(value, dim)] if isinstance(value, torch.Tensor) else list(zip(value, dim, strict=True))


def _element(tensor: torch.Tensor, dim: int | None) -> list[int]:
    """The shape of one element of the batch."""
    return [size for at, size in enumerate(tensor.shape) if at != dim]


def _in_front(group: Group, rank: int | None, size: int) -> list[torch.Tensor]:
    """The tensors with the batch as dim 0, and as many dims of 1 behind it as the rank wants."""

    def one(tensor: torch.Tensor, dim: int | None) -> torch.Tensor:
        if rank is None:
            return tensor
        whole = tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        for _ in range(rank - whole.dim()):
            whole = whole.unsqueeze(1)
        return whole

    return [one(*each) for each in group]


def _beside(group: Group, axis: int | None, size: int) -> list[torch.Tensor]:
    """The tensors with the batch put together with the dim `axis`, counted from the end."""

    def one(tensor: torch.Tensor, dim: int | None) -> torch.Tensor:
        if axis is None:
            return tensor
        at = len(_element(tensor, dim)) - axis
        if dim is None:
            sizes = [-1] * at + [size] + [-1] * axis
            return tensor.unsqueeze(at).expand(sizes).flatten(at, at + 1)
        return tensor.movedim(dim, at).flatten(at, at + 1)

    return [one(*each) for each in group]


def _call(
    op: TorchOp, inputs: list[list[torch.Tensor]], args: Sequence[Value], kwargs: dict[str, Value]
) -> Value:
    given = [
        value if value is None else group if arg.is_list else group[0]
        for arg, group, value in zip(op.definition.inputs, inputs, args, strict=False)
    ]
    return op.overload(*given, *args[len(op.definition.inputs) :], **kwargs)


def _keywords(op: TorchOp, attrs: Any) -> dict[str, Value]:
    """Attributes as the schema names them."""
    names = {attr.name: name for name, attr in op.keyword_attrs.items()}
    return {names[name]: value for name, value in attrs.items()}


def _with_batch(
    op: TorchOp,
    call: Call,
    result: Value,
    size: int,
    dims: Sequence[int | None],
    length: int | None,
    elements: list[torch.Size] | None = None,
) -> Value:
    """The result with the batch as dim 0 of each tensor. It is a dim of these, counted from the end, where it
    has a dim of `length` put together with it; `elements` are the shapes behind it where dims of 1 were
    added."""
    tensors, counts = op.flatten(result)
    found: list[torch.Tensor] = []
    for position, count in enumerate(counts):
        is_wanted = not op.definition.outputs[position].optional or call.wanted >> position & 1
        for tensor in tensors[len(found) : len(found) + count]:
            if not is_wanted:
                found.append(tensor.new_empty((size, 0)))
                continue
            at = tensor.dim() - (dims[position] or 0)
            whole = tensor if length is None else tensor.unflatten(at, (size, length))
            whole = whole.movedim(at, 0)
            found.append(whole if elements is None else whole.reshape(size, *elements[len(found)]))
    return op.unflatten(found, counts)


def _stacked(
    op: TorchOp, size: int, in_dims: Sequence[Value], args: Sequence[Value], kwargs: dict[str, Value]
) -> Value:
    def call(index: int) -> tuple[tuple[torch.Tensor, ...], tuple[int, ...]]:
        element = _map(lambda t, dim: t if dim is None else t.select(dim, index), args, in_dims)
        return op.flatten(op.overload(*element, **kwargs))

    calls = [call(index) for index in range(size)]
    columns = zip(*(tensors for tensors, _ in calls), strict=True)
    return op.unflatten([torch.stack(column) for column in columns], calls[0][1])


def _on_meta(op: TorchOp, in_dims: Sequence[Value], args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """What a call on one element gives, without memory."""

    def element(tensor: torch.Tensor, dim: int | None) -> torch.Tensor:
        return tensor.new_empty(_element(tensor, dim), device="meta")

    return op.overload(*_map(element, args, in_dims), **kwargs)


def _elements(
    op: TorchOp, in_dims: Sequence[Value], args: Sequence[Value], kwargs: dict[str, Value]
) -> list[torch.Size]:
    return [tensor.shape for tensor in op.flatten(_on_meta(op, in_dims, args, kwargs))[0]]


def _empty(op: TorchOp, in_dims: Sequence[Value], args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """The result for a batch of nothing."""
    device = device_of(op.definition, args)
    result = _on_meta(op, in_dims, args, kwargs)
    return pytree.tree_map(lambda t: t.new_empty((0, *t.shape), device=device), result)


def _refuse_shared_changes(op: TorchOp, in_dims: Sequence[Value], args: Sequence[Value]) -> None:
    for arg, dim in zip(op.definition.inputs, in_dims[: len(op.definition.inputs)], strict=False):
        dims = dim if arg.is_list else [dim]
        if arg.ref and any(each is None for each in dims):
            raise RuntimeError(
                f"{op.name}: vmap changes input `{arg.name}` in place, so it must be batched itself"
            )
