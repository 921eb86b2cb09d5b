"""Type stubs of libraries."""

from __future__ import annotations

import os
from types import ModuleType

from opsmith import _wrappers
from opsmith._definition import Op
from opsmith._docs import docstring
from opsmith._library import Library, definition_of, library_meant, load

_HEAD = '''\
"""{overview}
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeVar, overload

from opsmith.types import ArrayLike, DTypeLike, ShapeLike, SupportsDLPack

Array = TypeVar("Array", bound=SupportsDLPack)
'''


def stubs(library: Library | ModuleType | str | os.PathLike[str]) -> str:
    """The type stub (`.pyi`) of a library, as text: its functions with types and docstrings.

        >>> pathlib.Path("distances.pyi").write_text(opsmith.stubs("libdistances.so"))

    The argument is a loaded library, the module of a wheel, or the path of a library.
    """
    loaded = library_meant(library)
    library = load(library) if loaded is None else loaded  # type: ignore[arg-type]
    return stub_of(library)


def stub_of(library: Library, head: str = "") -> str:
    """The stub of a module of the library's functions, whose docstring begins with `head`."""
    overview = _quoted(head + (library.__doc__ or ""))
    return "\n".join([_HEAD.format(overview=overview), *map(_op, definition_of(library).ops)])


def _quoted(text: str) -> str:
    """As a docstring has it."""
    return text.strip().replace("\\", "\\\\").replace('"""', "'''")


def _op(op: Op) -> str:
    """Arrays of one kind give arrays of that kind; scalars and lists may stand among them."""
    if not op.inputs:
        return _function(op, "Any", "Any").removesuffix("...") + _body(op)
    documented = _function(op, "Array", "Array").removesuffix("...") + _body(op)
    return f"@overload\n{documented}\n\n@overload\n{_function(op, 'ArrayLike', 'Any')}\n\n"


def _function(op: Op, takes: str, gives: str) -> str:
    parameters = ", ".join(_wrappers.parameters(op, takes))
    name = _wrappers.function_name(op)
    return f"def {name}({parameters}) -> {_wrappers.return_annotation(op, gives)}: ..."


def _body(op: Op) -> str:
    text = _quoted(docstring(op))
    lines = "\n".join(f"    {line}".rstrip() for line in text.splitlines()).strip()
    return f'\n    """{lines}\n    """\n    ...\n'
