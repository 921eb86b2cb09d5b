"""Loading a library: its ops as Python functions."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn

from opsmith import _dispatch, _docs, _html, _native, _pickling, _wrappers
from opsmith._definition import Definition, Loaded, Op
from opsmith._errors import InvalidArgumentError, UnimplementedError, refused
from opsmith._forks import LOADING
from opsmith._hooks import is_imported, when_imported
from opsmith._meant import hint
from opsmith.types import ArrayLike, DTypeLike, ShapeLike

_TYPES = {
    "Sequence": Sequence,
    "ArrayLike": ArrayLike,
    "DTypeLike": DTypeLike,
    "ShapeLike": ShapeLike,
    "Array": Any,
}

_STANDARD = ""
"""What the library of the standard operators is known by, beside the paths of the others."""

_loaded: dict[str, Library] = {}


class Library:
    """A loaded library. Its functions are attributes, one for each op.

        >>> distances = opsmith.load("libdistances.so")
        >>> dir(distances)                                 # the functions
        >>> help(distances.pairwise_manhattan_distance)    # shapes, dtypes, attributes, errors

    `__name__`, `__version__`, `__file__` and `__doc__` are the library's. Each function takes NumPy arrays,
    lists and numbers, or the tensors of PyTorch, TensorFlow or JAX, and returns arrays of the same
    framework.
    """

    def __init__(self, native: Any, embedded: bool = False) -> None:
        definition = Definition.parse(native.describe())
        loaded = Loaded(definition, native, embedded)
        self.__name__ = definition.name
        self.__version__ = definition.version
        self.__file__ = os.fspath(native.path)
        self.__doc__ = _overview(definition)
        self._opsmith_loaded = loaded
        # Later the cache may have been emptied.
        self._opsmith_is_jit = not embedded and os.path.exists(_pickling.entry(self.__file__))
        functions = {}
        for op in definition.ops:
            names = _names(loaded, op)
            name = _wrappers.function_name(op)
            function = functions[name] = _wrappers.build(op, definition.name, names)
            # Where `pickle` finds it.
            function.__module__ = "opsmith" if embedded else "opsmith.libraries"
            function.__qualname__ = f"ops.{name}" if embedded else _pickling.QualifiedName.of(self, name)
            # Notebooks ask for it by this name.
            function._repr_html_ = partial(_html.op, f"{definition.name}.{name}", op)  # type: ignore[attr-defined]
        self._opsmith_functions = functions
        self.__dict__.update(functions)

    def __repr__(self) -> str:
        ops = ", ".join(self._opsmith_functions)
        return f"<opsmith library {self.__name__!r} {self.__version__} from {self.__file__!r}: {ops}>"

    def _repr_html_(self) -> str:
        ops = zip(self._opsmith_functions, definition_of(self).ops, strict=True)
        return _html.library(f"{self.__name__} {self.__version__}", ops)

    def __dir__(self) -> list[str]:
        return sorted([*self._opsmith_functions, "__doc__", "__file__", "__name__", "__version__"])

    def __getattr__(self, name: str) -> NoReturn:
        # Only reached for what is not there.
        functions = self.__dict__.get("_opsmith_functions", {})
        told = hint(name, functions, "it has")
        raise AttributeError(
            f"library `{self.__dict__.get('__name__')}` has no op `{name}`; {told}", name=name, obj=self
        )

    def __reduce__(self) -> tuple[Callable[..., Library], tuple[Any, ...]]:
        return (
            (standard, ()) if self._opsmith_loaded.embedded else (_pickling.restored, _pickling.pickled(self))
        )


def load(path: str | os.PathLike[str]) -> Library:
    """Load a library of ops, and return it.

        >>> distances = opsmith.load("target/release/libdistances.so")

    - `path`: the shared object that was built from a crate of ops. The file's code runs with all rights of
      this process, so load only what you trust.

    Loading a file again returns the same object. No framework is imported. Those that are imported learn
    about the ops now, others when they are imported.

    Raises

    - `opsmith.NotFoundError` if there is no such file;
    - `opsmith.InvalidArgumentError` if the file is not a library, or has an invalid definition;
    - `opsmith.FailedPreconditionError` if it has another ABI version, or has changed since this process
      loaded it: start a new process;
    - `opsmith.AlreadyExistsError` if another file defines a library of this name differently.
    """
    with refused(f"{path!r} cannot be the path of a library"):
        file = os.path.realpath(os.fsdecode(path))
    with LOADING:
        if file not in _loaded:
            _open_first(file)
        # Always asked, for it knows whether the file is still the one that was loaded.
        native = _native.open(file)
        library = _loaded.get(native.path)
        if library is None:
            library = _loaded[native.path] = Library(native)
            # Each framework learns about the ops now, or when it is imported.
            for framework, adapter_name in _dispatch.ADAPTERS.items():
                when_imported(_dispatch.module_of(framework), partial(_wire, library, adapter_name))
    return library


def standard() -> Library:
    """The standard operators, `opsmith.ops`. They are part of the package, need no file, and serve NumPy
    arrays and graphs.
    """
    with LOADING:
        library = _loaded.get(_STANDARD)
        if library is None:
            library = _loaded[_STANDARD] = Library(_native.standard(), embedded=True)
            for framework in _dispatch.WITHOUT_FILES:
                adapter_name = _dispatch.ADAPTERS[framework]
                when_imported(_dispatch.module_of(framework), partial(_wire, library, adapter_name))
    return library


def loaded() -> list[Library]:
    """The libraries that have been loaded."""
    return list(_loaded.values())


def loaded_from(path: str) -> Library | None:
    """The library that was loaded from there, if one was, whether or not the file is there still."""
    return _loaded.get(os.path.realpath(path))


def definition_of(library: Library) -> Definition:
    """The definition of a loaded library."""
    return library._opsmith_loaded.definition


def library_meant(given: object) -> Library | None:
    """The library that something is, or has as the module of a wheel; `None` for anything else."""
    library = vars(given).get("_library") if isinstance(given, ModuleType) else given
    return library if isinstance(library, Library) else None


def library_of(given: object, asked: str) -> Library:
    """The same for the function `asked`.

    Raises `opsmith.InvalidArgumentError` for what is no library and has none.
    """
    library = library_meant(given)
    if library is None:
        raise InvalidArgumentError(
            f"{asked}: expected a library of opsmith.load, or the module of a wheel, got {given!r}"
        )
    return library


def op_of(function: object) -> tuple[Library, Op] | None:
    """The library and the op whose function this is; `None` for any other object."""
    name = getattr(function, "__name__", None)
    for library in loaded():
        for op in definition_of(library).ops if name in library._opsmith_functions else ():
            if library._opsmith_functions[_wrappers.function_name(op)] is function:
                return library, op
    return None


def op_meant(asked: str, given: object, name: str | None) -> tuple[Library, Op]:
    """The library and the op that are meant by a function of a library, or by a library and a name, for the
    function `asked`.

    Raises `opsmith.NotFoundError` where the library has no such op, and `opsmith.InvalidArgumentError` for
    anything else.
    """
    library = library_meant(given)
    if library is not None and isinstance(name, str):
        return library, definition_of(library).ops[library._opsmith_loaded.native.op(name).index]
    found = op_of(given) if name is None else None
    if found is None:
        named = "" if name is None else f" and {name!r}"
        raise InvalidArgumentError(
            f"`{asked}` takes a function of a library from `opsmith.load`, or a library (or the module of a "
            f"wheel) and the name of an op, got {given!r}{named}"
        )
    return found


def _open_first(file: str) -> None:
    """Let those frameworks open the file that want to be the first."""
    for framework, adapter_name in _dispatch.ADAPTERS.items():
        if is_imported(_dispatch.module_of(framework)):
            open_first = getattr(import_module(adapter_name), "open_first", None)
            if open_first is not None:
                _native.check(file)
                open_first(file)


_waiting: dict[str, list[Library]] = {}
"""The libraries that wait for an adapter, by its name."""


def _wire(library: Library, adapter_name: str) -> None:
    adapter = import_module(adapter_name)
    if is_imported(adapter_name):
        _wire_by(adapter, library)
    else:
        # It has imported the framework, by which this was called, and is not through with its own import.
        _waiting.setdefault(adapter_name, []).append(library)


def wire_waiting(adapter_name: str) -> None:
    """What the adapter of a framework calls at its end."""
    for library in _waiting.pop(adapter_name, []):
        _wire_by(sys.modules[adapter_name], library)


def _wire_by(adapter: ModuleType, library: Library) -> None:
    try:
        calls = adapter.wire(library._opsmith_loaded)
    except UnimplementedError:
        # Built without this framework. NumPy arrays work all the same, and a call with tensors raises this
        # error.
        return

    def serve(kinds: Iterable[type]) -> None:
        # A function itself tells the framework's own tensors from the rest: it is quicker than asking the
        # library.
        for op in definition_of(library).ops:
            function = library._opsmith_functions[_wrappers.function_name(op)]
            function.__globals__["_CALLS"].update(dict.fromkeys(kinds, calls[op.name]))

    serve(adapter.PLAIN)
    serve_more = getattr(adapter, "serve_more", None)
    if serve_more is not None:
        serve_more(serve)
    mark = getattr(adapter, "mark", None)
    if mark is not None:
        for function in library._opsmith_functions.values():
            mark(function)


def _names(loaded: Loaded, op: Op) -> dict[str, Any]:
    native_op = loaded.native.op(op.index)
    native_op.set_fallback(partial(_dispatch.call, loaded, op))
    named = {"_named": partial(_dispatch.call_named, loaded, op), "_text": partial(_dispatch.text, op)}
    return {**_TYPES, "_native": native_op, "_CALLS": {}, **named}


def _overview(definition: Definition) -> str:
    lines = [f"The operators of `{definition.name}` {definition.version}.", ""]
    gradients = {op.gradient.op for op in definition.ops if op.gradient is not None}
    for op in definition.ops:
        if op.name not in gradients:
            name, summary = _wrappers.function_name(op), _docs.summary(op)
            lines.append(f"- {name}: {summary}" if summary else f"- {name}")
    if gradients:
        lines += ["", "Others compute their gradients; their names end in `_grad`, by convention."]
    return "\n".join(lines) + "\n"
