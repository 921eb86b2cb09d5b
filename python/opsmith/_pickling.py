"""What is pickled for a library and its functions, and how it is found again.

A library is pickled as its file's path, its name and version, and a digest of its definitions. A function is
pickled by its module and its qualified name, for `pickle` looks at nothing else of one; that name brings the
library along.
"""

from __future__ import annotations

import filecmp
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from opsmith import _library
from opsmith._errors import Error, FailedPreconditionError, NotFoundError
from opsmith._native import check_own

if TYPE_CHECKING:
    from opsmith._library import Library

_Pickled = tuple[str, str, str, str, bool]
"""Path, name, version, digest, and whether it was built just in time."""

_IN_A_CACHE = (
    "it was built just in time, and is in the cache of the machine that built it, as long as that is kept\n"
    "  → build it where it is unpickled, and pickle what calls its functions; or make a wheel of it"
)


class QualifiedName(str):
    """`library.function`. Whoever unpickles it loads the library first."""

    __slots__ = ("_library",)

    _library: Library

    @staticmethod
    def of(library: Library, function: str) -> QualifiedName:
        """The name of a function of a library."""
        name = QualifiedName(f"{library.__name__}.{function}")
        name._library = library
        return name

    def __reduce__(self) -> tuple[Callable[[Library, str], str], tuple[Library, str]]:
        return _plain, (self._library, str(self))


_MISSING = "\n  → put the file back there, or install the ops as a package (docs/publishing.md)"


def _plain(_: Library, name: str) -> str:
    return name


def pickled(library: Library) -> _Pickled:
    """What `restored` takes."""
    return (
        library.__file__,
        library.__name__,
        library.__version__,
        _digest(library),
        library._opsmith_is_jit,
    )


def entry(path: str) -> Path:
    """The file beside a library that was built just in time."""
    return Path(path).with_name("entry.json")


def restored(path: str, name: str, version: str, digest: str, built: bool) -> Library:
    """The library that was pickled, loaded from the same path.

    Raises what `opsmith.load` raises, and `opsmith.FailedPreconditionError` where what is there is of another
    version, or defines or holds something else.
    """
    what = f"cannot unpickle what is of the library `{name}` {version} from {path}"
    here = f"this process has {_described(library)}" if (library := _named(name)) else ""
    try:
        if built:
            check_own(path)
            # Before it is loaded: what is in use stays in the cache.
            import_module("opsmith.jit._room").hold(entry(path))
        # Its path tells what it was built from: where it was built again, it is the same.
        known = _library.loaded_from(path) if built else None
        library = known or _library.load(path)
    except Error as error:
        why = "; ".join(filter(None, (str(error), here, _IN_A_CACHE if built else "")))
        remedy = _MISSING if isinstance(error, NotFoundError) and not built else ""
        told = type(error)(f"{what}: {why}{remedy}")
        told.code = error.code
        raise told from error
    if (library.__name__, library.__version__) != (name, version):
        raise FailedPreconditionError(f"{what}: found {_described(library)}")
    if _digest(library) != digest:
        raise FailedPreconditionError(f"{what}: found {_described(library)}, whose definitions differ")
    # The engine takes libraries of the same name and definitions for one, whatever their kernels do.
    if library.__file__ != path and not filecmp.cmp(library.__file__, Path(path).resolve(), shallow=False):
        raise FailedPreconditionError(f"{what}: {here}, and the files differ")
    return library


def _named(name: str) -> Library | None:
    return next((library for library in _library.loaded() if library.__name__ == name), None)


def _described(library: Library) -> str:
    return f"`{library.__name__}` {library.__version__} from {library.__file__}"


@cache
def _digest(library: Library) -> str:
    """A digest of the definitions."""
    return blake2b(library._opsmith_loaded.native.describe().encode(), digest_size=16).hexdigest()
