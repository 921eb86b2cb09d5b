"""Forward mode: derivatives along tangents, from the ops that compute gradients.

A gradient op gives `G(x, v) = Jᵀ v`, which is linear in `v`; so the gradient of that by `v`, which the
gradient's own gradient op `H` gives, is `J t` for any `t` that arrives at its output. Of a gradient op itself
whose `H` has no gradient op, the derivative along `x` is what `H` gives for `x`, for second derivatives are
symmetric, and along `v` it is `G` of that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from opsmith._definition import Arg, Op

Tensor: TypeAlias = Any
Group: TypeAlias = list[Tensor]
"""The tensors of an argument. One that is absent has none, or `None`."""

_Places: TypeAlias = Mapping[str, list[Group]]


@dataclass(frozen=True)
class Chain:
    """An op, and the gradient ops that follow it, as many as there are."""

    op: Op
    gradient: Op | None
    second: Op | None
    """The gradient of the gradient."""
    forward: Op | None
    """The op whose gradient this is."""
    called: Op
    """The op itself, or that whose derivative this is."""

    @staticmethod
    def of(op: Op, ops: Mapping[str, Op]) -> Chain:
        """Of an op among those that a framework has."""
        gradient = ops.get(op.gradient.op) if op.gradient is not None else None
        second = gradient.gradient if gradient is not None else None
        # The first one, where several ops have one gradient op.
        every = reversed(list(ops.values()))
        of = {other.gradient.op: other for other in every if other.gradient is not None}
        called, rest = op, dict(of)
        # Gradient ops may go round in a circle.
        while called.name in rest:
            called = rest.pop(called.name)
        return Chain(op, gradient, ops.get(second.op) if second else None, of.get(op.name), called)

    def twin(self, output: int) -> int | None:
        """Of a gradient op, its input that has the shape of an output: that whose gradient it is. `None`
        where it takes none."""
        wiring = self.forward.gradient if self.forward is not None else None
        source = ("input", wiring.outputs[output]) if wiring is not None else None
        return wiring.inputs.index(source) if wiring is not None and source in wiring.inputs else None

    def missing(self) -> str:
        """Why there is no derivative."""
        lacking = self.op if self.gradient is None else self.gradient
        why = f", for {lacking.name} declares no gradient" if lacking.gradient is None else ""
        is_called = self.called is self.op
        what = "has no forward-mode derivative" if is_called else "its derivative has none in forward mode"
        return (
            f"{self.called.name}: {what} along these tangents{why}; use reverse mode "
            "(a gradient, vjp or jacrev), or declare one: a body derives three orders, or as many as it says "
            "in its options: `orders = 4`"
        )


class Call(ABC):
    """A call of an op in a framework: its values, and what the rules need of the framework."""

    def __init__(
        self, chain: Chain, inputs: list[Group], outputs: list[Group], attrs: dict[str, Any], wanted: int
    ) -> None:
        self.chain = chain
        self.inputs = inputs
        self.outputs = outputs
        self.attrs = attrs
        """By the definition's names."""
        self.wanted = wanted
        """Bit i is set when output i is wanted."""
        self.is_wanted = [
            not output.optional or bool(wanted >> at & 1) for at, output in enumerate(chain.op.outputs)
        ]

    @abstractmethod
    def again(self, op: Op, inputs: list[Group], attrs: dict[str, Any], wanted: int) -> list[Group]:
        """All outputs of a call of an op."""

    @abstractmethod
    def zeros(self, like: Tensor) -> Tensor:
        """Zeros of the shape and dtype of a tensor."""

    @abstractmethod
    def add(self, a: Tensor, b: Tensor) -> Tensor:
        """The sum of two tensors of one shape."""

    @abstractmethod
    def dtype(self, tensor: Tensor) -> Any:
        """The dtype of a tensor, as attributes have it."""

    def tangents(self, tangents: list[Group]) -> list[Group] | None:
        """The tangents of the outputs, from those of the inputs; `None` for a tensor where none arrives, and
        as a whole where the gradient ops do not give them."""
        if self.chain.gradient is not None and self.chain.second is not None:
            return self._pushed(self.chain.gradient, self.chain.second, tangents)
        if self.chain.forward is not None:
            return self._of_gradient(self.chain.forward, tangents)
        return None

    def _pushed(self, gradient: Op, second: Op, tangents: list[Group]) -> list[Group] | None:
        wiring = self.chain.op.gradient
        assert wiring is not None
        zeros = [self.nothing_at(output) for output in range(len(self.outputs))]
        sources = {"input": self.inputs, "output": self.outputs, "output_gradient": zeros}
        given = [sources[kind][position] for kind, position in wiring.inputs]
        if any(kind == "output" and not self.is_wanted[position] for kind, position in wiring.inputs):
            return None
        # Of zeros it gives zeros.
        likes = [self.inputs[target] for target in wiring.outputs]
        arriving = self._arriving(second, gradient, [tangents[target] for target in wiring.outputs], likes)
        wanted = {
            place: position
            for place, (kind, position) in enumerate(wiring.inputs)
            if kind == "output_gradient" and self.is_wanted[position]
        }
        attrs = self.attrs | self.inferred(self.chain.op, gradient, self.inputs)
        places = {
            "input": given,
            "output": [self._zeros(like) for like in likes],
            "output_gradient": arriving,
        }
        found = self._gradients(gradient, second, places, wanted.keys(), attrs)
        result: list[Group] = [[None] * len(group) for group in self.outputs]
        for place, group in found.items():
            result[wanted[place]] = group
        return result

    def _of_gradient(self, forward: Op, tangents: list[Group]) -> list[Group] | None:
        """Of a gradient op; `None` where that does not follow from what it takes."""
        wiring = forward.gradient
        assert wiring is not None
        has_tangent = [any(tangent is not None for tangent in group) for group in tangents]
        of_gradients = [place for place, (kind, _) in enumerate(wiring.inputs) if kind == "output_gradient"]
        result: list[Group] = [[None] * len(group) for group in self.outputs]
        more: dict[int, Group] = {}
        own = self.chain.op.gradient
        # What its gradient is not taken by does not change it.
        depends = range(len(has_tangent)) if own is None else own.outputs
        if any(has_tangent[place] for place in depends if place not in of_gradients):
            found = self._along_inputs(forward, tangents, has_tangent, result)
            if found is None:
                return None
            more = found
        again, has_more = list(self.inputs), False
        for place in of_gradients:
            likes = self.inputs[place]
            total = self._sum(tangents[place], more.get(wiring.inputs[place][1], [None] * len(likes)))
            has_more |= any(tangent is not None for tangent in total)
            again[place] = self._told(self.chain.op.inputs[place], total, likes)
        if not has_more:
            return result
        groups = self.again(self.chain.op, again, self.attrs, self.wanted)
        return [
            self._sum(own, group) if is_there else own
            for own, group, is_there in zip(result, groups, self.is_wanted, strict=True)
        ]

    def _along_inputs(
        self, forward: Op, tangents: list[Group], has_tangent: Sequence[bool], result: list[Group]
    ) -> dict[int, Group] | None:
        """Of a gradient op, along what it takes of the forward call: puts tangents of the outputs into
        `result`, and gives what goes on along the gradients that arrive, by the position of the output."""
        op, second = self.chain.op, self.chain.gradient
        wiring, second_wiring = forward.gradient, op.gradient
        assert wiring is not None
        places = {source: place for place, source in enumerate(wiring.inputs)}
        along = [places.get(("input", target)) for target in wiring.outputs]
        if second is None or second_wiring is None or not _is_of_function(forward, op, along, has_tangent):
            return None
        if any(kind == "output" and not self.is_wanted[at] for kind, at in second_wiring.inputs):
            return None
        taken = [place for place in along if place is not None]
        arriving = self._arriving(
            second, op, [tangents[place] for place in taken], [self.inputs[place] for place in taken]
        )
        read = {place for place, (kind, _) in enumerate(wiring.inputs) if kind == "output"}
        sources = {"input": self.inputs, "output": self.outputs, "output_gradient": arriving}
        wanted = read | {place for place in along if place is not None}
        found = self._gradients(op, second, sources, wanted, self.attrs)
        for at, place in enumerate(along):
            if self.is_wanted[at] and place is not None and place in found:
                result[at] = found[place]
        # What arrives at an output that is read goes on to the inputs, as what arrives along gradients does.
        return {
            position: found[place]
            for (_, position), place in places.items()
            if place in read and place in found
        }

    def _gradients(
        self, op: Op, gradient: Op, sources: _Places, wanted: Collection[int], attrs: dict[str, Any]
    ) -> dict[int, Group]:
        """What the gradient op of `op` gives for its inputs at the wanted places, by place. It takes the
        inputs, the outputs and the output gradients of a call of `op`."""
        wiring = op.gradient
        assert wiring is not None
        given = [sources[kind][position] for kind, position in wiring.inputs]
        attrs = attrs | self.inferred(op, gradient, sources["input"])
        named = {attr.name: attrs[attr.name] for attr in gradient.call_attrs if attr.name in attrs}
        mask = sum(1 << i for i, place in enumerate(wiring.outputs) if place in wanted)
        groups = self.again(gradient, given, named, mask)
        both = zip(wiring.outputs, groups, strict=True)
        return {place: group for place, group in both if place in wanted}

    def inferred(self, op: Op, gradient: Op, inputs: list[Group]) -> dict[str, Any]:
        """The attributes that `gradient` must be given and the inputs of `op` decide."""
        return inferred(op, gradient, inputs, self.dtype)

    def nothing_at(self, output: int) -> Group:
        """What arrives at an output where nothing does: zeros; of one that is not wanted `None`, but zeros
        where the gradient op must have it."""
        if self.is_wanted[output]:
            return self._zeros(self.outputs[output])
        wiring, gradient, twin = self.chain.op.gradient, self.chain.gradient, self.chain.twin(output)
        source = ("output_gradient", output)
        if wiring is None or gradient is None or twin is None or source not in wiring.inputs:
            return [None] * len(self.outputs[output])
        is_optional = gradient.inputs[wiring.inputs.index(source)].optional
        return [None] * len(self.outputs[output]) if is_optional else self._zeros(self.inputs[twin])

    def _zeros(self, group: Group) -> Group:
        return [None if tensor is None else self.zeros(tensor) for tensor in group]

    def _arriving(self, gradient: Op, op: Op, tangents: list[Group], likes: Sequence[Group]) -> list[Group]:
        """The tangents as the gradient op of `op` takes them for the outputs of `op`, which are so."""
        wiring = op.gradient
        assert wiring is not None
        both = zip(gradient.inputs, wiring.inputs, strict=True)
        args = {position: arg for arg, (kind, position) in both if kind == "output_gradient"}
        return [
            self._told(args[position], *each) if position in args else each[0]
            for position, each in enumerate(zip(tangents, likes, strict=True))
        ]

    def _told(self, arg: Arg, tangents: Group, likes: Group) -> Group:
        """The tangents for an input of an op: absent where there are none and it may be, else zeros. What is
        absent is nothing, also where it is multiplied by an infinite number."""
        if arg.optional and all(tangent is None for tangent in tangents):
            return [] if arg.is_list else [None]
        return [
            None if like is None else self.zeros(like) if tangent is None else tangent
            for tangent, like in zip(tangents, likes, strict=True)
        ]

    def _sum(self, a: Group, b: Group) -> Group:
        return [y if x is None else x if y is None else self.add(x, y) for x, y in zip(a, b, strict=True)]


def inferred(
    op: Op, gradient: Op, inputs: Sequence[Sequence[Tensor]], dtype: Callable[[Tensor], Any]
) -> dict[str, Any]:
    """The attributes that a gradient op must be given and the tensors of the inputs of `op` decide, by the
    definition's names."""
    names = {attr.name for attr in op.attrs if attr.inferred}
    found: dict[str, Any] = {}
    for name in (attr.name for attr in gradient.call_attrs if attr.name in names):
        for arg, group in zip(op.inputs, inputs, strict=True):
            present = [dtype(tensor) for tensor in group if tensor is not None]
            if arg.type_attr == name and present:
                found[name] = present[0]
            elif arg.type_list_attr == name:
                found[name] = present
            elif arg.number_attr == name:
                found[name] = len(group)
    return found


def _is_of_function(forward: Op, op: Op, along: Sequence[int | None], has_tangent: Sequence[bool]) -> bool:
    """Whether the tangents that arrive at a gradient op are those of a call of the op whose gradient it is:
    of the inputs that it differentiates by, which it must take, and of the outputs that it reads, or of
    none."""
    wiring, second_wiring = forward.gradient, op.gradient
    assert wiring is not None and second_wiring is not None
    if any(place is None for place in along):
        return False
    has_input = any(has_tangent[place] for place in along if place is not None)
    for place, (kind, position) in enumerate(wiring.inputs):
        flows = kind == "output" and place in second_wiring.outputs and position not in forward.constants
        if flows and has_tangent[place] != has_input:
            return False
        is_other = kind == "input" and place not in along and place in second_wiring.outputs
        if is_other and has_tangent[place]:
            return False
    return True
