"""Autocast: the dtypes that an op's inputs take under `torch.autocast`, where its definition says so."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import _C

from opsmith._definition import Arg, Op
from opsmith.torch._op import TorchOp, Value, dtype_name

KEYS = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}
"""For each kind of device the key that is dispatched before autograd, so that casts are differentiated."""

_ALL_KEYS = _C.DispatchKeySet(_C.DispatchKey.AutocastCPU) | _C.DispatchKeySet(_C.DispatchKey.AutocastCUDA)

_LOWER = {torch.float16, torch.bfloat16}
_TOUCHED = {*_LOWER, torch.float32}
"""What autocast touches: float64 stays as it is, as for PyTorch's own ops."""


def kernel(op: TorchOp, device: str) -> Callable[..., Value]:
    """The function for the autocast key of a kind of device."""
    definition = op.definition

    def autocast(*args: Value, **kwargs: Value) -> Value:
        inputs = list(zip(definition.inputs, args, strict=False))
        dtype = _dtype(definition, device, inputs)
        cast = [_cast(definition, arg, value, device, dtype) for arg, value in inputs]
        with _C._ExcludeDispatchKeyGuard(_ALL_KEYS):
            return op.overload(*cast, *args[len(cast) :], **kwargs)

    return autocast


def _dtype(op: Op, device: str, inputs: Sequence[tuple[Arg, Value]]) -> torch.dtype | None:
    """What the inputs are cast to, `None` where they stay as they are."""
    match op.autocast:
        case "float32":
            return torch.float32
        case "lower":
            dtype = torch.get_autocast_dtype(device)
            return dtype if dtype in _LOWER else None
        case "widest":
            found = [x.dtype for arg, value in inputs for x in _touched(arg, value, device)]
            return functools.reduce(torch.promote_types, found) if found else None
        case other:
            raise NotImplementedError(f"{op.name}: autocast `{other}` is of a newer release of Opsmith")


def _touched(arg: Arg, value: Value, device: str) -> Iterator[torch.Tensor]:
    """The tensors of an input that may be cast: on this kind of device, and not of a dtype that is fixed."""
    if arg.dtype is None:
        for x in value if isinstance(value, list | tuple) else [value]:
            if isinstance(x, torch.Tensor) and x.device.type == device and x.dtype in _TOUCHED:
                yield x


def _cast(op: Op, arg: Arg, value: Value, device: str, dtype: torch.dtype | None) -> Value:
    """The input with what may be cast, cast; as it is where the op does not have the dtype."""
    name = arg.type_attr or arg.type_list_attr
    allowed = op.attr(name).allowed if name is not None else None
    if dtype is None or (allowed is not None and dtype_name(dtype) not in allowed):
        return value
    touched = {id(x) for x in _touched(arg, value, device)}
    given = value if isinstance(value, list | tuple) else [value]
    cast = [x.to(dtype) if id(x) in touched else x for x in given]
    return cast if isinstance(value, list | tuple) else cast[0]
