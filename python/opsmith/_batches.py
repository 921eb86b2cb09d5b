"""How a batch of calls of an op becomes one call, for `vmap` of PyTorch and of JAX."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opsmith._axes import Attributes
from opsmith._definition import Loaded, Op

_CACHED = 256


@dataclass(frozen=True)
class InFront:
    """The batch is one more dim in front of each input."""

    ranks: tuple[int | None, ...]
    """The rank that each input then has: the dim of the batch, dims of 1, its own dims. `None` where it stays
    as it is."""
    attrs: Mapping[str, Any]
    """The attributes that are others then."""
    outputs: tuple[int | None, ...]
    """Which dim of each output it is, counted from the end; `None` for an output that is not asked for."""

    def pads(self, ranks: Sequence[int | None]) -> bool:
        """Whether an input of a call of these ranks gets dims of 1."""
        both = zip(ranks, self.ranks, strict=True)
        return any(None not in (own, new) and own + 1 != new for own, new in both)  # type: ignore[operator]


@dataclass(frozen=True)
class Beside:
    """The batch is put together with a dim of each, as the slower one of the two. Dims are counted from the
    end."""

    inputs: tuple[int | None, ...]
    """`None` where an input stays as it is."""
    outputs: tuple[int | None, ...]
    """`None` for an output that is not asked for."""

    def size(self, shapes: Sequence[Sequence[Sequence[int]]]) -> int | None:
        """How long the dim is in inputs of these shapes, a list for each; `None` where they differ: one of
        them is repeated along it then."""
        pairs = zip(self.inputs, shapes, strict=True)
        found = [
            shape[-dim] if dim <= len(shape) else None
            for dim, group in pairs
            if dim is not None
            for shape in group
        ]
        return found[0] if found and all(size == found[0] for size in found) else None


class Batches:
    """Of one op."""

    def __init__(self, loaded: Loaded, op: Op) -> None:
        self._op = op
        self._native = loaded.native.op(op.index)
        self._attributes = Attributes(op)
        self._known = functools.lru_cache(_CACHED)(self._ask)
        # Of one that may do more than compute there is nothing else to ask for.
        self._is_told = op.stateful or any(arg.ref for arg in op.inputs)

    def ways(
        self, attrs: Mapping[str, Any], ranks: Sequence[int | None], batched: Sequence[bool], wanted: int
    ) -> tuple[InFront | Beside, ...]:
        """The ways for a call with these attributes, best first. Of a list the rank is the largest. Bit i of
        `wanted` is set when output i is asked for."""
        if self._op.parallel is None:
            return ()
        outputs = tuple(
            not output.optional or bool(wanted >> i & 1) for i, output in enumerate(self._op.outputs)
        )
        return self._known(self._attributes.key(attrs), tuple(ranks), tuple(batched), outputs)

    def _ask(
        self,
        attrs: tuple[Any, ...],
        ranks: tuple[int | None, ...],
        batched: tuple[bool, ...],
        wanted: tuple[bool, ...],
    ) -> tuple[InFront | Beside, ...]:
        found = self._native.batches(dict(attrs), list(ranks), list(batched), list(wanted))
        return tuple(
            Beside(tuple(inputs), tuple(outputs))
            if changed is None
            else InFront(tuple(inputs), changed, tuple(outputs))
            for inputs, outputs, changed in found
        )

    def warn(self, size: Any) -> None:
        """Say once that the op is called for each element of a batch."""
        if self._is_told or (isinstance(size, int) and size < 2):
            return
        self._is_told = True
        rule = self._op.parallel
        why = (
            "it does not say which of its dims are independent of each other; with `parallel = "
            '"…"` at the op a batch is one call'
            if rule is None
            else f"none of its free axes can take the batch: {rule}"
        )
        warnings.warn(
            f"{self._op.name}: vmap calls it for each element of the batch, since {why}",
            RuntimeWarning,
            stacklevel=3,
        )
