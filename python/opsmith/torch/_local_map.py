"""A function of a library on the parts of DTensors that each process has."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from opsmith._definition import Arg, Op
from opsmith._errors import InvalidArgumentError
from opsmith._library import op_of
from opsmith.torch import _calls
from opsmith.torch._op import Call
from opsmith.torch._sharding import Cut, Cuts, Whole, placement, refusal

Placements: TypeAlias = Sequence[Any]
"""One `Shard`, `Replicate` or `Partial` for each dim of the mesh."""


def local_map(
    function: Callable[..., Any],
    in_placements: Sequence[Placements | None] | None = None,
    out_placements: Sequence[Placements] | Placements | None = None,
    *,
    redistribute_inputs: bool = False,
) -> Callable[..., Any]:
    """A function that calls a library's function on the part of each DTensor that this process has.

        >>> by_rows = opsmith.torch.local_map(distances.pairwise_manhattan_distance,
        ...                                   in_placements=[[Shard(0)], [Replicate()]])
        >>> z = by_rows(x, y)

    - `function`: a function of a library.
    - `in_placements`: for each input its placements, one for each dim of the mesh; `None` for an absent
      input. All tensors of a list have the same placements. By default, the DTensors' own.
    - `out_placements`: the expected placements of the only output, or a sequence of those of each output.
      Others are an error. By default, any.
    - `redistribute_inputs`: whether inputs with other placements are redistributed. By default they are an
      error.

    The result takes the arguments of `function`. All its tensors are DTensors on one mesh. The parts of an
    axis may differ in size, as `distribute_tensor` makes them. It communicates nothing, unless
    `redistribute_inputs` is true.

    All placements follow from the op's free axes. The gradient of an input that is cut is placed like the
    input. That of an input that is whole beside others that are cut is a sum over the processes (`Partial`).
    PyTorch's own `torch.distributed.tensor.experimental.local_map` does not know the op. It takes gradients
    of replicated inputs to be replicated, which gives one process's share unless `in_grad_placements` says
    otherwise.

    Raises `opsmith.InvalidArgumentError`, which names op, argument and axis, if placements cut an axis that
    is not free, or cut only some of the inputs that have an axis. Also raises it for tensors that are not
    DTensors or are on several meshes, and for ops that have state or change an input in place.
    """
    found = op_of(function)
    if found is None:
        raise InvalidArgumentError(
            "local_map: `function` must be a function of a library that opsmith.load gave, and attributes go "
            f"with the call, got {function!r}"
        )
    library, op = found
    why = refusal(op)
    if why is not None:
        raise InvalidArgumentError(why)
    from opsmith.torch import torch_op

    loaded = library._opsmith_loaded
    of_torch = torch_op(loaded, op)
    if of_torch is None:
        raise InvalidArgumentError.of(op.name, None, "PyTorch does not have this op, so it takes no DTensor")
    mapped = _Mapped(op, function, Cuts(loaded, of_torch))
    if in_placements is not None and len(in_placements) != len(op.inputs):
        names = ", ".join(arg.name for arg in op.inputs)
        raise InvalidArgumentError.of(
            op.name,
            None,
            f"`in_placements` has {len(in_placements)} items for {len(op.inputs)} inputs ({names})",
        )

    @functools.wraps(function)
    def local(*args: Any, **kwargs: Any) -> Any:
        return mapped.call(args, kwargs, in_placements, out_placements, redistribute_inputs)

    return local


class _Mapped:
    """One op, called on parts."""

    def __init__(self, op: Op, function: Callable[..., Any], cuts: Cuts) -> None:
        self._op = op
        self._function = function
        self._signature = inspect.signature(function)
        self._cuts = cuts

    def call(
        self,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        placements: Sequence[Placements | None] | None,
        expected: Sequence[Placements] | Placements | None,
        redistribute: bool,
    ) -> Any:
        """What `local_map` describes."""
        from torch.distributed.tensor import DTensor

        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        groups = [self._group(arg, bound.arguments[arg.python_name], DTensor) for arg in self._op.inputs]
        mesh = self._mesh(groups)
        if placements is not None:
            both = zip(self._op.inputs, groups, placements, strict=True)
            groups = [self._placed(arg, group, given, redistribute) for arg, group, given in both]
        shapes, cuts = self._chosen(groups, bound.arguments, mesh.ndim)
        local = []
        for position, group in enumerate(groups):
            parts = [x.to_local(grad_placements=_gradient(x.placements, cuts)) for x in group]
            is_list = self._op.inputs[position].is_list
            local.append(parts if is_list else parts[0] if parts else None)
        for arg, value in zip(self._op.inputs, local, strict=True):
            bound.arguments[arg.python_name] = value
        return self._whole(self._function(*bound.args, **bound.kwargs), shapes, cuts, mesh, expected)

    def _group(self, arg: Arg, value: Any, dtensor: type) -> list[Any]:
        values = value if arg.is_list and isinstance(value, list | tuple) else [value]
        if value is None and arg.optional:
            return []
        for each in values:
            if not isinstance(each, dtensor):
                raise self._error(
                    f"input `{arg.name}` must be a DTensor, got {type(each).__name__}; "
                    "torch.distributed.tensor.distribute_tensor makes one"
                )
        return list(values)

    def _mesh(self, groups: list[list[Any]]) -> Any:
        meshes = [
            (arg.name, x.device_mesh)
            for arg, group in zip(self._op.inputs, groups, strict=True)
            for x in group
        ]
        if not meshes:
            raise self._error("local_map needs at least one DTensor, got no tensor")
        first, mesh = meshes[0]
        for name, other in meshes:
            if other != mesh:
                raise self._error(
                    f"all inputs must be on one mesh, but `{first}` is on {mesh} and `{name}` on {other}"
                )
        return mesh

    def _placed(
        self, arg: Arg, group: list[Any], placements: Placements | None, redistribute: bool
    ) -> list[Any]:
        placed = []
        for x in group:
            if not isinstance(placements, list | tuple) or len(placements) != x.device_mesh.ndim:
                raise self._error(
                    f"input `{arg.name}` takes one placement for each of the {x.device_mesh.ndim} dims of "
                    f"the mesh, `in_placements` has {placements}"
                )
            if x.placements != tuple(placements):
                if not redistribute:
                    raise self._error(
                        f"input `{arg.name}` must be placed as {tuple(placements)}, got {x.placements}; "
                        "`redistribute_inputs=True` moves it"
                    )
                x = x.redistribute(placements=placements)
            placed.append(x)
        return placed

    def _chosen(
        self, groups: list[list[Any]], arguments: dict[str, Any], dims: int
    ) -> tuple[list[list[Any]], list[Cut]]:
        """The shapes of the outputs as a whole, and along what each dim of the mesh cuts."""
        wholes: list[Any] = []
        for arg, group in zip(self._op.inputs, groups, strict=True):
            given = [Whole(x.shape, x.dtype) for x in group]
            wholes.append(given if arg.is_list else given[0] if given else None)
        attrs = {
            attr.name: _calls.attribute(self._op, attr, arguments[attr.python_name])
            for attr in self._op.call_attrs
        }
        call = Call(tuple(wholes), attrs, -1)
        ways = self._cuts.of(call)
        return self._cuts.output_shapes(call), [self._cut(ways, groups, dim) for dim in range(dims)]

    def _cut(self, ways: list[Cut], groups: list[list[Any]], mesh_dim: int) -> Cut:
        """The way that a dim of the mesh takes."""
        given = [
            [self._position(position, x, mesh_dim) for x in group] for position, group in enumerate(groups)
        ]
        for way in ways:
            if [list(group) for group in way.inputs] == given:
                return way
        raise self._error(self._mistake(ways, given, mesh_dim))

    def _error(self, text: str) -> InvalidArgumentError:
        return InvalidArgumentError.of(self._op.name, None, text)

    def _position(self, position: int, x: Any, mesh_dim: int) -> int | None:
        from torch.distributed.tensor import Shard

        own = x.placements[mesh_dim]
        if own.is_replicate():
            return None
        if type(own) is Shard:
            dim: int = own.dim % max(x.dim(), 1)
            return dim
        raise self._error(
            f"input `{self._op.inputs[position].name}` is placed as {own}; local_map takes Shard and "
            "Replicate, which `x.redistribute` makes"
        )

    def _mistake(self, ways: list[Cut], given: list[list[int | None]], mesh_dim: int) -> str:
        """What is wrong with the placements."""
        where = f"over dim {mesh_dim} of the mesh"
        for arg, group, position in zip(self._op.inputs, given, range(len(given)), strict=True):
            dim = next((dim for dim in group if dim is not None), None)
            if dim is None:
                continue
            way = next((way for way in ways if dim in way.inputs[position]), None)
            if way is None or way.axis is None:
                rule = self._op.parallel or "none is stated"
                return (
                    f"input `{arg.name}` is cut along its dim {dim} {where}, which is no free axis of this "
                    f"call ({rule})"
                )
            for other, expected, found in zip(self._op.inputs, way.inputs, given, strict=True):
                if list(expected) != found:
                    return (
                        f"input `{arg.name}` is cut along its dim {dim} {where}, the free axis "
                        f"`{way.axis.name}`, so input `{other.name}` must be placed as "
                        f"{_told(expected)}, got {_told(found)}"
                    )
        raise AssertionError(given)

    def _whole(
        self,
        result: Any,
        shapes: list[list[Any]],
        cuts: list[Cut],
        mesh: Any,
        expected: Sequence[Placements] | Placements | None,
    ) -> Any:
        from torch.distributed.tensor import DTensor

        returned = self._op.returned
        results = [result] if len(returned) == 1 else list(result or ())
        wholes: list[Any] = []
        for value, output in zip(results, returned, strict=True):
            arg, group = self._op.outputs[output], []
            for at, part in enumerate(value if arg.is_list else [value]):
                placements = tuple(placement(cut.outputs[output][at]) for cut in cuts)
                self._check(arg, placements, expected, len(wholes))
                shape = torch.Size(shapes[output][at])
                strides = torch.empty(shape, device="meta").stride()
                found = DTensor.from_local(
                    part, mesh, placements, run_check=False, shape=shape, stride=strides
                )
                group.append(_Arriving.apply(found) if found.requires_grad else found)
            wholes.append(group if arg.is_list else group[0])
        return wholes[0] if len(wholes) == 1 else tuple(wholes) if wholes else None

    def _check(self, arg: Arg, placements: tuple[Any, ...], expected: Any, position: int) -> None:
        if expected is None:
            return
        of_each = [expected] if len(self._op.returned) == 1 and not _is_nested(expected) else expected
        if position >= len(of_each) or tuple(of_each[position]) != placements:
            told = tuple(of_each[position]) if position < len(of_each) else "nothing"
            raise self._error(f"output `{arg.name}` comes out as {placements}, `out_placements` has {told}")


def _is_nested(placements: Any) -> bool:
    return bool(placements) and isinstance(placements[0], list | tuple)


def _gradient(placements: Placements, cuts: list[Cut]) -> tuple[Any, ...]:
    """How the gradient of an input is placed: each process computes its share where the call is cut."""
    from torch.distributed.tensor import Partial

    both = zip(placements, cuts, strict=True)
    return tuple(Partial() if p.is_replicate() and cut.axis is not None else p for p, cut in both)


def _told(dims: Sequence[int | None]) -> str:
    """`Shard(0)`, or one for each tensor of a list."""
    told = ["Replicate()" if dim is None else f"Shard({dim})" for dim in dims]
    return told[0] if len(told) == 1 else f"[{', '.join(told)}]"


class _Arriving(torch.autograd.Function):
    """Places the gradient that arrives at a DTensor as the DTensor is, so that it can be differentiated
    again: PyTorch's `from_local` would do so beside autograd."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.placements = x.placements
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
        from torch.distributed.tensor import Replicate

        placements = tuple(Replicate() if own.is_partial() else own for own in ctx.placements)
        return gradient.redistribute(placements=placements)
