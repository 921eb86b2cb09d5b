"""Forward mode: derivatives along tangents, from the ops that compute gradients.

A gradient op gives `G(x, v) = Jᵀ v`, which is linear in `v`; so the gradient of that by `v`, which the
gradient's own gradient op `H` gives, is `J t` for any `t` that arrives at its output. Of a gradient op itself
whose `H` has no gradient op, the derivative along `x` is what `H` gives for `x`, for second derivatives are
symmetric, and along `v` it is `G` of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from opsmith.torch._op import TorchOp, Value, inferred_by, split

Group: TypeAlias = list[torch.Tensor | None]
"""The tensors of an argument."""


@dataclass(frozen=True)
class Chain:
    """An op, and the gradient ops that follow it, as many as there are."""

    op: TorchOp
    gradient: TorchOp | None
    second: TorchOp | None
    """The gradient of the gradient."""
    forward: TorchOp | None
    """The op whose gradient this is."""

    def missing(self) -> NotImplementedError:
        """Why there is no derivative."""
        lacking = self.op if self.gradient is None else self.gradient
        why = f", for {lacking.name} declares no gradient" if lacking.definition.gradient is None else ""
        return NotImplementedError(
            f"{self.op.name}: has no forward-mode derivative along these tangents{why}; use reverse mode "
            "(backward, torch.func.grad, vjp or jacrev)"
        )

    def tangents(
        self, inputs: list[Group], outputs: list[Group], tangents: list[Group], kwargs: dict[str, Value]
    ) -> list[Group]:
        """Of each output's tensors, `None` where no tangent arrives."""
        if self.gradient is not None and self.second is not None:
            return _pushed(self, self.gradient, self.second, inputs, outputs, tangents, kwargs)
        found = None
        if self.forward is not None:
            found = _of_gradient(self, self.forward, inputs, outputs, tangents, kwargs)
        if found is None:
            raise self.missing()
        return found

    def is_wanted(self, kwargs: dict[str, Value]) -> list[bool]:
        """Of each output."""
        wanted = kwargs.get(self.op.wanted, -1) if self.op.wanted else -1
        outputs = self.op.definition.outputs
        return [not output.optional or bool(wanted >> at & 1) for at, output in enumerate(outputs)]


def _pushed(
    chain: Chain,
    gradient: TorchOp,
    second: TorchOp,
    inputs: list[Group],
    outputs: list[Group],
    tangents: list[Group],
    kwargs: dict[str, Value],
) -> list[Group]:
    wiring = chain.op.definition.gradient
    assert wiring is not None
    is_wanted = chain.is_wanted(kwargs)
    both = list(zip(outputs, is_wanted, strict=True))
    sources: dict[str, list[Group]] = {
        "input": inputs,
        "output": outputs,
        "output_gradient": [_zeros(group) if is_there else [None] * len(group) for group, is_there in both],
    }
    given = [sources[kind][position] for kind, position in wiring.inputs]
    if any(kind == "output" and not is_wanted[position] for kind, position in wiring.inputs):
        raise chain.missing()
    # Of zeros it gives zeros.
    gradients = [_zeros(inputs[target]) for target in wiring.outputs]
    arriving = [_filled(tangents[target], inputs[target]) for target in wiring.outputs]
    wanted = {
        place: position
        for place, (kind, position) in enumerate(wiring.inputs)
        if kind == "output_gradient" and is_wanted[position]
    }
    named = _named(chain.op, kwargs) | _inferred(chain.op, gradient, inputs)
    found = _call(gradient, second, (given, gradients, arriving), wanted.keys(), named)
    result: list[Group] = [[None] * len(group) for group in outputs]
    for place, group in found.items():
        result[wanted[place]] = group
    return result


def _of_gradient(
    chain: Chain,
    forward: TorchOp,
    inputs: list[Group],
    outputs: list[Group],
    tangents: list[Group],
    kwargs: dict[str, Value],
) -> list[Group] | None:
    """Of a gradient op; `None` where that does not follow from what it takes."""
    op, second = chain.op, chain.gradient
    wiring = forward.definition.gradient
    assert wiring is not None
    is_wanted = chain.is_wanted(kwargs)
    has_tangent = [any(tangent is not None for tangent in group) for group in tangents]
    places = {source: place for place, source in enumerate(wiring.inputs)}
    of_gradients = [place for place, (kind, _) in enumerate(wiring.inputs) if kind == "output_gradient"]
    along = [places.get(("input", target)) for target in wiring.outputs]
    result: list[Group] = [[None] * len(group) for group in outputs]
    more: dict[int, Group] = {}
    if any(has for place, has in enumerate(has_tangent) if place not in of_gradients):
        if second is None or not _is_of_function(forward, second, op, along, has_tangent):
            return None
        second_wiring = op.definition.gradient
        assert second_wiring is not None
        if any(kind == "output" and not is_wanted[at] for kind, at in second_wiring.inputs):
            return None
        arriving = [_filled(tangents[place], inputs[place]) for place in along if place is not None]
        read = {place for place, (kind, _) in enumerate(wiring.inputs) if kind == "output"}
        found = _call(op, second, (inputs, outputs, arriving), read | set(along), _named(op, kwargs))
        for at, place in enumerate(along):
            if is_wanted[at] and place in found:
                result[at] = found[place]
        # What arrives at an output that is read goes on to the inputs, as what arrives along gradients does.
        more = {
            position: found[place]
            for (kind, position), place in places.items()
            if place in read & found.keys()
        }
    again, has_more = list(inputs), False
    for place in of_gradients:
        total = _sum([tangents[place], more.get(wiring.inputs[place][1], [])], inputs[place])
        has_more |= any(tangent is not None for tangent in total)
        again[place] = _filled(total, inputs[place])
    if not has_more:
        return result
    groups = _groups(op, op.overload(*_arguments(op, again), **kwargs))
    return [
        _sum([own, group], own) if is_there else own
        for own, group, is_there in zip(result, groups, is_wanted, strict=True)
    ]


def _is_of_function(
    forward: TorchOp, second: TorchOp, op: TorchOp, along: Sequence[int | None], has_tangent: Sequence[bool]
) -> bool:
    """Whether the tangents that arrive at a gradient op are those of a call of the op whose gradient it is:
    of the inputs that it differentiates by, which it must take, and of the outputs that it reads, or of
    none."""
    wiring, second_wiring = forward.definition.gradient, op.definition.gradient
    assert wiring is not None and second_wiring is not None
    if any(place is None for place in along):
        return False
    has_input = any(has_tangent[place] for place in along if place is not None)
    for place, (kind, position) in enumerate(wiring.inputs):
        flows = kind == "output" and position not in forward.definition.constants
        if flows and has_tangent[place] != has_input:
            return False
        is_other = kind == "input" and place not in along and place in second_wiring.outputs
        if is_other and has_tangent[place]:
            return False
    return True


def _named(op: TorchOp, kwargs: dict[str, Value]) -> dict[str, Value]:
    """The attributes of a call by the definition's names."""
    return {attr.name: kwargs[name] for name, attr in op.keyword_attrs.items() if name in kwargs}


def _inferred(op: TorchOp, gradient: TorchOp, inputs: list[Group]) -> dict[str, Value]:
    """The attributes that `gradient` must be given and the inputs of `op` decide."""
    found: dict[str, Value] = {}
    for attr in inferred_by(op, gradient).values():
        for arg, group in zip(op.definition.inputs, inputs, strict=True):
            present = [tensor.dtype for tensor in group if tensor is not None]
            if arg.type_attr == attr.name and present:
                found[attr.name] = present[0]
            elif arg.type_list_attr == attr.name:
                found[attr.name] = present
            elif arg.number_attr == attr.name:
                found[attr.name] = len(group)
    return found


def _call(
    op: TorchOp,
    gradient: TorchOp,
    values: tuple[list[Group], list[Group], list[Group]],
    wanted: Any,
    named: dict[str, Value],
) -> dict[int, Group]:
    """What the gradient op of `op` gives for its inputs at these places, by place."""
    wiring = op.definition.gradient
    assert wiring is not None
    inputs, outputs, arriving = values
    sources = {"input": inputs, "output": outputs, "output_gradient": arriving}
    given = [sources[kind][position] for kind, position in wiring.inputs]
    named = named | _inferred(op, gradient, inputs)
    keywords = {name: named[attr.name] for name, attr in gradient.keyword_attrs.items() if attr.name in named}
    if gradient.wanted is not None:
        keywords[gradient.wanted] = sum(1 << i for i, place in enumerate(wiring.outputs) if place in wanted)
    groups = _groups(gradient, gradient.overload(*_arguments(gradient, given), **keywords))
    both = zip(wiring.outputs, groups, strict=True)
    return {place: group for place, group in both if place in wanted}


def _groups(op: TorchOp, result: Value) -> list[Group]:
    tensors, counts = op.flatten(result)
    return [list(group) for group in split(tensors, counts)]


def _arguments(op: TorchOp, groups: Sequence[Group]) -> list[Value]:
    both = zip(op.definition.inputs, groups, strict=True)
    return [group if arg.is_list else (group[0] if group else None) for arg, group in both]


def _zeros(group: Group) -> Group:
    return [None if tensor is None else torch.zeros_like(tensor) for tensor in group]


def _filled(tangents: Group, likes: Group) -> Group:
    """The tangents, zeros where there are none."""
    both = zip(tangents, likes, strict=True)
    return [
        None if like is None else torch.zeros_like(like) if tangent is None else tangent
        for tangent, like in both
    ]


def _sum(terms: Sequence[Group], likes: Group) -> Group:
    found: Group = [None] * len(likes)
    for group in terms:
        for at, term in enumerate(group):
            own = found[at]
            found[at] = term if own is None else own if term is None else own + term
    return found
