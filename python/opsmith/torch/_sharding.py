"""How calls of an op are spread over a device mesh: strategies for PyTorch's DTensor.

A call whose inputs are cut along a free axis gives outputs that are cut along it, and sums over the parts
where an output lacks the axis, as gradients do. What is cut otherwise is gathered first, by DTensor itself.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch

from opsmith._axes import FreeAxes, FreeAxis
from opsmith._definition import Loaded, Op
from opsmith._hooks import when_imported
from opsmith.torch import _fake
from opsmith.torch._op import Call, TorchOp

Group: TypeAlias = Sequence["Whole"]
"""The tensors of an input."""

_MODULE = "torch.distributed.tensor"


@dataclass(frozen=True)
class Whole:
    """A tensor that is spread over a mesh, as one."""

    shape: Sequence[Any]
    dtype: torch.dtype


@dataclass(frozen=True)
class Cut:
    """A call along a free axis, or along none: for each tensor the dim that is cut, `None` where each process
    has it whole, and for outputs `SUM` where they are the sum over the processes."""

    axis: FreeAxis | None
    inputs: tuple[tuple[int | None, ...], ...]
    """One for each tensor of each input."""
    outputs: tuple[tuple[int | None, ...], ...]


SUM = -1
"""In the place of a dim of an output: the sum over the processes."""


class Cuts:
    """How calls of one op may be spread."""

    def __init__(self, loaded: Loaded, op: TorchOp) -> None:
        self.op = op
        self._axes = FreeAxes(loaded, op.definition)
        self.output_shapes = _fake.output_shapes(op, partial(loaded.native.infer_shapes, op.definition.index))

    def of(self, call: Call) -> list[Cut]:
        """Every way, that along none first. The inputs of the call are `Whole`s, lists of them, or `None`."""
        groups = [_group(value) for value in call.inputs]
        ranks = [max((len(x.shape) for x in group), default=0) if group else None for group in groups]
        shapes = [[x.shape for x in group] for group in groups]
        outputs = self.output_shapes(call)
        found = [_along_none(shapes, outputs)]
        for axis in self._axes.of(call.attrs, ranks):
            cut = self._along(axis, call.wanted, shapes, outputs)
            if cut is not None:
                found.append(cut)
        return found

    def _along(
        self, axis: FreeAxis, wanted: int, inputs: list[list[Any]], outputs: list[list[Any]]
    ) -> Cut | None:
        size = axis.size(inputs)
        cut_inputs = tuple(
            tuple(FreeAxis.position(dim, shape, size) for shape in group)
            for dim, group in zip(axis.inputs, inputs, strict=True)
        )
        if size == 1 or all(dim is None for group in cut_inputs for dim in group):
            return None
        cut_outputs: list[tuple[int | None, ...]] = []
        for position, group in enumerate(outputs):
            if self.op.definition.outputs[position].optional and not wanted >> position & 1:
                # Nobody reads what stands for it.
                cut_outputs.append((None,) * len(group))
                continue
            dims = [FreeAxis.position(axis.outputs[position], shape, size) for shape in group]
            if None in dims and not axis.sums[position]:
                return None
            cut_outputs.append(tuple(SUM if dim is None else dim for dim in dims))
        return Cut(axis, cut_inputs, tuple(cut_outputs))


def _along_none(inputs: list[list[Any]], outputs: list[list[Any]]) -> Cut:
    def whole(groups: list[list[Any]]) -> tuple[tuple[None, ...], ...]:
        return tuple((None,) * len(group) for group in groups)

    return Cut(None, whole(inputs), whole(outputs))


def _group(value: Any) -> Group:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def refusal(op: Op) -> str | None:
    """Why calls of the op cannot be spread at all; `None` where they can."""
    local = "call it on `x.to_local()`, the part that this process has"
    changed = next((arg.name for arg in op.inputs if arg.ref), None)
    if changed is not None:
        return f"{op.name}: changes `{changed}` in place, so it takes no DTensor; {local}"
    if op.stateful:
        return f"{op.name}: has state, of which each process has its own, so it takes no DTensor; {local}"
    return None


def _dtensor_refusal(op: TorchOp) -> str | None:
    """Why DTensor cannot call the op."""
    name = op.qualified_name
    if name.endswith("_") and refusal(op.definition) is None:
        return (
            f"{op.name}: PyTorch takes {name} for an op that changes its input, as the name ends with `_`, "
            "so it takes no DTensor; opsmith.torch.local_map does"
        )
    return refusal(op.definition)


def when_there(action: Callable[[type], None]) -> None:
    """Call `action` with the class of DTensors when it is imported, or now if it has been."""
    when_imported(_MODULE, lambda: action(sys.modules[_MODULE].DTensor))


def watch(loaded: Loaded, ops: Sequence[TorchOp]) -> None:
    """Register a strategy for each op when DTensor is imported, or now if it has been."""
    with_tensors = [op for op in ops if op.definition.inputs]
    if with_tensors:
        when_imported(_MODULE, partial(_register, loaded, with_tensors))


def _register(loaded: Loaded, ops: Sequence[TorchOp]) -> None:
    parts = _parts_of_pytorch()
    if isinstance(parts, str):
        warnings.warn(
            f"opsmith: PyTorch {torch.__version__} is not as expected ({parts}), so ops of "
            f"`{loaded.definition.name}` take no DTensor; opsmith.torch.local_map does",
            RuntimeWarning,
            stacklevel=2,
        )
        return
    for op in ops:
        why = _dtensor_refusal(op)
        strategy = _refused(why) if why else _strategy(parts, Cuts(loaded, op))
        parts.propagator.register_op_strategy(op.overload, strategy, _schema_info(parts, op))


@dataclass(frozen=True)
class _Parts:
    """What PyTorch has for this, some of it private. Its public `register_sharding` is made of the same, but
    knows no lists of outputs, and keeps answers by a key that lacks most attributes."""

    propagator: Any
    schema_info: Any
    expand: Any
    op_spec: Any
    op_strategy: Any


def _parts_of_pytorch() -> _Parts | str:
    """Or what is missing."""
    try:
        from torch.distributed.tensor import DTensor
        from torch.distributed.tensor._op_schema import OpSpec, OpStrategy, RuntimeSchemaInfo
        from torch.distributed.tensor._ops.utils import expand_to_full_mesh_op_strategy

        propagator = DTensor._op_dispatcher.sharding_propagator
        if not {"static_argnum", "static_kwargkey", "needs_pytree"} <= set(
            RuntimeSchemaInfo.__dataclass_fields__
        ):
            return "RuntimeSchemaInfo as it was"
        if not hasattr(propagator, "register_op_strategy"):
            return "ShardingPropagator.register_op_strategy"
    except (ImportError, AttributeError) as error:
        return str(error)
    return _Parts(propagator, RuntimeSchemaInfo, expand_to_full_mesh_op_strategy, OpSpec, OpStrategy)


def _schema_info(parts: _Parts, op: TorchOp) -> Any:
    """What PyTorch's cache of strategies tells calls by: every attribute, and which inputs are absent."""
    names = [argument.name for argument in op.overload._schema.arguments if argument.kwarg_only]
    return parts.schema_info(0, names or None, needs_pytree=any(arg.is_list for arg in op.definition.inputs))


def _refused(why: str) -> Callable[[Any], Any]:
    def strategy(_: Any) -> Any:
        raise NotImplementedError(why)

    return strategy


def _strategy(parts: _Parts, cuts: Cuts) -> Callable[[Any], Any]:
    """The function for PyTorch's `register_op_strategy`."""
    op = cuts.op
    outputs = op.definition.outputs

    def strategy(schema: Any) -> Any:
        arguments = [_strategies(value) for value in schema.args_schema]
        given = [each for group in arguments for each in group]
        if any(each.mesh != given[0].mesh for each in given):
            meshes = ", ".join(sorted({str(each.mesh) for each in given}))
            raise RuntimeError(f"{op.name}: all inputs must be on one mesh, but they are on {meshes}")
        if len(outputs) > 1 and any(output.is_list for output in outputs):
            raise NotImplementedError(
                f"{op.name}: gives a list beside other outputs, which DTensor cannot; use "
                "opsmith.torch.local_map"
            )
        args = [_wholes(value, group) for value, group in zip(schema.args_schema, arguments, strict=True)]
        found = cuts.of(op.bind(args, schema.kwargs_schema))
        more = sum(map(len, arguments[len(op.definition.inputs) :]))
        rows = [_placements(cut, more) for cut in found]
        count = sum(map(len, found[0].outputs))
        if count == 0:
            raise NotImplementedError(
                f"{op.name}: a DTensor must come out of a call of DTensors, and none does"
            )
        expanded = parts.expand(given[0].mesh, schema, rows, input_index=count)
        if not outputs[0].is_list or count > 1:
            return expanded
        # A list of one is no tensor.
        return parts.op_strategy(
            [
                parts.op_spec(_listed(each.output_specs), each.input_specs, each.redistribute_cost)
                for each in expanded.strategies
            ]
        )

    return strategy


def _listed(spec: Any) -> tuple[Any, ...]:
    return spec if isinstance(spec, tuple) else (spec,)


def _strategies(value: Any) -> list[Any]:
    """The tensors of an argument as PyTorch shows them here."""
    children = getattr(value, "children", value)
    if isinstance(children, list | tuple):
        return [each for each in children if each is not None]
    return [] if children is None else [children]


def _wholes(value: Any, strategies: list[Any]) -> Any:
    wholes = [Whole(each.shape, each.strategies[0].output_spec.tensor_meta.dtype) for each in strategies]
    is_list = isinstance(getattr(value, "children", value), list | tuple)
    return wholes if is_list else wholes[0] if wholes else None


def _placements(cut: Cut, more: int) -> list[Any]:
    """Of the outputs, then of the inputs, and of as many tensors more."""
    from torch.distributed.tensor import Replicate

    dims = [dim for group in (*cut.outputs, *cut.inputs) for dim in group]
    return [placement(dim) for dim in dims] + [Replicate()] * more


def placement(dim: int | None) -> Any:
    """Of one tensor of a cut, as PyTorch says it."""
    from torch.distributed.tensor import Partial, Replicate, Shard

    return Replicate() if dim is None else Partial() if dim == SUM else Shard(dim)
