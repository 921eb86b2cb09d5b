"""The handlers of a library, registered with XLA."""

from __future__ import annotations

import ctypes

import jax

from opsmith._definition import Loaded, Op
from opsmith._errors import AlreadyExistsError, UnimplementedError

_registered: dict[str, int] = {}
"""The address behind each target. XLA must not be given another function for a name that it knows: that is
an error once its backend is there, and before that the backend does not start any more."""


def name(loaded: Loaded, op: Op) -> str:
    """The target of an op."""
    return f"{loaded.definition.name}.{op.snake_name}"


def register(loaded: Loaded) -> None:
    """Register every op of a library.

    Raises `opsmith.UnimplementedError` for a library that was built without JAX, and
    `opsmith.AlreadyExistsError` where another library has one of the names.
    """
    library = ctypes.CDLL(loaded.native.path)
    try:
        handler_of = library.opsmith_jax_handler
    except AttributeError:
        raise UnimplementedError(
            f"library `{loaded.definition.name}` was built without the host `jax`"
        ) from None
    handler_of.argtypes, handler_of.restype = [ctypes.c_size_t], ctypes.c_void_p
    handlers = {name(loaded, op): handler_of(op.index) for op in loaded.definition.ops}
    for target, address in handlers.items():
        if _registered.get(target, address) != address:
            raise AlreadyExistsError(f"JAX has a target `{target}` already, from a library loaded before")
    for target, address in handlers.items():
        if target not in _registered:
            jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(address), platform="cpu")
            _registered[target] = address
