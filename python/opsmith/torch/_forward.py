"""Forward mode in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from opsmith import _forward
from opsmith._definition import Op
from opsmith._forward import Chain, Group
from opsmith.torch._op import TorchOp, Value, split


@dataclass(frozen=True)
class Derivative:
    """What autograd needs of an op, its gradient op and its tangents."""

    op: TorchOp
    gradient: TorchOp | None
    chain: Chain
    ops: Mapping[str, TorchOp]

    def missing(self) -> NotImplementedError:
        """Why there is no derivative along some tangents."""
        return NotImplementedError(self.chain.missing())

    def tangents(
        self, inputs: list[Group], outputs: list[Group], tangents: list[Group], kwargs: dict[str, Value]
    ) -> list[Group]:
        """Of each output's tensors, `None` where no tangent arrives."""
        op = self.op
        attrs = {attr.name: kwargs[name] for name, attr in op.keyword_attrs.items() if name in kwargs}
        wanted = kwargs.get(op.wanted, -1) if op.wanted else -1
        found = _Call(self, inputs, outputs, attrs, wanted).tangents(tangents)
        if found is None:
            raise self.missing()
        return found


class _Call(_forward.Call):
    def __init__(
        self,
        derivative: Derivative,
        inputs: list[Group],
        outputs: list[Group],
        attrs: dict[str, Any],
        wanted: int,
    ) -> None:
        super().__init__(derivative.chain, inputs, outputs, attrs, wanted)
        self._ops = derivative.ops

    def again(self, op: Op, inputs: list[Group], attrs: dict[str, Any], wanted: int) -> list[Group]:
        torch_op = self._ops[op.name]
        named = {
            name: attrs[attr.name] for name, attr in torch_op.keyword_attrs.items() if attr.name in attrs
        }
        if torch_op.wanted is not None:
            named[torch_op.wanted] = wanted
        tensors, counts = torch_op.flatten(torch_op.overload(*_arguments(op, inputs), **named))
        return [list(group) for group in split(tensors, counts)]

    def zeros(self, like: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(like)

    def add(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b

    def dtype(self, tensor: torch.Tensor) -> torch.dtype:
        return tensor.dtype


def _arguments(op: Op, groups: Sequence[Group]) -> list[Value]:
    both = zip(op.inputs, groups, strict=True)
    return [group if arg.is_list else (group[0] if group else None) for arg, group in both]
