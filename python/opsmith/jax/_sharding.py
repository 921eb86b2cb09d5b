"""Calls divided over the devices of a mesh, along the op's free axes.

XLA divides what it knows, and a handler it does not know. It is told here which dims of a call are free:
every device calls the handler on its part, and what lacks a free axis is summed. All other dims are whole on
every device. An axis that the devices do not divide evenly is whole too.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.experimental.xla_metadata import set_xla_metadata
from jax.sharding import NamedSharding, PartitionSpec

from opsmith._axes import FreeAxis
from opsmith.jax._constants import Constant

if TYPE_CHECKING:
    from opsmith.jax._gradients import Call

_wanting_devices: set[Any] | None = None
# Releases before 0.7 leave it to another partitioner, which is told otherwise.
if jax.__version_info__ >= (0, 7):
    with contextlib.suppress(ImportError):
        from jax._src.dispatch import prim_requires_devices_during_lowering as _wanting_devices

Names: TypeAlias = tuple[Any, ...]
"""Mesh axes."""


def prepare(*primitives: Any) -> None:
    """Has JAX say for which devices these are compiled."""
    if _wanting_devices is not None:
        _wanting_devices.update(primitives)


def is_spread(context: Any) -> bool:
    """Whether a call is compiled for several devices among which XLA divides the work. An exported program
    cannot hold what divides a call, and has it whole; inside of `jax.shard_map` it is divided already."""
    where = context.module_context
    if _wanting_devices is None or getattr(where.lowering_parameters, "for_export", False):
        return False
    devices = getattr(where.axis_context, "device_assignment", None)
    mesh = getattr(where.axis_context, "abstract_mesh", None)
    return devices is not None and len(devices) > 1 and mesh is not None and not mesh.empty


@dataclass(frozen=True)
class Axis:
    """A free axis of a call of known sizes."""

    size: int
    inputs: tuple[int | None, ...]
    """Which dim of each array it is, counted from 0 on; `None` where it is whole in every part."""
    outputs: tuple[int | None, ...]
    """The same of each result; one that lacks it is the sum over the parts."""


@dataclass(frozen=True)
class Division:
    """How a call may be divided."""

    emit: Callable[[Sequence[Any]], list[Any]]
    """The call of a part."""
    identity: str
    """What differs between any two calls."""
    axes: tuple[Axis, ...]
    inputs: tuple[int, ...]
    """The rank of each array."""
    outputs: tuple[int, ...]

    def __call__(self, *arrays: Any) -> list[Any]:
        """The call, divided as XLA's partitioner finds best."""
        whole = custom_partitioning(lambda *arrays: self.emit(arrays))
        letters = [self._letters(place, rank, "inputs") for place, rank in enumerate(self.inputs)]
        results = [self._letters(place, rank, "outputs") for place, rank in enumerate(self.outputs)]
        text = lambda groups: ", ".join(" ".join(group) for group in groups)  # noqa: E731
        # In the order in which they appear.
        used = dict.fromkeys(name for group in (*letters, *results) for name in group)
        whole.def_partition(
            partition=self._partition,
            sharding_rule=f"{text(letters)} -> {text(results)}",
            need_replication_factors=tuple(name for name in used if name.startswith("w")),
        )
        # The program must tell of which call it is: JAX may keep it on disk.
        with set_xla_metadata(opsmith=self.identity):
            found: list[Any] = whole(*arrays)
        return found

    def _letters(self, place: int, rank: int, kind: str) -> list[str]:
        """The factors of a tensor's dims: `f…` of free axes, others of their own."""
        names = [f"w{kind[0]}{place}_{dim}" for dim in range(rank)]
        for number, axis in enumerate(self.axes):
            dim = getattr(axis, kind)[place]
            if dim is not None:
                names[dim] = f"f{number}"
        return names

    def names(self, mesh: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Names]:
        """The mesh axes that each free axis is divided over, where the tensors are divided like this: as the
        first that is says, results before inputs, each mesh axis once."""
        taken: set[Any] = set()
        found: list[Names] = []
        for axis in self.axes:
            both = itertools.chain(
                zip(axis.outputs, outputs, strict=False), zip(axis.inputs, inputs, strict=True)
            )
            wishes = (_at(spec, dim) for dim, spec in both if dim is not None and spec is not None)
            names: Names = next((wish for wish in wishes if wish), ())
            parts = 1
            for name in names:
                parts *= mesh.shape[name]
            if taken & set(names) or axis.size % parts:
                names = ()
            taken |= set(names)
            found.append(names)
        return found

    def specs(self, names: Sequence[Names], kind: str) -> list[PartitionSpec]:
        """How each tensor is divided then."""
        dims: list[list[Any]] = [[None] * rank for rank in getattr(self, kind)]
        for axis, over in zip(self.axes, names, strict=True):
            for spec, dim in zip(dims, getattr(axis, kind), strict=True):
                if dim is not None and over:
                    spec[dim] = over if len(over) > 1 else over[0]
        return [PartitionSpec(*spec) for spec in dims]

    def _partition(self, mesh: Any, given: Any, wanted: Any) -> tuple[Any, Any, Any, Any]:
        names = self.names(mesh, [_spec(x) for x in given], [_spec(x) for x in wanted])
        over = [
            tuple(
                name
                for axis, group in zip(self.axes, names, strict=True)
                if axis.outputs[place] is None
                for name in group
            )
            for place in range(len(self.outputs))
        ]

        def part(*arrays: Any) -> list[Any]:
            outputs = self.emit(arrays)
            return [jax.lax.psum(x, group) if group else x for x, group in zip(outputs, over, strict=True)]

        results, arguments = (
            [NamedSharding(mesh, spec) for spec in self.specs(names, kind)] for kind in ("outputs", "inputs")
        )
        return mesh, part, results, tuple(arguments)


def of(call: Call, arrays: Sequence[Any]) -> Division | None:
    """How a call with arrays of these shapes may be divided; `None` where it may not."""
    op = call.op.definition
    shapes = [[tuple(x.shape) for x in group] for group in call.layout.split(arrays)]
    is_constant = [isinstance(group, Constant) for group in call.layout.groups]
    if any(arg.ref for arg in op.inputs) or not all(
        isinstance(size, int) for group in shapes for shape in group for size in shape
    ):
        return None
    ranks = [max(map(len, group)) if group else None for group in shapes]
    named = (attr.name for attr in op.call_attrs)
    known = {name: value for name, value in zip(named, call.attrs, strict=True) if value is not None}
    outputs = [[tuple(like.shape) for like in group] for group in call.groups(arrays)]
    found = [_axis(axis, shapes, outputs, is_constant) for axis in call.op.free_axes.of(known, ranks)]
    axes = _apart([axis for axis in found if axis is not None])
    arrays_of = [group for group, is_whole in zip(shapes, is_constant, strict=True) if not is_whole]
    inputs, results = (tuple(len(shape) for group in of for shape in group) for of in (arrays_of, outputs))
    return Division(call.emit, call.identity, axes, inputs, results) if axes else None


def _axis(
    axis: FreeAxis, inputs: list[list[Any]], outputs: list[list[Any]], is_constant: list[bool]
) -> Axis | None:
    """The axis in a call of these shapes; `None` where it does not divide the call."""
    size = axis.size(inputs)
    if size < 2:
        return None
    given, results = (
        [
            [axis.position(dim, shape, size) for shape in group]
            for dim, group in zip(dims, groups, strict=True)
        ]
        for dims, groups in ((axis.inputs, inputs), (axis.outputs, outputs))
    )
    lacks = any(
        dim is None and not is_sum for is_sum, group in zip(axis.sums, results, strict=True) for dim in group
    )
    # What is part of the program is whole.
    fixed = [dim for is_whole, group in zip(is_constant, given, strict=True) for dim in group if is_whole]
    parts = [dim for is_whole, group in zip(is_constant, given, strict=True) for dim in group if not is_whole]
    if lacks or any(dim is not None for dim in fixed) or all(dim is None for dim in parts):
        return None
    return Axis(size, tuple(parts), tuple(dim for group in results for dim in group))


def _apart(axes: list[Axis]) -> tuple[Axis, ...]:
    """Those that share no dim of a tensor with one before."""
    taken: set[tuple[str, int, int]] = set()
    found = []
    for axis in axes:
        both = (("inputs", axis.inputs), ("outputs", axis.outputs))
        dims = {(kind, i, dim) for kind, of in both for i, dim in enumerate(of) if dim is not None}
        if not taken & dims:
            taken |= dims
            found.append(axis)
    return tuple(found)


def _spec(like: Any) -> PartitionSpec | None:
    return getattr(like.sharding, "spec", None)


def _at(spec: PartitionSpec, dim: int) -> Names:
    """The mesh axes that a dim is divided over."""
    names = spec[dim] if dim < len(spec) else None
    if names is None or names is PartitionSpec.UNCONSTRAINED:
        return ()
    return tuple(names) if isinstance(names, tuple) else (names,)
