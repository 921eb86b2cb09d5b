"""What `tests/python/<framework>/test_table.py` needs to run the table: calls on a framework's arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import opsmith
from opsmith._definition import Op
from opsmith._library import definition_of
from table import Mistake, Row


def call(
    library: opsmith.Library, row: Row | Mistake, to_host: Callable[[np.ndarray], Any], adapter: Any = None
) -> list[Any]:
    """Call the row's op on the caller's arrays; gives the outputs, those of lists one after the other.

    An op without inputs answers in NumPy arrays, for nothing says which framework is meant; `adapter`, the
    framework's module in the package, calls it in the framework.
    """

    def convert(value: Any) -> Any:
        if isinstance(value, list):
            return [convert(element) for element in value]
        return None if value is None else to_host(value)

    op = definition(library, row.op)
    if op.inputs or adapter is None:
        function: Callable[..., Any] = getattr(library, op.snake_name)
        return flat(function(*map(convert, row.inputs), **row.attrs))
    attrs = [row.attrs.get(attr.name, attr.default) for attr in op.call_attrs]
    return flat(adapter.wire(library._opsmith_loaded)[op.name](*attrs))


def definition(library: opsmith.Library, op: str) -> Op:
    """What the library says about an op."""
    return next(known for known in definition_of(library).ops if known.name == op)


def check_message(library: opsmith.Library, mistake: Mistake, error: BaseException) -> None:
    """A message names the op, as the definition or as the caller does, and says what it must."""
    message = str(error)
    assert mistake.op in message or definition(library, mistake.op).snake_name in message
    missing = [part for part in mistake.said if part not in message]
    assert not missing, f"{missing} not in {message!r}"


def flat(outputs: Any) -> list[Any]:
    """Outputs in a row."""
    if isinstance(outputs, list | tuple):
        return [leaf for output in outputs for leaf in flat(output)]
    return [outputs]
