"""Calls of ops on xarray's `DataArray`: the outputs have the names and the coordinates that go along free
axes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import xarray as xr

from opsmith import _dispatch, _lazy
from opsmith._axes import FreeAxes
from opsmith._definition import Arg, Loaded, Op
from opsmith._errors import Error, InvalidArgumentError
from opsmith._lazy import Groups

PLAIN = frozenset({xr.DataArray})

Names: TypeAlias = list[Hashable | None]


class NamedOp:
    """An op as a function of arrays whose dims have names."""

    def __init__(self, loaded: Loaded, op: Op) -> None:
        self._loaded = loaded
        self._op = op
        self._axes = FreeAxes(loaded, op)
        self._inference = _lazy.Inference(loaded, op)

    def __call__(self, *arguments: Any) -> Any:
        """The outputs of a call with these inputs, attributes and this name, which nothing is named by."""
        op = self._op
        count = len(op.inputs)
        given, attrs = arguments[:count], arguments[count:-1]
        # Refuses what cannot stand together.
        adapter = _dispatch.adapter_for(op, given)
        if adapter.__name__ != __name__:
            return adapter.call(self._loaded, op, given, attrs, arguments[-1])
        data = tuple(
            list(map(_data, value)) if arg.is_list and isinstance(value, list | tuple) else _data(value)
            for arg, value in zip(op.inputs, given, strict=True)
        )
        named = dict(zip((a.name for a in op.call_attrs), _lazy.plain_attributes(op, attrs), strict=True))
        answer = self._computed(data, attrs)
        outputs = (answer,) if len(op.outputs) == 1 else answer or ()
        call = _Call(self._op, self._axes, self._inference, given, data, named)
        wrapped = [
            [call.wrapped(i, at, x) for at, x in enumerate(value)]
            if isinstance(value, list)
            else call.wrapped(i, 0, value)
            for i, value in enumerate(outputs)
        ]
        return wrapped[0] if len(op.outputs) == 1 else tuple(wrapped) or None

    def _computed(self, data: tuple[Any, ...], attrs: Sequence[Any]) -> Any:
        op = self._op
        values = list(_dispatch.tensors(op, data))
        found = {_dispatch.framework_of(x): name for name, x in values}
        if "Dask" in found:
            return _dispatch.call(self._loaded, op, data, attrs)
        for framework, name in found.items():
            if framework not in (None, "NumPy"):
                raise InvalidArgumentError.of(
                    op.name,
                    name,
                    f"input `{name}` is a DataArray of an array of {framework}; pass its `.data`",
                )
        return self._loaded.native.op(op.index).call(data, tuple(attrs) or None)


class _Call:
    """The names and coordinates of one call."""

    def __init__(
        self,
        op: Op,
        axes: FreeAxes,
        inference: _lazy.Inference,
        given: Sequence[Any],
        data: Sequence[Any],
        attrs: Mapping[str, Any],
    ) -> None:
        self._op = op
        self._inference = inference
        self._attrs = attrs
        self._given = [_flat(*pair) for pair in zip(op.inputs, given, strict=True)]
        self._tensors = [_flat(*pair) for pair in zip(op.inputs, data, strict=True)]
        shapes = [[np.shape(x) for x in group] for group in self._tensors]
        ranks = [max(map(len, group)) if group else None for group in shapes]
        self._axes = [
            (axis, size, self._name_along(axis, size))
            for axis in axes.of(attrs, ranks)
            for size in [axis.size(shapes)]
        ]
        self._sources = self._found_sources()
        names = {x.name for group in self._given for x in group if isinstance(x, xr.DataArray)}
        self._name = names.pop() if len(names) == 1 else None

    def wrapped(self, output: int, element: int, tensor: Any) -> xr.DataArray:
        """A tensor of an output, with names and coordinates."""
        dims = self._names(output, element, tensor.shape)
        arg = self._op.outputs[output]
        complete = [f"{arg.name}_{at}" if name is None else name for at, name in enumerate(dims)]
        twice = next((name for name in complete if complete.count(name) > 1), None)
        if twice is not None:
            raise InvalidArgumentError.of(
                self._op.name,
                arg.name,
                f"output `{arg.name}` would have the dim `{twice}` twice; rename that of one input by "
                "`.rename`, or pass `.data`",
            )
        result = xr.DataArray(tensor, dims=complete)
        # It would take the name of Dask's array.
        result.name = self._name
        return self._with_coordinates(result, output)

    def _arrays(self) -> Iterator[tuple[int, int, xr.DataArray]]:
        """The inputs' arrays with names, and where they are."""
        for i, group in enumerate(self._given):
            for at, x in enumerate(group):
                if isinstance(x, xr.DataArray):
                    yield i, at, x

    def _name_along(self, axis: Any, size: int) -> Hashable | None:
        """The name of a free axis. Raises `InvalidArgumentError` where inputs differ in the name or in the
        labels."""
        first = None
        for i, at, x in self._arrays():
            position = axis.position(axis.inputs[i], x.shape, size)
            if position is None:
                continue
            name, argument = x.dims[position], self._argument(i, at)
            if first is None:
                first = argument, name, x
                continue
            why = None
            if first[1] != name:
                why = f"are `{first[1]}` and `{name}`"
            elif _labels_differ(name, first[2], x):
                why = f"are both `{name}`, with different labels"
            if why:
                raise InvalidArgumentError.of(
                    self._op.name,
                    None,
                    f"the dims of `{first[0]}` and `{argument}` that go together {why}; "
                    "dims go by their positions: use `.transpose`, `.rename` or `xarray.align`, "
                    "or pass `.data`",
                )
        return None if first is None else first[1]

    def _argument(self, i: int, at: int) -> str:
        arg = self._op.inputs[i]
        return f"{arg.name}[{at}]" if arg.is_list else arg.name

    def _found_sources(self) -> list[list[list[_lazy.Dim | None] | None]]:
        """Whose size each dim of an output has. Raises `InvalidArgumentError` where dims that must be of one
        size have one name, and different labels."""
        try:
            inputs: Groups = [
                [x if hasattr(x, "dtype") else np.asarray(x) for x in group] or None
                for group in self._tensors
            ]
            sources, equal = self._inference.sources(inputs, self._attrs)
        except Error:
            # A rule that asks for sizes says nothing of others.
            return []
        for pair in equal:
            (x, dim, first), (y, other, second) = [
                (self._given[i][at], dim, self._argument(i, at)) for i, at, dim in pair
            ]
            both = isinstance(x, xr.DataArray) and isinstance(y, xr.DataArray)
            if both and x.dims[dim] == y.dims[other] and _labels_differ(x.dims[dim], x, y):
                raise InvalidArgumentError.of(
                    self._op.name,
                    None,
                    f"`{first}` and `{second}` have different labels along `{x.dims[dim]}`; "
                    "use `xarray.align`, or pass `.data`",
                )
        return sources

    def _names(self, output: int, element: int, shape: tuple[int, ...]) -> Names:
        names: Names = [None] * len(shape)
        for axis, size, name in self._axes:
            position = axis.position(axis.outputs[output], shape, size)
            if position is not None:
                names[position] = name
        sources = self._sources[output][element] if self._sources else None
        for at, source in enumerate(sources or ()):
            if names[at] is None and source is not None:
                i, which, dim = source
                x = self._given[i][which]
                own = x.dims[dim] if isinstance(x, xr.DataArray) else None
                names[at] = None if own in names else own
        return names

    def _with_coordinates(self, result: xr.DataArray, output: int) -> xr.DataArray:
        """Those along the free axes that the output has, but for those in which inputs differ."""
        found: dict[Any, Any] = {}
        differing = set()
        kept = []
        for i, _, x in self._arrays():
            along = set()
            for axis, size, name in self._axes:
                has = axis.position(axis.outputs[output], result.shape, size) is not None
                if has and axis.position(axis.inputs[i], x.shape, size) is not None:
                    along.add(name)
            own = {label: c.variable for label, c in x.coords.items() if set(c.dims) <= along}
            for label, variable in own.items():
                if not _same(found.setdefault(label, variable), variable):
                    differing.add(label)
            kept.append((x, own))
        for x, own in kept:
            labels = [label for label in own if label not in differing and label not in result.coords]
            dropped = [label for label in x.coords if label not in labels]
            if labels:
                result = result.assign_coords(x.coords.to_dataset().drop_vars(dropped).coords)
        return result


def _labels_differ(name: Hashable, left: xr.DataArray, right: xr.DataArray) -> bool:
    both = name in left.indexes and name in right.indexes
    return both and not left.indexes[name].equals(right.indexes[name])


def _same(left: Any, right: Any) -> bool:
    if left is right:
        return True
    # Those that are lazy are not computed for this.
    lazy = left.chunks is not None or right.chunks is not None
    return not lazy and bool(left.equals(right))


def _data(value: Any) -> Any:
    return value.data if isinstance(value, xr.DataArray) else value


def _flat(arg: Arg, value: Any) -> list[Any]:
    """The tensors of an argument."""
    if value is None:
        return []
    return list(value) if arg.is_list else [value]


_wiring = _lazy.Wiring(NamedOp)
wire, call = _wiring.wire, _wiring.call
