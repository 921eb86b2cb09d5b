"""Runs a function once a module has been imported, without importing it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def when_imported(name: str, action: Callable[[], None]) -> None:
    """Run `action` now if the module `name` is imported, else right after it has been."""
    if is_imported(name):
        action()
        return
    for finder in sys.meta_path:
        if isinstance(finder, _Finder) and finder.name == name:
            finder.actions.append(action)
            return
    sys.meta_path.insert(0, _Finder(name, [action]))


def is_imported(name: str) -> bool:
    """Whether the module `name` has been imported, to its end."""
    module = sys.modules.get(name)
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)


class _Finder(MetaPathFinder):
    """Finds the module as the other finders do, and gives it a loader that runs the actions at the end."""

    def __init__(self, name: str, actions: list[Callable[[], None]]) -> None:
        self.name = name
        self.actions = actions

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        for finder in sys.meta_path:
            find_spec = getattr(finder, "find_spec", None)
            if finder is self or find_spec is None:
                continue
            spec: ModuleSpec | None = find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(self, spec.loader)
                return spec
        return None

    def run(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        for action in self.actions:
            try:
                action()
            except Exception as error:
                # The import itself has succeeded; the first call with the module's tensors raises the error.
                warnings.warn(f"opsmith: {error}", RuntimeWarning, stacklevel=2)


class _Loader(Loader):
    """The module's own loader, and the actions after it."""

    def __init__(self, finder: _Finder, loader: Loader) -> None:
        self._finder = finder
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._finder.run()

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)
