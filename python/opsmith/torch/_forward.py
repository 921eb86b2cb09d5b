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
        lacking = self.op.name if self.gradient is None else self.gradient.name
        return NotImplementedError(
            f"{self.op.name}: has no forward-mode derivative, for {lacking} declares no gradient; declare "
            "one, or use reverse mode (backward, torch.func.grad, vjp or jacrev)"
        )

    def tangents(
        self, inputs: list[Group], outputs: list[Group], tangents: list[Group], kwargs: dict[str, Value]
    ) -> list[Group]:
        """Of each output's tensors, `None` where no tangent arrives."""
        if self.gradient is not None and self.second is not None:
            return _pushed(self.op, self.gradient, self.second, inputs, outputs, tangents, kwargs)
        if self.forward is not None and self.gradient is not None:
            found = _of_gradient(self.forward, self.op, self.gradient, inputs, outputs, tangents, kwargs)
            if found is not None:
                return found
        raise self.missing()


def _pushed(
    op: TorchOp,
    gradient: TorchOp,
    second: TorchOp,
    inputs: list[Group],
    outputs: list[Group],
    tangents: list[Group],
    kwargs: dict[str, Value],
) -> list[Group]:
    wiring = op.definition.gradient
    assert wiring is not None
    sources: dict[str, list[Group]] = {
        "input": inputs,
        "output": outputs,
        "output_gradient": [_zeros(group) for group in outputs],
    }
    given = [sources[kind][position] for kind, position in wiring.inputs]
    # Of zeros it gives zeros.
    gradients = [_zeros(inputs[target]) for target in wiring.outputs]
    arriving = [_filled(tangents[target], inputs[target]) for target in wiring.outputs]
    wanted = {
        place: position for place, (kind, position) in enumerate(wiring.inputs) if kind == "output_gradient"
    }
    found = _call(gradient, second, (given, gradients, arriving), wanted.keys(), kwargs)
    result: list[Group] = [[None] * len(group) for group in outputs]
    for place, group in found.items():
        result[wanted[place]] = group
    return result


def _of_gradient(
    forward: TorchOp,
    op: TorchOp,
    second: TorchOp,
    inputs: list[Group],
    outputs: list[Group],
    tangents: list[Group],
    kwargs: dict[str, Value],
) -> list[Group] | None:
    """Of a gradient op; `None` where that does not follow from what it takes."""
    wiring = forward.definition.gradient
    assert wiring is not None
    places = {source: place for place, source in enumerate(wiring.inputs)}
    along = [places.get(("input", target)) for target in wiring.outputs]
    if any(place is None for place in along):
        return None
    arriving = [_filled(tangents[place], inputs[place]) for place in along if place is not None]
    wanted = {place for place, (kind, _) in enumerate(wiring.inputs) if kind == "output"} | set(along)
    found = _call(op, second, (inputs, outputs, arriving), wanted, kwargs)
    # What arrives at an output that is read goes on to the inputs, as what arrives along the gradients does.
    again = list(inputs)
    has_more = False
    for place, (kind, position) in enumerate(wiring.inputs):
        if kind != "output_gradient":
            continue
        terms = [tangents[place]]
        if ("output", position) in places:
            terms.append(found.get(places["output", position], []))
        total = _sum(terms, inputs[place])
        has_more |= any(x is not None for x in total)
        again[place] = _filled(total, inputs[place])
    result: list[Group] = [
        found.get(place, [None] * len(group)) for place, group in zip(along, outputs, strict=True)
    ]
    if has_more:
        groups = _groups(op, op.overload(*_arguments(op, again), **kwargs))
        result = [_sum([own, more], own) for own, more in zip(result, groups, strict=True)]
    return result


def _call(
    op: TorchOp,
    gradient: TorchOp,
    values: tuple[list[Group], list[Group], list[Group]],
    wanted: Any,
    kwargs: dict[str, Value],
) -> dict[int, Group]:
    """What the gradient op of `op` gives for its inputs at these places, by place."""
    wiring = op.definition.gradient
    assert wiring is not None
    inputs, outputs, arriving = values
    sources = {"input": inputs, "output": outputs, "output_gradient": arriving}
    given = [sources[kind][position] for kind, position in wiring.inputs]
    named = {attr.name: kwargs[name] for name, attr in op.keyword_attrs.items() if name in kwargs}
    keywords = {name: named[attr.name] for name, attr in gradient.keyword_attrs.items() if attr.name in named}
    for name, attr in inferred_by(op, gradient).items():
        for arg, group in zip(op.definition.inputs, inputs, strict=True):
            present = [tensor.dtype for tensor in group if tensor is not None]
            if arg.type_attr == attr.name and present:
                keywords[name] = present[0]
            elif arg.type_list_attr == attr.name:
                keywords[name] = present
            elif arg.number_attr == attr.name:
                keywords[name] = len(group)
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
