"""An op as PyTorch has it: its schema, and how the definition's arguments map to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from opsmith._definition import Attr, Op

Value: TypeAlias = Any
"""What a schema argument may be: a tensor, a list of tensors, a number, text, a dtype, a list of these, or
None."""


@dataclass(frozen=True)
class Call:
    """One call's arguments in the definition's terms."""

    inputs: tuple[torch.Tensor | Sequence[torch.Tensor] | None, ...]
    """One for each input of the definition."""
    attrs: dict[str, Value]
    """The attributes that are not at their default, by the definition's names, as the schema has them."""
    wanted: int
    """Bit i is set when output i of the definition is wanted."""


def inferred_by(op: TorchOp, gradient: TorchOp) -> dict[str, Attr]:
    """The attributes that `gradient` must be given and the inputs of `op` decide, by their schema names."""
    inferred = {attr.name for attr in op.definition.attrs if attr.inferred}
    return {name: attr for name, attr in gradient.keyword_attrs.items() if attr.name in inferred}


class TorchOp:
    """An op of a library in PyTorch.

    Its schema has the inputs first, then `tensor` attributes, then by keyword the other attributes and,
    where there are optional outputs, `wanted`; in each group those that must be given come first.
    """

    def __init__(self, definition: Op, overload: torch._ops.OpOverload) -> None:
        self.definition = definition
        self.overload = overload
        given = sorted(definition.call_attrs, key=lambda attr: attr.has_default)
        self.tensor_attrs = [attr for attr in given if attr.type == "tensor"]
        keyword = [attr for attr in given if attr.type != "tensor"]
        arguments = overload._schema.arguments
        positional = len(definition.inputs) + len(self.tensor_attrs)
        self.keyword_attrs: dict[str, Attr] = {
            argument.name: attr for argument, attr in zip(arguments[positional:], keyword, strict=False)
        }
        self.wanted = arguments[-1].name if definition.has_optional_outputs else None

    @property
    def name(self) -> str:
        """The op's CamelCase name, as messages say it."""
        return self.definition.name

    @property
    def takes_tensors(self) -> bool:
        """Whether a call may carry a tensor."""
        return bool(self.definition.inputs or self.tensor_attrs)

    @property
    def qualified_name(self) -> str:
        """`distances::pairwise_manhattan_distance`."""
        return self.overload._schema.name

    def bind(self, args: Sequence[Value], kwargs: dict[str, Value]) -> Call:
        """The arguments of a call. The dispatcher leaves out those that have their default value."""
        count = len(self.definition.inputs)
        inputs = (*args[:count], *[None] * (count - len(args)))
        attrs = {attr.name: value for attr, value in zip(self.tensor_attrs, args[count:], strict=False)}
        attrs |= {
            self.keyword_attrs[name].name: value for name, value in kwargs.items() if name != self.wanted
        }
        return Call(inputs, attrs, kwargs.get(self.wanted, -1) if self.wanted else -1)

    def flatten(self, result: Value) -> tuple[tuple[torch.Tensor, ...], tuple[int, ...]]:
        """The tensors of a result one by one, and how many each output holds."""
        outputs = self.definition.outputs
        results = (result,) if len(outputs) == 1 else tuple(result or ())
        groups = [
            value if output.is_list else (value,) for output, value in zip(outputs, results, strict=True)
        ]
        return tuple(tensor for group in groups for tensor in group), tuple(map(len, groups))

    def unflatten(self, tensors: Sequence[torch.Tensor], counts: Sequence[int]) -> Value:
        """The inverse of `flatten`."""
        groups = list(split(tensors, counts))
        results = [
            list(group) if output.is_list else group[0]
            for output, group in zip(self.definition.outputs, groups, strict=True)
        ]
        if len(results) == 1:
            return results[0]
        return tuple(results) if results else None


def device_of(op: Op, inputs: Sequence[Value]) -> torch.device:
    """Where a call with these arguments runs: where its tensors are. Those that a CUDA kernel reads in host
    memory count only when there are no others."""
    others = [value for i, value in enumerate(inputs) if i not in op.host_inputs]
    for value in (*others, *inputs):
        for tensor in value if isinstance(value, list | tuple) else [value]:
            if isinstance(tensor, torch.Tensor):
                return tensor.device
    return torch.device("cpu")


def split(values: Sequence[Value], counts: Sequence[int]) -> Iterator[Sequence[Value]]:
    """Consecutive slices of these lengths."""
    start = 0
    for count in counts:
        yield values[start : start + count]
        start += count


# PyTorch's numbers of dtypes: 2.10 hands over a list of dtypes as these.
_DTYPES = {
    0: torch.uint8,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.int64,
    5: torch.float16,
    6: torch.float32,
    7: torch.float64,
    9: torch.complex64,
    10: torch.complex128,
    11: torch.bool,
    15: torch.bfloat16,
    27: torch.uint16,
    28: torch.uint32,
    29: torch.uint64,
}


def dtype_name(dtype: torch.dtype | int) -> str:
    """`torch.float32` → `"float32"`."""
    return str(_DTYPES[dtype] if isinstance(dtype, int) else dtype).removeprefix("torch.")
