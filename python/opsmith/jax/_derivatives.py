"""Derivatives of calls: along tangents, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp

from opsmith import _forward, _registered
from opsmith._definition import Op
from opsmith._errors import UnimplementedError
from opsmith._forward import Group
from opsmith.jax import _varying
from opsmith.jax._attributes import plain
from opsmith.jax._constants import Constant
from opsmith.jax._op import ALL, Value, flat
from opsmith.jax._primitives import Derivative, Found

if TYPE_CHECKING:
    from opsmith.jax._gradients import Call

Own = TypeVar("Own", bound="_OfCall")

Likes: TypeAlias = tuple[tuple[jax.ShapeDtypeStruct, ...], ...]
"""Shapes and dtypes of groups of arrays."""


def of(call: Call, arrays: Sequence[Any], outputs: Sequence[Any], has: list[bool]) -> Found | None:
    """The derivative of a call along tangents of those arrays that have one; `None` where it is zero."""
    op = call.op.definition
    has = [is_there and _is_number(x) for is_there, x in zip(has, arrays, strict=True)]
    groups = call.groups(arrays)
    both = [(place, like) for place, group in enumerate(groups) for like in group]
    flows = [_is_number(like) and place not in op.constants for place, like in both]
    if not op.differentiable or not any(flows) or not any(has):
        return None
    likes = tuple(map(tuple, call.layout.split([jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays])))
    about = About(
        call, likes, tuple(map(tuple, groups)), tuple(has), tuple(flows), _varying.specs_of(outputs)
    )
    inputs, rest = call.layout.split(arrays), iter(outputs)
    values = {"input": inputs, "output": [[next(rest) for _ in group] for group in groups]}
    kept = _kept(call)
    fixed = [x for kind, place in kept for x in flat([values[kind][place]])]
    function: Derivative
    if call.registered is not None:
        function = Registered(about, kept)
    elif (call.of.chain.gradient or call.of.chain.forward) is None or any(arg.ref for arg in op.inputs):
        function, fixed = Missing(about, ()), []
    else:
        function = Declared(about, kept)
    return Found(function, fixed, flows)


def _kept(call: Call) -> tuple[tuple[str, int], ...]:
    """What a derivative takes of the call: `input` or `output`, and the position."""
    op, chain = call.op.definition, call.of.chain
    inputs = [("input", place) for place in range(len(op.inputs))]
    if call.registered is not None:
        return (*inputs, *(("output", place) for place in range(len(op.outputs))))
    wired = [
        source for source in (op.gradient.inputs if op.gradient else ()) if source[0] != "output_gradient"
    ]
    # Without a gradient of the gradient, the op itself is called again.
    return tuple(dict.fromkeys([*wired, *([] if chain.second else inputs)]))


@dataclass(frozen=True)
class About:
    """What is known of a call beside its values."""

    call: Call
    inputs: Likes
    outputs: Likes
    """Behind the outputs, what is changed in place."""
    has: tuple[bool, ...]
    """Which of the arrays have a tangent."""
    flows: tuple[bool, ...]
    """Which of the arrays that it gives have one."""
    divided: tuple[Any, ...] | None
    """How these are divided on a mesh of explicit axes."""

    @property
    def specs(self) -> tuple[Any, ...] | None:
        """How the results are divided."""
        if self.divided is None:
            return None
        return tuple(spec for spec, flows in zip(self.divided, self.flows, strict=True) if flows)

    @property
    def op(self) -> Op:
        """The op."""
        return self.call.op.definition

    def shapes(self, fixed: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        """The shapes and dtypes of the results."""
        every = (like for group in self.outputs for like in group)
        return [like for like, flows in zip(every, self.flows, strict=True) if flows]

    def groups(
        self, kept: Sequence[tuple[str, int]], fixed: Sequence[Any]
    ) -> tuple[list[Group], list[Group]]:
        """Inputs and outputs of the call: only shapes and dtypes of those that are not kept."""
        found: dict[str, list[Group]] = {
            "input": [list(group) for group in self.inputs],
            "output": [list(group) for group in self.outputs[: len(self.op.outputs)]],
        }
        rest = iter(fixed)
        for kind, place in kept:
            group = found[kind][place]
            found[kind][place] = [x if isinstance(x, Constant) else next(rest) for x in group]
        return found["input"], found["output"]

    def of_inputs(self, tangents: Sequence[Any]) -> list[Group]:
        """The tangents of each input's tensors, `None` for one that has none."""
        has, rest = iter(self.has), iter(tangents)
        return [
            [None if isinstance(x, Constant) or not next(has) else next(rest) for x in group]
            for group in self.inputs
        ]

    def of_outputs(self, values: Sequence[Any]) -> list[Group]:
        """What arrives at each output, or is along it, `None` where nothing does."""
        flows, rest = iter(self.flows), iter(values)
        groups = self.outputs[: len(self.op.outputs)]
        return [[next(rest) if next(flows) else None for _ in group] for group in groups]

    def results(self, groups: Sequence[Group]) -> list[Any]:
        """The tangents of the outputs' tensors, of those where one flows."""
        every = [
            (x, like)
            for pair in zip(groups, self.outputs, strict=False)
            for x, like in zip(*pair, strict=True)
        ]
        flowing = [pair for pair, flows in zip(every, self.flows, strict=True) if flows]
        return [jnp.zeros(like.shape, like.dtype) if x is None else x for x, like in flowing]

    def back(self, groups: Sequence[Group | None]) -> list[Any]:
        """What goes back to each array that has a tangent, of what goes back to each input's tensors."""
        found: list[Any] = []
        has = iter(self.has)
        for group, likes in zip(groups, self.inputs, strict=True):
            given = [None] * len(likes) if group is None else group
            found += [
                x
                for x, like in zip(given, likes, strict=True)
                if not isinstance(like, Constant) and next(has)
            ]
        return found

    def part(self, there: Sequence[bool]) -> About:
        """The same, where only some of the arrays that have a tangent have one."""
        rest = iter(there)
        return replace(self, has=tuple(has and next(rest) for has in self.has))

    def needed(self) -> list[bool]:
        """Which inputs have a tangent."""
        return [any(x is True for x in group) for group in self.call.layout.split(self.has)]


@dataclass(frozen=True)
class _OfCall:
    about: About
    kept: tuple[tuple[str, int], ...]

    def shapes(self, fixed: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        """As `Derivative` says."""
        return self.about.shapes(fixed, tangents)

    @property
    def specs(self) -> tuple[Any, ...] | None:
        """As `Derivative` says."""
        return self.about.specs

    def part(self: Own, there: Sequence[bool]) -> Own:
        """As `Derivative` says."""
        return replace(self, about=self.about.part(there))


@dataclass(frozen=True)
class Missing(_OfCall):
    """Of an op that declares none: an error as soon as it is needed."""

    def push(self, fixed: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        """As `Derivative` says."""
        raise UnimplementedError(self.about.call.of.chain.missing())

    def pull(self, fixed: Sequence[Any], tangents: Sequence[Any], arriving: Sequence[Any]) -> list[Any]:
        """As `Derivative` says."""
        name = self.about.op.name
        raise UnimplementedError.of(name, None, _registered.NO_GRADIENT)


@dataclass(frozen=True)
class Declared(_OfCall):
    """By the gradient ops."""

    def push(self, fixed: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        """As `Derivative` says."""
        inputs, outputs = self.about.groups(self.kept, fixed)
        found = _Pushed(self.about.call, inputs, outputs).tangents(self.about.of_inputs(tangents))
        if found is None:
            raise UnimplementedError(self.about.call.of.chain.missing())
        return self.about.results(found)

    def pull(self, fixed: Sequence[Any], tangents: Sequence[Any], arriving: Sequence[Any]) -> list[Any]:
        """As `Derivative` says."""
        op, call = self.about.op, self.about.call
        gradient = call.of.chain.gradient
        if gradient is None or op.gradient is None:
            raise UnimplementedError.of(op.name, None, _registered.NO_GRADIENT)
        needed = self.about.needed()
        wanted = sum(1 << i for i, target in enumerate(op.gradient.outputs) if needed[target])
        if not wanted:
            return self.about.back([None] * len(op.inputs))
        inputs, outputs = self.about.groups(self.kept, fixed)
        sources = {"input": inputs, "output": outputs, "output_gradient": self.about.of_outputs(arriving)}
        pushed = _Pushed(call, inputs, outputs)
        arguments: list[Group] = []
        for arg, (kind, place) in zip(gradient.inputs, op.gradient.inputs, strict=True):
            group = sources[kind][place]
            if kind == "output_gradient":
                if all(x is None for x in group):
                    group = [] if arg.optional else pushed.nothing_at(place)
                else:
                    group = [_filled(*each) for each in zip(group, outputs[place], strict=True)]
            arguments.append(group)
        answer = pushed.again(gradient, arguments, pushed.attrs_of(gradient), wanted)
        found = dict(zip(op.gradient.outputs, answer, strict=True))
        return self.about.back([found.get(i) if needed[i] else None for i in range(len(op.inputs))])


class _Pushed(_forward.Call):
    def __init__(self, call: Call, inputs: list[Group], outputs: list[Group]) -> None:
        names = (attr.name for attr in call.op.definition.call_attrs)
        attrs = {name: value for name, value in zip(names, call.attrs, strict=True) if value is not None}
        super().__init__(call.of.chain, inputs, outputs, attrs, call.wanted)
        self._of = call.of

    def attrs_of(self, gradient: Op) -> dict[str, Any]:
        """The attributes of a call of the gradient op: those that both have, and what the inputs decide."""
        return self.attrs | self.inferred(self.chain.op, gradient, self.inputs)

    def again(self, op: Op, inputs: list[Group], attrs: dict[str, Any], wanted: int) -> list[Group]:
        both = zip(op.inputs, inputs, strict=True)
        values = [group if arg.is_list else group[0] if group else None for arg, group in both]
        named = [attrs.get(attr.name) for attr in op.call_attrs]
        given = tuple(tuple(value) if isinstance(value, list) else value for value in named)
        other = self._of.other(op)
        outputs = other.call(values, given, wanted if op.has_optional_outputs else ALL, other.registered)
        return [flat([value]) for value in outputs]

    def zeros(self, like: Any) -> jax.Array:
        return jnp.zeros(like.shape, like.dtype)

    def add(self, a: Any, b: Any) -> Any:
        return a + b

    def dtype(self, tensor: Any) -> str:
        return str(tensor.dtype.name)


@dataclass(frozen=True)
class Registered(_OfCall):
    """By a function that a user has registered."""

    def push(self, fixed: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        """The transpose of the transpose, as `Derivative` says."""
        likes = self.about.shapes(fixed, tangents)
        zeros = _varying.over(
            _varying.axes_of([fixed, tangents]), [jnp.zeros(x.shape, x.dtype) for x in likes]
        )

        def back(arriving: list[Any]) -> list[Any]:
            found = self.pull(fixed, tangents, arriving)
            return [jnp.zeros_like(t) if x is None else x for x, t in zip(found, tangents, strict=True)]

        found: list[Any]
        (found,) = jax.vjp(back, zeros)[1](list(tangents))
        return found

    def pull(self, fixed: Sequence[Any], tangents: Sequence[Any], arriving: Sequence[Any]) -> list[Any]:
        """As `Derivative` says."""
        op, call = self.about.op, self.about.call
        assert call.registered is not None
        inputs, outputs = self.about.groups(self.kept, fixed)
        given = [
            # Who asks for a `vjp` may give NumPy arrays.
            [
                jnp.asarray(_filled(x, like)) if _is_number(like) else None
                for x, like in zip(*both, strict=True)
            ]
            for both in zip(self.about.of_outputs(arriving), outputs, strict=True)
        ]
        values = [[jnp.asarray(x) if isinstance(x, Constant) else x for x in group] for group in inputs]
        is_there = [group is not None for group in call.layout.groups]
        attrs = {
            attr.name: plain(op, attr, value) for attr, value in zip(op.call_attrs, call.attrs, strict=True)
        }
        groups = _registered.evaluate(
            op,
            call.registered,
            [_value(*each) for each in zip(op.inputs, values, is_there, strict=True)],
            [_value(arg, group, bool(group)) for arg, group in zip(op.outputs, outputs, strict=True)],
            attrs,
            [
                None if place in op.constants else _value(arg, group, bool(group))
                for place, (arg, group) in enumerate(zip(op.outputs, given, strict=True))
            ],
            _mismatch,
        )
        # JAX wants the gradient of what varies to vary too.
        groups = _varying.over(_varying.axes_of([fixed, arriving]), groups)
        return self.about.back(
            [group if there else None for group, there in zip(groups, is_there, strict=True)]
        )


def _value(arg: Any, group: Group, is_there: bool) -> Value:
    return list(group) if arg.is_list else group[0] if is_there else None


def _filled(x: Any, like: Any) -> Any:
    return jnp.zeros(like.shape, like.dtype) if x is None else x


def _is_number(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))


def _mismatch(tensor: Value, gradient: object) -> str | None:
    """What is wrong with the gradient of an array."""
    if not _is_number(tensor):
        return f"must be None, for the input is {tensor.dtype}"
    if not isinstance(gradient, jax.Array):
        return f"must be a JAX array or None, got {type(gradient).__name__}"
    if (gradient.dtype, gradient.shape) == (tensor.dtype, tensor.shape):
        return None
    return f"must be {_description(tensor)} as the input is, got {_description(gradient)}"


def _description(tensor: Value) -> str:
    return f"{tensor.dtype} of shape {tensor.shape}"
