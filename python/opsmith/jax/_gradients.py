"""An op as a differentiable function: its calls, and their derivatives, wired from the definition."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from opsmith import _registered
from opsmith._definition import Op
from opsmith._forward import Chain
from opsmith.jax import _derivatives, _primitives, _sharding, _varying, _vmap
from opsmith.jax._op import ALL, JaxOp, Layout, Value, flat
from opsmith.jax._primitives import Found
from opsmith.jax._sharding import Division

_CACHED = 256

Function = Callable[..., tuple[Value, ...]]
"""Takes the inputs of an op, and gives its outputs as `JaxOp.outputs` does."""


class Differentiable:
    """The functions of an op, one for each set of attributes: what JAX keeps of a function is found again."""

    def __init__(self, op: JaxOp, others: Mapping[str, Differentiable]) -> None:
        self.op = op
        self._others = others
        self._cached = functools.lru_cache(_CACHED)(self._function)
        self.function = self._newest if _registered.may_register(op.definition) else self._cached

    @functools.cached_property
    def chain(self) -> Chain:
        """The op and its gradient ops."""
        return Chain.of(
            self.op.definition, {name: other.op.definition for name, other in self._others.items()}
        )

    @property
    def registered(self) -> _registered.Function | None:
        """The gradient that is registered now."""
        op = self.op.definition
        return _registered.find(self.op.library, op) if _registered.may_register(op) else None

    def other(self, op: Op) -> Differentiable:
        """Another op of the library."""
        return self._others[op.name]

    def call(
        self,
        inputs: Sequence[Value],
        attrs: tuple[Any, ...],
        wanted: int = ALL,
        registered: _registered.Function | None = None,
    ) -> tuple[Value, ...]:
        """All outputs, `None` for one that is not wanted, and behind them the new values of what the op
        changes in place. `attrs` are canonical, in the order of `call_attrs`."""
        op = self.op
        shapes = op.shapes(inputs, attrs, wanted)
        if not op.definition.stateful:
            bound = Call(self, attrs, wanted, Layout.of(inputs), registered)
            return op.outputs(_primitives.call(bound, flat(inputs)), shapes)
        # A primitive has no effects. JAX says of the call itself that it has no derivative.
        if not op.definition.differentiable:
            inputs = jax.lax.stop_gradient(inputs)
        # What an op keeps from call to call may differ from device to device.
        return op.outputs(_varying.over(_varying.all_axes(), op.emit(inputs, attrs, wanted)), shapes)

    def _newest(self, attrs: tuple[Any, ...]) -> Function:
        """The function with the gradient that is registered now."""
        return self._cached(attrs, self.registered)

    def _function(self, attrs: tuple[Any, ...], registered: _registered.Function | None = None) -> Function:
        """The function for these canonical attributes, compiled when it is called on arrays."""

        def call(*inputs: Value) -> tuple[Value, ...]:
            return self.call(inputs, attrs, ALL, registered)

        call.__name__ = call.__qualname__ = self.op.definition.snake_name
        return jax.jit(call, inline=True)


@dataclass(frozen=True)
class Call:
    """A call without its arrays, as `Bound` says."""

    of: Differentiable
    attrs: tuple[Any, ...]
    wanted: int
    layout: Layout
    registered: _registered.Function | None

    def __repr__(self) -> str:
        named = zip((attr.name for attr in self.op.definition.call_attrs), self.attrs, strict=True)
        texts = [f"{name}={value}" for name, value in named if value is not None]
        if self.wanted != ALL:
            texts.append(f"wanted={self.wanted}")
        return f"{self.op!r}({', '.join(texts)})"

    @property
    def op(self) -> JaxOp:
        """The op."""
        return self.of.op

    @property
    def identity(self) -> str:
        """A text that differs between any two calls."""
        told = (self.op.target, self.attrs, self.wanted, self.layout)
        return hashlib.sha256(repr(told).encode()).hexdigest()

    def shapes(self, arrays: Sequence[Any]) -> list[jax.ShapeDtypeStruct]:
        """What each array that it gives is."""
        return [like for group in self.groups(arrays) for like in group]

    def groups(self, arrays: Sequence[Any]) -> list[list[jax.ShapeDtypeStruct]]:
        """The same, for each output."""
        return self.op.shapes(self.layout.grouped(arrays), self.attrs, self.wanted)

    def emit(self, arrays: Sequence[Any]) -> list[Any]:
        """What the handler gives."""
        return self.op.emit(self.layout.grouped(arrays), self.attrs, self.wanted)

    def typed(self, avals: Sequence[Any]) -> list[Any]:
        """What it gives, as JAX's types say it."""
        mesh, specs = _varying.explicit_mesh(avals), None
        division = None if mesh is None else self.division(avals)
        if division is not None:
            names = division.names(mesh, [x.sharding.spec for x in avals], [])
            specs = division.specs(names, "outputs")
        return list(_varying.typed(self.shapes(avals), avals, specs))

    def division(self, arrays: Sequence[Any]) -> Division | None:
        """How it may be divided over devices."""
        return _sharding.of(self, arrays)

    def again(self, inputs: Sequence[Value], attrs: tuple[Any, ...]) -> tuple[Value, ...]:
        """The outputs of another call of the op, with the same ones wanted."""
        return self.of.call(inputs, attrs, self.wanted, self.registered)

    def batched(self, size: int, is_batched: list[bool], arrays: list[Any]) -> list[Any]:
        """What calls on each element of a batch give, the batch in front of all."""
        return _vmap.batched(self, size, is_batched, arrays)

    def derivative(self, arrays: Sequence[Any], outputs: Sequence[Any], has: list[bool]) -> Found | None:
        """The derivative along tangents of those arrays that have one."""
        return _derivatives.of(self, arrays, outputs, has)
