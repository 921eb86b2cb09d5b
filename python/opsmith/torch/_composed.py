"""Gradients of ops that users have registered as functions of tensors, called in backward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from opsmith import _attributes, _registered
from opsmith._definition import Arg, Attr, Op
from opsmith.torch._op import TorchOp, Value, dtype_name


@dataclass(frozen=True)
class Composed:
    """What backward needs beside the tensors of a call."""

    function: _registered.Function
    flows: Sequence[bool]
    """For each tensor of the outputs, whether a gradient flows through it."""
    wanted: int
    """Bit i is set when output i of the definition is wanted."""
    keywords: dict[str, Value]
    """The keyword arguments of the call."""


def keep_uncached(op: TorchOp) -> None:
    """Keep what is being compiled out of PyTorch's cache of differentiated programs if the op's gradient is
    registered: the key of such a program has the op in it, and not the function."""
    if _registered.find(op.overload.namespace, op.definition) is not None:
        # Of the thread that compiles.
        torch._functorch.config.enable_autograd_cache = False


def gradients(
    op: TorchOp,
    composed: Composed,
    arguments: Sequence[Sequence[torch.Tensor | None]],
    outputs: Sequence[Sequence[torch.Tensor]],
    grads: Sequence[Sequence[torch.Tensor | None]],
) -> list[torch.Tensor | None]:
    """The gradient of each tensor of the positional arguments. These, the outputs and their gradients are
    given group by group."""
    definition = op.definition
    missing = [()] * (len(definition.inputs) - len(arguments))
    inputs = [*arguments[: len(definition.inputs)], *missing]
    wanted = [not arg.optional or composed.wanted >> i & 1 for i, arg in enumerate(definition.outputs)]
    flows = iter(composed.flows)
    arriving = [
        [_arriving(grad, like, next(flows)) for grad, like in zip(*pair, strict=True)]
        for pair in zip(grads, outputs, strict=True)
    ]
    found = _registered.evaluate(
        definition,
        composed.function,
        [_value(arg, group) for arg, group in zip(definition.inputs, inputs, strict=True)],
        [
            _value(arg, group) if is_wanted else None
            for arg, group, is_wanted in zip(definition.outputs, outputs, wanted, strict=True)
        ],
        _attributes_of(op, composed.keywords, arguments[len(definition.inputs) :]),
        [_value(arg, group) for arg, group in zip(definition.outputs, arriving, strict=True)],
        _mismatch,
    )
    flat = [x for group, given in zip(found, inputs, strict=True) for x in group[: len(given)]]
    return flat + [None] * sum(map(len, arguments[len(definition.inputs) :]))


def _value(arg: Arg, group: Sequence[torch.Tensor | None]) -> Value:
    return list(group) if arg.is_list else (group[0] if group else None)


def _arriving(grad: torch.Tensor | None, like: torch.Tensor, flows: bool) -> torch.Tensor | None:
    if not flows:
        return None
    return torch.zeros_like(like) if grad is None else grad


def _mismatch(tensor: torch.Tensor, gradient: object) -> str | None:
    """What is wrong with the gradient of a tensor."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return f"must be None, for the input is {dtype_name(tensor.dtype)}"
    if not isinstance(gradient, torch.Tensor):
        return f"must be a tensor or None, got {type(gradient).__name__}"
    message = f"must be {_description(tensor)} as the input is, got {_description(gradient)}"
    if (gradient.dtype, gradient.device, gradient.dim()) != (tensor.dtype, tensor.device, tensor.dim()):
        return message
    for given, expected in zip(gradient.shape, tensor.shape, strict=True):
        if isinstance(given, int) and isinstance(expected, int):
            if given != expected:
                return message
        else:
            # What only the data decide is checked when the compiled program runs.
            torch._check(given == expected, lambda: f"the registered gradient {message}")
    return None


def _description(tensor: torch.Tensor) -> str:
    return f"{dtype_name(tensor.dtype)} of shape {list(tensor.shape)} on {tensor.device}"


def _attributes_of(
    op: TorchOp, keywords: dict[str, Value], tensors: Sequence[Sequence[torch.Tensor | None]]
) -> dict[str, Value]:
    """The value of each attribute that callers may pass, as a person would write it."""
    given = {attr.name: keywords.get(name) for name, attr in op.keyword_attrs.items()}
    for attr, group in zip(op.tensor_attrs, tensors, strict=False):
        given[attr.name] = list(group) if attr.is_list else group[0]
    return {
        attr.name: _attribute(op.definition, attr, given.get(attr.name)) for attr in op.definition.call_attrs
    }


def _attribute(op: Op, attr: Attr, value: Value) -> Value:
    # The dispatcher leaves defaults out, and what a schema cannot say is None.
    value = attr.default if value is None else value
    return _attributes.convert(op, attr, value, _CONVERSIONS)


def _dtype(value: Any) -> torch.dtype:
    name = value if isinstance(value, str) else dtype_name(value)
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def _tensor(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    values = _attributes.tensor_values(value)
    return torch.tensor(values, dtype=_dtype(value["dtype"])).reshape(value["shape"])


_CONVERSIONS = {**_attributes.PLAIN, "type": _dtype, "shape": _attributes.dims, "tensor": _tensor}
