"""An op in JAX: one call of its handler, traced."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, TypeAlias

import jax
import numpy as np
from jax import lax

from opsmith._batches import Batches
from opsmith._definition import Arg, Loaded, Op
from opsmith._errors import UnimplementedError
from opsmith.jax import _attributes, _shapes, _targets, _varying, _vmap
from opsmith.jax._constants import Constant

Value: TypeAlias = Any
"""An input or output: an array or tracer, a list of them, `None`, or an input that is a `Constant`."""

ALL = -1
"""The mask of wanted outputs that wants them all."""

# Releases before 0.8 have it there only.
enable_x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else import_module("jax.experimental").enable_x64


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
        self._batching = _vmap.Batching(Batches(loaded, definition), definition, self.call_once)

    def call(self, inputs: Sequence[Value], attrs: tuple[Any, ...], wanted: int) -> tuple[Value, ...]:
        """All outputs, `None` for one that is not wanted, and behind them the new values of what the op
        changes in place. `attrs` are canonical, in the order of `call_attrs`."""
        # JAX allows no effects inside of what has a batching rule of its own, and what is part of the program
        # has no batch dim.
        if self.definition.stateful or any(isinstance(x, Constant) for x in inputs):
            return self.call_once(inputs, attrs, wanted)
        return self._batching(inputs, attrs, wanted)

    def call_once(self, inputs: Sequence[Value], attrs: tuple[Any, ...], wanted: int) -> tuple[Value, ...]:
        """The same by a call that JAX's `vmap` does for each element."""
        op = self.definition
        groups = [_group(value) for value in inputs]
        groups = [
            group and [_widened(arg, x) for x in group] for arg, group in zip(op.inputs, groups, strict=True)
        ]
        encoded = {
            attr.name: _attributes.encode(attr, value)
            for attr, value in zip(op.call_attrs, attrs, strict=True)
            if value is not None
        }
        likes = [group and [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in group] for group in groups]
        told = [
            x.to_json() if isinstance(x, Constant) else None
            for group in groups
            for x in ([None] if group is None else group)
        ]
        shapes = self._infer(
            likes, told, {name: _attributes.to_json(value) for name, value in encoded.items()}, wanted
        )
        results = [like for group in shapes for like in group]
        changed = [
            like for arg, group in zip(op.inputs, likes, strict=True) if arg.ref for like in group or []
        ]
        constants = {
            arg.name: x.text()
            for arg, group in zip(op.inputs, groups, strict=True)
            for x in group or []
            if isinstance(x, Constant)
        }
        flat = [x for group in groups for x in group or [] if not isinstance(x, Constant)]
        outputs = jax.ffi.ffi_call(
            self.target,
            [*results, *changed],
            has_side_effect=op.stateful,
            vmap_method="sequential",
            input_output_aliases=self._aliases(groups, len(results)),
        )(*flat, **encoded, **constants, **self._structure(groups, wanted))
        # What an op keeps from call to call may differ from device to device.
        axes = _varying.all_axes() if op.stateful else _varying.axes_of(flat)
        return self._unflatten(_varying.over(axes, [_narrowed(x) for x in outputs]), shapes, groups)

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

    def _unflatten(
        self, outputs: list[Value], shapes: list[list[Any]], groups: list[list[Value] | None]
    ) -> tuple[Value, ...]:
        rest = iter(outputs)
        found: list[Value] = []
        for arg, group in zip(self.definition.outputs, shapes, strict=True):
            values = [next(rest) for _ in group]
            found.append(values if arg.is_list else values[0] if values else None)
        for arg, given in zip(self.definition.inputs, groups, strict=True):
            if arg.ref and given is not None:
                values = [next(rest) for _ in given]
                found.append(values if arg.is_list else values[0])
        return tuple(found)


def check_dtypes(op: Op) -> None:
    """Raise `UnimplementedError` for an op that JAX cannot have."""
    for arg in (*op.inputs, *op.outputs):
        if arg.dtype is not None and (arg.dtype == "string" or arg.dtype.startswith("q")):
            raise UnimplementedError(f"{op.name}: is not available in JAX: `{arg.name}` is {arg.dtype}")


def result(op: Op, outputs: tuple[Value, ...]) -> Value:
    """The outputs as the op's function gives them: one by itself, several as a tuple."""
    return outputs[0] if len(outputs) == 1 else outputs or None


def _group(value: Value) -> list[Value] | None:
    if value is None:
        return None
    return list(value) if isinstance(value, list | tuple) else [value]


def wide_dtype(arg: Arg, dtype: Any) -> str | None:
    """The 64-bit dtype that a definition asks for, where JAX has half of it for want of `jax_enable_x64`."""
    if arg.dtype is None:
        return None
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
