"""An op in JAX: one call of its handler, traced."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

import jax
import numpy as np
from jax import lax

from opsmith._axes import FreeAxes
from opsmith._batches import Batches
from opsmith._definition import Arg, Loaded, Op
from opsmith._errors import UnimplementedError
from opsmith.jax import _attributes, _shapes, _targets
from opsmith.jax._constants import Constant

Value: TypeAlias = Any
"""An input or output: an array or tracer, a list of them, `None`, or an input that is a `Constant`."""

ALL = -1
"""The mask of wanted outputs that wants them all."""

# Releases before 0.8 have it there only.
enable_x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else import_module("jax.experimental").enable_x64


@dataclass(frozen=True)
class Layout:
    """How arrays are the inputs of a call."""

    groups: tuple[int | Constant | None, ...]
    """Of each input how many arrays it is: `ONE` of an array alone, and of a list its length. `None` of one
    that is absent; and those that are part of the program."""

    @staticmethod
    def of(inputs: Sequence[Value]) -> Layout:
        """Of inputs as a user gives them."""
        return Layout(tuple(_count(x) for x in inputs))

    def grouped(self, values: Sequence[Value]) -> list[Value]:
        """One value for each array, put together as inputs."""
        rest = iter(values)
        return [
            [next(rest) for _ in range(group)]
            if type(group) is int and group != ONE
            else next(rest)
            if group == ONE
            else group
            for group in self.groups
        ]

    def split(self, values: Sequence[Value]) -> list[list[Value]]:
        """One value for each array, as the group of each input. An absent one is empty, and one that is part
        of the program is there."""
        return [_group(value) or [] for value in self.grouped(values)]


ONE = -1


def flat(inputs: Sequence[Value]) -> list[Value]:
    """The arrays of the inputs."""
    return [x for value in inputs for x in _group(value) or [] if not isinstance(x, Constant)]


def _count(value: Value) -> int | Constant | None:
    if value is None or isinstance(value, Constant):
        return value
    return len(value) if isinstance(value, list | tuple) else ONE


class JaxOp:
    """An op of a library: what calls its handler."""

    def __init__(self, loaded: Loaded, definition: Op) -> None:
        self.definition = definition
        self.library = loaded.definition.name
        self.target = _targets.name(loaded, definition)
        self._infer = _shapes.inference(
            definition, lambda text: loaded.native.infer_shapes(definition.index, text)
        )
        counts = {arg.number_attr or arg.type_list_attr for arg in definition.inputs if arg.is_list}
        self._tells_counts = len(counts) > 1
        self.batches = Batches(loaded, definition)
        self.free_axes = FreeAxes(loaded, definition)

    def __repr__(self) -> str:
        return self.target

    def shapes(
        self, inputs: Sequence[Value], attrs: tuple[Any, ...], wanted: int
    ) -> list[list[jax.ShapeDtypeStruct]]:
        """What each output is in a call with inputs of these shapes and dtypes, and behind the outputs what
        the op changes in place; nothing of an output that is not wanted."""
        shapes, changed = self._results([_group(value) for value in inputs], self._encoded(attrs), wanted)
        narrow = lambda like: jax.ShapeDtypeStruct(like.shape, jax.dtypes.canonicalize_dtype(like.dtype))  # noqa: E731
        return [[narrow(like) for like in group] for group in (*shapes, *changed)]

    def _results(
        self, groups: list[list[Value] | None], encoded: dict[str, Any], wanted: int
    ) -> tuple[list[list[Any]], list[list[Any]]]:
        """What the handler gives, for each output, and for each input that is changed in place."""
        both = zip(self.definition.inputs, groups, strict=True)
        likes = [
            group and [jax.ShapeDtypeStruct(x.shape, wide_dtype(arg, x.dtype) or x.dtype) for x in group]
            for arg, group in both
        ]
        told = [
            x.to_json() if isinstance(x, Constant) else None
            for group in groups
            for x in ([None] if group is None else group)
        ]
        attrs = {name: _attributes.to_json(value) for name, value in encoded.items()}
        shapes = self._infer(likes, told, attrs, wanted)
        changed = [group or [] for arg, group in zip(self.definition.inputs, likes, strict=True) if arg.ref]
        return shapes, changed

    def _encoded(self, attrs: tuple[Any, ...]) -> dict[str, Any]:
        return {
            attr.name: _attributes.encode(attr, value)
            for attr, value in zip(self.definition.call_attrs, attrs, strict=True)
            if value is not None
        }

    def emit(self, inputs: Sequence[Value], attrs: tuple[Any, ...], wanted: int) -> list[Value]:
        """The arrays of a call of the handler, as `shapes` tells them. `attrs` are canonical, in the order of
        `call_attrs`."""
        op = self.definition
        groups = [_group(value) for value in inputs]
        groups = [
            group and [_widened(arg, x) for x in group] for arg, group in zip(op.inputs, groups, strict=True)
        ]
        encoded = self._encoded(attrs)
        shapes, changed = self._results(groups, encoded, wanted)
        results = [like for group in shapes for like in group]
        constants = {
            arg.name: x.text()
            for arg, group in zip(op.inputs, groups, strict=True)
            for x in group or []
            if isinstance(x, Constant)
        }
        gives = [*results, *(like for group in changed for like in group)]
        # JAX 0.8 makes 64-bit outputs half as wide elsewhere.
        wide = any(jax.dtypes.canonicalize_dtype(like.dtype) != like.dtype for like in gives)
        with enable_x64(True) if wide else nullcontext():
            outputs = jax.ffi.ffi_call(
                self.target,
                gives,
                has_side_effect=op.stateful,
                vmap_method="sequential",
                input_output_aliases=self._aliases(groups, len(results)),
            )(*flat(groups), **encoded, **constants, **self._structure(groups, wanted))
        return [_narrowed(x) for x in outputs]

    def outputs(self, arrays: Sequence[Value], shapes: list[list[Any]]) -> tuple[Value, ...]:
        """The arrays of a call as its outputs, and behind them the new values of what is changed in place.
        `None` for an output that is not wanted."""
        args = [*self.definition.outputs, *(arg for arg in self.definition.inputs if arg.ref)]
        rest = iter(arrays)
        found: list[Value] = []
        for arg, group in zip(args, shapes, strict=True):
            values = [next(rest) for _ in group]
            found.append(values if arg.is_list else values[0] if values else None)
        return tuple(found)

    def _structure(self, groups: list[list[Value] | None], wanted: int) -> dict[str, Any]:
        """What the handler cannot tell from the tensors alone."""
        structure: dict[str, Any] = {}
        if None in groups:
            structure["present"] = sum(1 << i for i, group in enumerate(groups) if group is not None)
        if wanted != ALL:
            structure["wanted"] = wanted
        if self._tells_counts:
            for arg, group in zip(self.definition.inputs, groups, strict=True):
                if arg.type_list_attr is not None:
                    structure[arg.type_list_attr] = f"[{', '.join(x.dtype.name for x in group or [])}]"
                elif arg.number_attr is not None:
                    structure[arg.number_attr] = len(group or [])
        return structure

    def _aliases(self, groups: list[list[Value] | None], first: int) -> dict[int, int]:
        """For each input that is changed in place, the result that has its new value."""
        aliases: dict[int, int] = {}
        position = 0
        for arg, group in zip(self.definition.inputs, groups, strict=True):
            for x in group or []:
                if arg.ref:
                    aliases[position] = first + len(aliases)
                position += not isinstance(x, Constant)
        return aliases


def check_dtypes(op: Op) -> None:
    """Raise `UnimplementedError` for an op that JAX cannot have."""
    for arg in (*op.inputs, *op.outputs):
        if arg.dtype is not None and (arg.dtype == "string" or arg.dtype.startswith("q")):
            raise UnimplementedError.of(
                op.name, arg.name, f"is not available in JAX: `{arg.name}` is {arg.dtype}"
            )


def result(op: Op, outputs: tuple[Value, ...]) -> Value:
    """The outputs as the op's function gives them: one by itself, several as a tuple."""
    return outputs[0] if len(outputs) == 1 else outputs or None


def _group(value: Value) -> list[Value] | None:
    if value is None:
        return None
    return list(value) if isinstance(value, list | tuple) else [value]


def wide_dtype(arg: Arg, dtype: Any) -> str | None:
    """The 64-bit dtype that a definition asks for, where JAX has half of it for want of `jax_enable_x64`.

    Narrower integers are taken for int64 too: JAX's own have 32 bits unless they are asked for more.
    """
    if arg.dtype is None:
        return None
    if arg.dtype == "int64" and jax.dtypes.issubdtype(dtype, np.integer) and dtype.itemsize < 8:
        return arg.dtype
    narrow = jax.dtypes.canonicalize_dtype(arg.dtype)
    return arg.dtype if narrow.name == dtype.name != arg.dtype else None


def _widened(arg: Arg, x: Value) -> Value:
    wide = wide_dtype(arg, x.dtype)
    if wide is None or isinstance(x, Constant):
        return x
    with enable_x64(True):
        return lax.convert_element_type(x, np.dtype(wide))


def _narrowed(x: Value) -> Value:
    narrow = jax.dtypes.canonicalize_dtype(x.dtype)
    return x if x.dtype == narrow else lax.convert_element_type(x, narrow)
