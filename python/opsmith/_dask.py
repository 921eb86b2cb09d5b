"""Calls of ops on Dask's arrays: each gives lazy ones, cut along the free axes along which the inputs are."""

from __future__ import annotations

import itertools
import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import dask.array as typed
import numpy as np
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from opsmith import _dispatch, _lazy, _library, _parts
from opsmith._axes import FreeAxes, FreeAxis
from opsmith._definition import Loaded, Op
from opsmith._errors import InvalidArgumentError, UnimplementedError
from opsmith._lazy import Groups, Like, Tensor

da: Any = typed
"""Many of its functions have no types."""

PLAIN = frozenset({da.Array})

Lazy: TypeAlias = Any
"""An array of Dask."""

Chunks: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Split:
    """A free axis along which a call is cut."""

    axis: FreeAxis
    size: int
    chunks: Chunks

    def position(self, dim: int | None, shape: Sequence[int | None]) -> int | None:
        """The position of its dim in a tensor that has it whole."""
        return FreeAxis.position(dim, shape, self.size)


class LazyOp:
    """An op as a function of Dask's arrays."""

    def __init__(self, loaded: Loaded, op: Op) -> None:
        self._loaded = loaded
        self._op = op
        self._axes = FreeAxes(loaded, op)
        self._inference = _lazy.Inference(loaded, op)

    def __call__(self, *arguments: Any) -> Any:
        """The outputs of a call with these inputs, attributes and this name, which nothing is named by."""
        op = self._op
        count = len(op.inputs)
        given, attrs, name = arguments[:count], arguments[count:-1], arguments[-1]
        adapter = _dispatch.adapter_for(op, given)
        if adapter.__name__ != __name__:
            return adapter.call(self._loaded, op, given, attrs, name)
        changed = next((arg.name for arg in op.inputs if arg.ref), None)
        if changed is not None:
            raise UnimplementedError.of(
                op.name,
                changed,
                f"changes `{changed}` in place, and an array of Dask cannot be changed; "
                "call it on a NumPy array, such as `.compute()` gives",
            )
        if "_array_expr" in da.Array.__module__:
            raise UnimplementedError.of(
                op.name,
                None,
                "takes no arrays of Dask's experimental query planning; leave the setting "
                "`array.query-planning` off before dask.array is imported",
            )
        inputs = _lazy.groups(op, given, da.Array)
        _check(op, inputs)
        plain = _lazy.plain_attributes(op, attrs)
        named = dict(zip((attr.name for attr in op.call_attrs), plain, strict=True))
        outputs = self._inference.outputs(inputs, named)
        splits = self._splits(inputs, outputs, named)
        arrays = iter(self._graph(inputs, outputs, splits, plain))
        grouped = [
            [next(arrays) for _ in group] if arg.is_list else next(arrays)
            for arg, group in zip(op.outputs, outputs, strict=True)
        ]
        return grouped[0] if len(grouped) == 1 else tuple(grouped) or None

    def _splits(self, inputs: Groups, outputs: list[list[Like]], attrs: Mapping[str, Any]) -> list[Split]:
        """The free axes along which inputs are cut, and may be: each output has the axis, or is the sum over
        the parts."""
        shapes = [[x.shape for x in group or ()] for group in inputs]
        both = zip(inputs, shapes, strict=True)
        ranks = [None if given is None else max(map(len, group), default=0) for given, group in both]
        found = []
        for axis in self._axes.of(attrs, ranks):
            size = axis.size(shapes)
            whole = Split(axis, size, (size,))
            along = [
                tuple(x.chunks[at])
                for dim, group in zip(axis.inputs, inputs, strict=True)
                for x in group or ()
                if (at := whole.position(dim, x.shape)) is not None and isinstance(x, da.Array)
            ]
            chunks = _common(along)
            if len(chunks) > 1 and all(_may_be_cut(whole, i, group) for i, group in enumerate(outputs)):
                found.append(Split(axis, size, chunks))
        return found

    def _graph(
        self, inputs: Groups, outputs: list[list[Like]], splits: list[Split], attrs: tuple[Any, ...]
    ) -> list[Lazy]:
        """The tensors of all outputs, one after the other."""
        op = self._op
        arrays: list[Lazy] = []
        places: list[list[int | None]] = []
        """Of each dim of an array, the split that it is cut along."""
        layout: list[Any] = []
        for i, (arg, group) in enumerate(zip(op.inputs, inputs, strict=True)):
            given: list[Any] = []
            for x in group or ():
                if isinstance(x, np.ndarray) and not x.ndim:
                    # Who calls may change it before it is computed.
                    given.append(x.copy())
                    continue
                cut = _cut(splits, [split.axis.inputs[i] for split in splits], x.shape)
                given.append(len(arrays))
                arrays.append(_chunked(x, cut, splits))
                places.append(cut)
            layout.append(None if group is None else tuple(given) if arg.is_list else given[0])
        likes = [(i, like) for i, group in enumerate(outputs) for like in group]
        results = [_result(splits, i, like) for i, like in likes]
        library = next(known for known in _library.loaded() if known._opsmith_loaded is self._loaded)
        part = _parts.Part(
            library=_parts.reference(library),
            library_name=library.__name__,
            op=op.index,
            op_name=op.name,
            attrs=attrs,
            inputs=tuple(layout),
            cuts=tuple(_parts.Cut(split.axis.name, split.chunks) for split in splits),
            results=tuple(results),
        )
        # Two calls of one that has a state are two.
        same = uuid.uuid4().hex if op.stateful else ""
        token = tokenize(part, same, [array.name for array in arrays])
        return _outputs(f"{op.snake_name}-{token}", part, arrays, places, [like for _, like in likes])


def _check(op: Op, inputs: Groups) -> None:
    """Raise `InvalidArgumentError` for arrays of Dask's that cannot be cut or are not of NumPy's arrays."""
    for arg, group in zip(op.inputs, inputs, strict=True):
        for at, x in enumerate(group or ()):
            if not isinstance(x, da.Array):
                continue
            name = f"input `{arg.name}[{at}]`" if arg.is_list else f"input `{arg.name}`"
            if any(math.isnan(size) for size in x.shape):
                raise InvalidArgumentError.of(
                    op.name,
                    arg.name,
                    f"{name} has chunks of unknown sizes: call `.compute_chunk_sizes()` on it before",
                )
            kind = type(x._meta)
            if kind.__name__ == "MaskedArray":
                raise InvalidArgumentError.of(
                    op.name,
                    arg.name,
                    f"{name} is of masked arrays, whose masks would be lost; pass `da.ma.filled(array)`",
                )
            if not issubclass(kind, np.ndarray):
                raise InvalidArgumentError.of(
                    op.name,
                    arg.name,
                    f"{name} is of chunks of type {kind.__name__}, and must be of NumPy arrays",
                )


def _common(along: Sequence[Chunks]) -> Chunks:
    """Chunks whose bounds are all those of these; none is empty unless all are."""
    bounds = {bound for chunks in along for bound in itertools.accumulate(chunks)}
    ends = sorted(bounds - {0})
    return tuple(end - start for start, end in zip([0, *ends], ends, strict=False)) or (0,)


def _may_be_cut(split: Split, output: int, likes: Sequence[Like]) -> bool:
    """Whether an output has the axis, or is the sum over its parts."""
    dim, is_sum = split.axis.outputs[output], split.axis.sums[output]
    for like in likes:
        if like.shape is None:
            return False
        if split.position(dim, like.shape) is not None:
            continue
        there = dim is not None and dim <= len(like.shape)
        # What only values decide could be the axis too.
        if not is_sum or (there and like.shape[-dim] is None):  # type: ignore[operator]
            return False
    return True


def _cut(
    splits: Sequence[Split], dims: Sequence[int | None], shape: Sequence[int | None]
) -> list[int | None]:
    """Of each dim of a tensor, the position of the split that it is cut along."""
    cut: list[int | None] = [None] * len(shape)
    for i, (split, dim) in enumerate(zip(splits, dims, strict=True)):
        at = split.position(dim, shape)
        if at is not None:
            cut[at] = i
    return cut


def _chunked(x: Tensor, cut: Sequence[int | None], splits: Sequence[Split]) -> Lazy:
    """The tensor in the chunks of the splits, whole along its other dims."""
    both = zip(cut, x.shape, strict=True)
    chunks = tuple((size,) if i is None else splits[i].chunks for i, size in both)
    if not isinstance(x, da.Array):
        return da.from_array(x, chunks=chunks)
    return x if x.chunks == chunks else x.rechunk(chunks)


def _result(splits: Sequence[Split], output: int, like: Like) -> _parts.Result:
    if like.shape is None:
        return _parts.Result(None, 0)
    cut = _cut(splits, [split.axis.outputs[output] for split in splits], like.shape)
    dims = tuple(None if size is None else (size, i) for size, i in zip(like.shape, cut, strict=True))
    return _parts.Result(dims, sum(i not in cut for i in range(len(splits))))


def _outputs(
    name: str,
    part: _parts.Part,
    arrays: Sequence[Lazy],
    places: Sequence[Sequence[int | None]],
    likes: Sequence[Like],
) -> list[Lazy]:
    """The tensors that the parts give, put together."""
    blocks = list(itertools.product(*(range(len(cut.sizes)) for cut in part.cuts)))
    single = len(likes) == 1
    keys = {block: (name, *block) for block in blocks}
    if single:
        keys = {block: _key(name, part.results[0], block) for block in blocks}
    tasks: dict[Any, Any] = {}
    for block in blocks:
        given = [
            (array.name, *(0 if i is None else block[i] for i in place))
            for array, place in zip(arrays, places, strict=True)
        ]
        tasks[keys[block]] = (part, list(block), *given)
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=list(arrays))
    if single:
        return [_array(graph, name, part, part.results[0], likes[0])]
    found = []
    for at, (result, like) in enumerate(zip(part.results, likes, strict=True)):
        own = f"{name}-{at}"
        picked: dict[Any, Any] = {
            _key(own, result, block): (partial(_pick, at), keys[block]) for block in blocks
        }
        layers: dict[str, Any] = {**graph.layers, own: picked}
        dependencies = {**graph.dependencies, own: {name}}
        found.append(_array(HighLevelGraph(layers, dependencies), own, part, result, like))
    return found


def _pick(at: int, tensors: Sequence[Any]) -> Any:
    return tensors[at]


def _key(name: str, result: _parts.Result, block: Sequence[int]) -> tuple[Any, ...]:
    """Of the part of a tensor: the cuts that it lacks in front, then its own dims."""
    own = [dim[1] if dim else None for dim in result.dims or ()]
    front = [at for i, at in enumerate(block) if i not in own]
    return (name, *front, *(0 if i is None else block[i] for i in own))


def _array(graph: HighLevelGraph, name: str, part: _parts.Part, result: _parts.Result, like: Like) -> Lazy:
    if result.dims is None or like.shape is None:
        raise UnimplementedError.of(
            part.op_name,
            None,
            "the rank of an output depends on values, so the op cannot be called on Dask's "
            "arrays; call it on those that `.compute()` gives",
        )
    own = [dim[1] if dim else None for dim in result.dims]
    front = [cut for i, cut in enumerate(part.cuts) if i not in own]
    whole = [(math.nan if size is None else size,) for size in like.shape]
    chunks = [size if i is None else part.cuts[i].sizes for size, i in zip(whole, own, strict=True)]
    ones = [(1,) * len(cut.sizes) for cut in front]
    meta = np.empty((0,) * (len(ones) + len(chunks)), like.dtype)
    array = da.Array(graph, name, (*ones, *chunks), meta=meta)
    if not front:
        return array
    axes = tuple(range(len(front)))
    # Sums of half precision are taken in single precision.
    if like.dtype.itemsize == 2 and like.dtype.kind not in "iu":
        return da.sum(array, axis=axes, dtype=np.float32).astype(like.dtype)
    return da.sum(array, axis=axes, dtype=like.dtype)


_wiring = _lazy.Wiring(LazyOp)
wire, call = _wiring.wire, _wiring.call
