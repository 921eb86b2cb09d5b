"""JAX: a library's ops as functions that JAX traces, compiles, differentiates, batches and exports.

This module imports jax, so nothing may import it before the user has done so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from jax import export

from opsmith._definition import Loaded, Op
from opsmith._errors import AlreadyExistsError, UnimplementedError
from opsmith._forks import LOADING
from opsmith._library import library_of, wire_waiting
from opsmith.jax import _calls, _targets
from opsmith.jax._calls import PLAIN
from opsmith.jax._gradients import Differentiable
from opsmith.jax._op import JaxOp, check_dtypes

if TYPE_CHECKING:
    from types import ModuleType

    from opsmith._library import Library

__all__ = ["PLAIN", "call", "export_checks", "wire"]


@dataclass(frozen=True)
class _Wired:
    loaded: Loaded
    functions: dict[str, Callable[..., Any]]
    general: dict[str, Callable[[Sequence[Any], Sequence[Any]], Any]]
    """The same for inputs that may be lists and scalars, and attributes."""


_wired: dict[str, _Wired] = {}


def wire(loaded: Loaded) -> dict[str, Callable[..., Any]]:
    """Register the ops of a library with JAX.

    Gives, by the op's CamelCase name, functions that take inputs and attributes in the definition's order
    and a name, and give all outputs, and behind them the new values of what the op changes in place. Doing
    it twice is fine. Raises `opsmith.AlreadyExistsError` when another library of this name is there, and
    `opsmith.UnimplementedError` when the library was built without JAX.
    """
    definition = loaded.definition
    with LOADING:
        known = _wired.get(definition.name)
        if known is None:
            known = _wired[definition.name] = _wire(loaded)
        elif known.loaded.definition != definition:
            raise AlreadyExistsError(
                f"library `{definition.name}` is registered with JAX already, and differs"
            )
        return known.functions


def call(
    loaded: Loaded, op: Op, inputs: Sequence[Any], attrs: Sequence[Any] | None, name: str | None = None
) -> Any:
    """Call an op on inputs of which at least one is a JAX array; NumPy's, lists and scalars become arrays
    beside it. JAX has no use for a name."""
    wire(loaded)
    general = _wired[loaded.definition.name].general[op.name]
    return general(inputs, attrs if attrs is not None else op.default_attrs)


def export_checks(*libraries: Library | ModuleType) -> list[export.DisabledSafetyCheck]:
    """The `disabled_checks` of `jax.export.export` for programs that call these libraries' ops.

        >>> jax.export.export(jax.jit(f), disabled_checks=opsmith.jax.export_checks(distances))

    JAX guarantees nothing for foreign calls. Whoever runs the exported program must first load the library,
    in a version whose definitions are compatible.
    """
    return [
        export.DisabledSafetyCheck.custom_call(_targets.name(loaded, op))
        for loaded in (library_of(library, "export_checks")._opsmith_loaded for library in libraries)
        for op in loaded.definition.ops
    ]


def _wire(loaded: Loaded) -> _Wired:
    _targets.register(loaded)
    differentiable: dict[str, Differentiable] = {}
    wired = _Wired(loaded, {}, {})
    for op in loaded.definition.ops:
        try:
            check_dtypes(op)
        except UnimplementedError as error:
            wired.functions[op.name] = wired.general[op.name] = partial(_unavailable, str(error))
            continue
        differentiable[op.name] = Differentiable(JaxOp(loaded, op), differentiable)
        wired.functions[op.name] = _calls.function(loaded, op, differentiable[op.name])
        wired.general[op.name] = partial(_calls.general, loaded, op, differentiable[op.name])
    return wired


def _unavailable(message: str, *_: object) -> NoReturn:
    raise UnimplementedError(message)


wire_waiting(__name__)
