"""PyTorch: a library's ops as `torch.ops.<library>.<op>`, with gradients, shapes and batching wired from
the definition.

This module imports torch, so nothing may import it before the user has done so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import torch

from opsmith._definition import Loaded, Op
from opsmith._errors import AlreadyExistsError, UnimplementedError
from opsmith._forks import LOADING
from opsmith._forward import Chain
from opsmith._library import wire_waiting
from opsmith.torch import _autocast, _autograd, _caches, _calls, _fake, _sharding, _vmap
from opsmith.torch._eager import PLAIN
from opsmith.torch._forward import Derivative
from opsmith.torch._local_map import local_map
from opsmith.torch._op import TorchOp

__all__ = ["PLAIN", "call", "local_map", "wire"]


@dataclass(frozen=True)
class _Wired:
    loaded: Loaded
    functions: dict[str, Callable[..., Any]]
    ops: dict[str, TorchOp]
    """Those that PyTorch has, by the op's CamelCase name."""
    registrations: torch.library.Library
    """Takes its registrations back when it is dropped."""


_wired: dict[str, _Wired] = {}


def wire(loaded: Loaded) -> dict[str, Callable[..., Any]]:
    """Register the ops of a library with PyTorch, and what the definition says about them.

    Gives, by the op's CamelCase name, functions that take inputs and attributes in the definition's order
    and give all outputs, but for saved ones at the end. Doing it twice is fine. Raises
    `opsmith.AlreadyExistsError` when another library of this name is there, and
    `opsmith.UnimplementedError` when the library was built without PyTorch.
    """
    return _wired_for(loaded).functions


def torch_op(loaded: Loaded, op: Op) -> TorchOp | None:
    """An op as PyTorch has it; `None` where it has not. Raises what `wire` does."""
    return _wired_for(loaded).ops.get(op.name)


def _wired_for(loaded: Loaded) -> _Wired:
    definition = loaded.definition
    with LOADING:
        known = _wired.get(definition.name)
        if known is None:
            known = _wired[definition.name] = _wire(loaded)
        elif known.loaded.definition != definition:
            raise AlreadyExistsError(
                f"library `{definition.name}` is registered with PyTorch already, and differs"
            )
        return known


def call(
    loaded: Loaded, op: Op, inputs: Sequence[Any], attrs: Sequence[Any] | None, name: str | None = None
) -> Any:
    """Call an op on inputs of which at least one is a PyTorch tensor; arrays, lists and scalars become
    tensors beside it. PyTorch has no use for a name."""
    return wire(loaded)[op.name](
        *_calls.tensors(op, inputs), *(attrs if attrs is not None else op.default_attrs)
    )


def serve_more(serve: Callable[[Iterable[type]], None]) -> None:
    """Have DTensors served as `PLAIN` tensors are, once DTensor is there."""
    _sharding.when_there(lambda dtensor: serve([dtensor]))


def _wire(loaded: Loaded) -> _Wired:
    definition, native = loaded.definition, loaded.native
    native.register_framework("torch")
    native.register_framework("torch.gradients")
    ops = {
        op.name: TorchOp(op, overload)
        for op in definition.ops
        if (overload := _overload(definition.name, op))
    }
    known = {name: op.definition for name, op in ops.items()}
    library = torch.library.Library(definition.name, "FRAGMENT")  # type: ignore[no-untyped-call]
    functions = {}
    for op in definition.ops:
        torch_op = ops.get(op.name)
        gradient = ops.get(op.gradient.op) if op.gradient is not None else None
        if torch_op is None:
            functions[op.name] = _unavailable(op)
            continue
        fake = _fake.implementation(torch_op, partial(native.infer_shapes, op.index), _caches.tag(loaded))
        derivative = Derivative(torch_op, gradient, Chain.of(op, known), ops)
        _register(library, derivative, fake, _vmap.rule(loaded, torch_op))
        functions[op.name] = _calls.function(loaded, torch_op, gradient)
    _sharding.watch(loaded, list(ops.values()))
    return _Wired(loaded, functions, ops, library)


def _overload(library: str, op: Op) -> torch._ops.OpOverload | None:
    for name in (op.snake_name, f"{op.snake_name}_"):
        packet = getattr(getattr(torch.ops, library), name, None)
        if packet is not None:
            overload: torch._ops.OpOverload = packet.default
            return overload
    return None


def _register(library: torch.library.Library, derivative: Derivative, fake: Any, batched: Any) -> None:
    op = derivative.op
    torch.library.register_fake(op.qualified_name, fake, lib=library)
    if op.takes_tensors:
        library.impl(op.overload, _autograd.kernel(derivative), "Autograd", with_keyset=True)  # type: ignore[no-untyped-call]
        torch.library.register_vmap(op.qualified_name, batched, lib=library)
    if op.definition.autocast is not None:
        for device, key in _autocast.KEYS.items():
            library.impl(op.overload, _autocast.kernel(op, device), key)  # type: ignore[no-untyped-call]


def _unavailable(op: Op) -> Callable[..., NoReturn]:
    def unavailable(*_: object) -> NoReturn:
        raise UnimplementedError.of(
            op.name, None, "PyTorch does not have this op, for it lacks a dtype or a type of attribute of it"
        )

    return unavailable


wire_waiting(__name__)
