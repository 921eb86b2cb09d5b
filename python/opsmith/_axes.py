"""The free axes of an op's calls: what may be cut into parts, for those who spread a call over devices,
processes or chunks."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from opsmith._definition import Loaded, Op

Shape: TypeAlias = Sequence[Any]
"""Sizes, which may be symbols of a framework's."""

_CACHED = 256


@dataclass(frozen=True)
class FreeAxis:
    """A free axis of a call. Dims are counted from the end, from 1 on."""

    name: str
    """Those that `...` stands for are `...[-1]`, `...[-2]` and so on."""
    inputs: tuple[int | None, ...]
    """Which dim of each input it is; `None` where the input lacks it, and is whole in every part."""
    outputs: tuple[int | None, ...]
    """The same of each output."""
    sums: tuple[bool, ...]
    """Which outputs are the sum over the parts where they lack the axis."""

    def size(self, shapes: Sequence[Sequence[Shape]]) -> Any:
        """How long it is in a call with inputs of these shapes, a list for each. A dim of 1 broadcasts."""
        both = zip(self.inputs, shapes, strict=True)
        found = [
            shape[-dim] for dim, group in both if dim is not None for shape in group if dim <= len(shape)
        ]
        return next((size for size in found if size != 1), 1 if found else 0)

    @staticmethod
    def position(dim: int | None, shape: Shape, size: Any) -> int | None:
        """The position, counted from 0 on, of the dim in a tensor that has it whole."""
        if dim is None or dim > len(shape) or shape[-dim] != size:
            return None
        return len(shape) - dim


class Attributes:
    """Those attributes of an op that say which of its axes are free."""

    def __init__(self, op: Op) -> None:
        words = set(re.findall(r"\w+", op.parallel or ""))
        kinds = {"int", "bool"}
        self._names = [attr.name for attr in op.call_attrs if attr.name in words and attr.type in kinds]

    def key(self, attrs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Those that are given, to look a call up by."""
        values = [(name, attrs[name]) for name in self._names if attrs.get(name) is not None]
        return tuple((name, tuple(v) if isinstance(v, list | tuple) else v) for name, v in values)


class FreeAxes:
    """Of one op."""

    def __init__(self, loaded: Loaded, op: Op) -> None:
        self._native = loaded.native.op(op.index)
        self._attributes = Attributes(op)
        self._known = functools.lru_cache(_CACHED)(self._ask)
        self.rule = op.parallel
        """What the op states; `None` where it states nothing, and has no free axes."""

    def of(self, attrs: Mapping[str, Any], ranks: Sequence[int | None]) -> tuple[FreeAxis, ...]:
        """Of a call with these attributes, by the definition's names, and inputs of these ranks: of a list
        the largest, of an absent one `None`."""
        return self._known(self._attributes.key(attrs), tuple(ranks)) if self.rule is not None else ()

    def _ask(self, attrs: tuple[Any, ...], ranks: tuple[int | None, ...]) -> tuple[FreeAxis, ...]:
        return tuple(
            FreeAxis(
                name, tuple(inputs), tuple(dim for dim, _ in outputs), tuple(is_sum for _, is_sum in outputs)
            )
            for name, inputs, outputs in self._native.free_axes(dict(attrs), list(ranks))
        )
