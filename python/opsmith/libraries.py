"""The libraries that this process has loaded, by name: `opsmith.libraries.distances`.

It is where the functions of a library say that they are, so `pickle` finds them here.
"""

from opsmith import _library
from opsmith._library import Library as _Library


def __getattr__(name: str) -> _Library:
    for library in _library.loaded():
        if library.__name__ == name and not library._opsmith_loaded.embedded:
            return library
    raise AttributeError(f"no library `{name}` has been loaded", name=name)


def __dir__() -> list[str]:
    return sorted(library.__name__ for library in _library.loaded() if not library._opsmith_loaded.embedded)
