"""The handlers of a library, registered with XLA."""

from __future__ import annotations

import ctypes
from typing import Any

import jax

from opsmith._definition import Loaded, Op
from opsmith._errors import AlreadyExistsError, FailedPreconditionError, UnimplementedError

_registered: dict[str, int] = {}
"""The address behind each target. XLA must not be given another function for a name that it knows: that is
an error once its backend is there, and before that the backend does not start any more."""


def name(loaded: Loaded, op: Op) -> str:
    """The target of an op."""
    return f"{loaded.definition.name}.{op.snake_name}"


def register(loaded: Loaded) -> None:
    """Register every op of a library.

    Raises `opsmith.UnimplementedError` for a library that was built without JAX,
    `opsmith.FailedPreconditionError` where it cannot be opened again, and
    `opsmith.AlreadyExistsError` where another library has one of the names.
    """
    try:
        library = ctypes.CDLL(loaded.native.path)
    except OSError as error:
        raise FailedPreconditionError(f"{loaded.native.path} cannot be opened for JAX: {error}") from error
    try:
        handler_of = library.opsmith_jax_handler
    except AttributeError:
        raise UnimplementedError(
            f"library `{loaded.definition.name}` was built without the framework `jax`"
        ) from None
    handler_of.argtypes, handler_of.restype = [ctypes.c_size_t], ctypes.c_void_p
    handlers = {name(loaded, op): handler_of(op.index) for op in loaded.definition.ops}
    # Libraries of before have none.
    cuda_handler_of = getattr(library, "opsmith_jax_cuda_handler", None)
    if cuda_handler_of is not None:
        cuda_handler_of.argtypes, cuda_handler_of.restype = [ctypes.c_size_t], ctypes.c_void_p
    for target, address in handlers.items():
        if _registered.get(target, address) != address:
            raise AlreadyExistsError(f"JAX has a target `{target}` already, from a library loaded before")
    for op in loaded.definition.ops:
        target = name(loaded, op)
        if target in _registered:
            continue
        jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(handlers[target]), platform="cpu")
        if cuda_handler_of is not None:
            jax.ffi.register_ffi_target(target, on_cuda(op, cuda_handler_of(op.index)), platform="CUDA")
        _registered[target] = handlers[target]


def on_cuda(op: Op, address: int) -> Any:
    """What is registered for cards. Of an op without a CUDA kernel the handler is asked when a program is
    compiled too, and says then that there is none."""
    handler = jax.ffi.pycapsule(address)
    return handler if op.cuda else {"instantiate": handler, "execute": handler}
