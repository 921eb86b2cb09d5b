"""What users call."""

from __future__ import annotations

import keyword
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opsmith import _library
from opsmith._errors import AlreadyExistsError, Error, InvalidArgumentError, refused
from opsmith._forks import Turn
from opsmith._library import Library
from opsmith.jit import _build, _dependencies
from opsmith.jit._build import Request, Source
from opsmith.jit._cache import cache_folder
from opsmith.jit._errors import ChangedError, explained
from opsmith.jit._progress import Progress

Dependencies = Mapping[str, str | Mapping[str, Any]]

# Names that mean something else to a framework.
_TAKEN = frozenset({"aten", "jax", "numpy", "opsmith", "prim", "prims", "tensorflow", "tf", "torch"})

_turn = Turn()
# What was built in this process, by the name asked for and what it was built from; and the names it got.
_built: dict[tuple[str, str], Library] = {}
# The last one by the request's key, for when it is not known any more what else it was built from.
_by_key: dict[tuple[str, str], Library] = {}
_names: set[str] = set()

# As often is compiled what somebody saves while it is compiled.
_TRIES = 5


def load(
    name: str,
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    verbose: bool = False,
    *,
    dependencies: Dependencies | None = None,
    flags: Sequence[str] = (),
) -> Library:
    """Build a library from source files, unless this has been done before, and load it.

        >>> activations = jit.load("activations", "activations.rs")
        >>> distances = jit.load("distances", ["distances.rs", "distances.cu"])

    - `name`: the library's name, in snake_case.
    - `sources`: one path or several.

      - A Rust file has functions under `#[op]`, `#[pointwise]`, `#[reduce]`, `#[pairwise]` or `#[body]`, and
        whatever else these need. The prelude is in scope. Each file is a module of its name, so other files
        refer to it as `crate::other::function`.
      - A file that ends in `.cu` is CUDA C++. An op names it by its path from the op's own file,
        `#[op(cuda = "distances.cu")]`. The files are also in `crate::CUDA_SOURCES`.
      - The root of a crate of ops, `src/lib.rs` with its `opsmith::library!`, must be the only source. Its
        modules are found from it, and it lists its ops itself.

    - `verbose`: whether to print each step, and the compiler's warnings, to standard error.
    - `dependencies`: crates by name, with versions, `{"rand": "0.9"}`, or tables as in `Cargo.toml`,
      `{"rand": {"version": "0.9", "features": ["small_rng"]}}`.
    - `flags`: further arguments for the compiler.

    Returns the library, as `opsmith.load` does. Its namespace in the frameworks is `name`. A later library
    of the same name and other content gets `name_` and a digest, because a framework cannot forget an op.
    The earlier library goes on working.

    Raises

    - `opsmith.jit.BuildError` with the compiler's messages, which have the files' names and lines, or with
      what is missing on the machine and how to get it;
    - `opsmith.InvalidArgumentError` for an invalid name or dependency;
    - `opsmith.NotFoundError` if a file does not exist;
    - `opsmith.AlreadyExistsError` if another library has this name.
    """
    with refused(f"`sources` must be a path or a list of paths, got {sources!r}"):
        paths = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
        read = [_build.read_source(Path(path)) for path in paths]
    rust = [source for source in read if source.path.suffix != ".cu"]
    cuda = [source for source in read if source.path.suffix == ".cu"]
    if not rust:
        raise InvalidArgumentError("there is no Rust source; give at least one file of ops")
    return _load(name, rust, cuda, verbose, dependencies, flags)


def load_inline(
    name: str,
    rust_source: str | Sequence[str],
    cuda_source: str | Sequence[str] | None = None,
    verbose: bool = False,
    *,
    dependencies: Dependencies | None = None,
    flags: Sequence[str] = (),
) -> Library:
    """Build a library from sources in strings, unless this has been done before, and load it.

        >>> activations = jit.load_inline("activations", '''
        ... #[pointwise]
        ... fn swish<S: Scalar>(x: S) -> S {
        ...     x * x.sigmoid()
        ... }
        ... ''')

    - `rust_source`, `cuda_source`: one string or several. They become files side by side in the cache,
      `name.rs` and `name.cu`, then `name_2.rs` and so on. An op names its CUDA kernel's file, `#[op(cuda =
      "name.cu")]`, and compilers' messages name these files too.

    All other parameters, the result and the errors are those of `load`.
    """
    _check_name(name)
    cache = cache_folder()
    rust = _named(name, "rs", rust_source)
    if not rust:
        raise InvalidArgumentError("there is no Rust source; give at least one string of ops")
    sources = _build.inline_sources(cache, rust | _named(name, "cu", cuda_source or ()))
    return _load(name, sources[: len(rust)], sources[len(rust) :], verbose, dependencies, flags)


def _named(name: str, ending: str, texts: str | Sequence[str]) -> dict[str, str]:
    """The texts by the names of their files: `name.ending`, `name_2.ending` and so on."""
    listed = [texts] if isinstance(texts, str) else list(texts)
    for text in listed:
        if not isinstance(text, str):
            raise InvalidArgumentError(f"a source must be a string, got {type(text).__name__}")
        with refused("a source must be UTF-8"):
            text.encode()
    names = [f"{name}.{ending}", *(f"{name}_{number}.{ending}" for number in range(2, len(listed) + 1))]
    return dict(zip(names, listed, strict=False))


def _load(
    name: str,
    rust: list[Source],
    cuda: list[Source],
    verbose: bool,
    dependencies: Dependencies | None,
    flags: Sequence[str],
) -> Library:
    _check_name(name)
    if isinstance(flags, str):
        raise InvalidArgumentError('`flags` must be a list of strings, such as ["-Ctarget-cpu=native"]')
    for flag in flags:
        with refused(f"{flag!r} cannot be a flag of the compiler's"):
            if b"\0" in os.fsencode(flag):
                raise ValueError("it has a NUL")
    cache = cache_folder()
    progress = Progress(name, verbose)
    with explained(cache):
        wanted = _dependencies.wanted(dependencies or {})
        for again in reversed(range(_TRIES)):
            request = _build.request(cache, rust, cuda, wanted, tuple(flags))
            try:
                with _turn.take():
                    return _found_or_built(name, request, progress)
            except ChangedError as error:
                if not again:
                    raise
                progress.step(f"{str(error).splitlines()[0]}: once more")
            rust, cuda = ([source.read_again() for source in sources] for sources in (rust, cuda))
    raise AssertionError("the last try returns or raises")


def _found_or_built(name: str, request: Request, progress: Progress) -> Library:
    identity = _build.identity(request)
    library = _built.get((name, identity)) if identity else _by_key.get((name, request.key))
    if library is not None and identity and os.path.exists(library.__file__):
        progress.step(f"unchanged, and loaded already: {library.__file__}")
        return library
    if library is not None:
        # Somebody has emptied the cache. Other processes are told of that file, which is there again.
        file, identity = _build.library_file(request, library.__name__, progress)
        if _built.get((name, identity)) is library:
            progress.step(f"loaded already: {file}")
            return library
    own_name = _name_in_process(name, request, identity)
    file, identity = _build.library_file(request, own_name, progress)
    library = _opened(name, file, progress)
    _built[name, identity] = _by_key[name, request.key] = library
    _names.add(own_name)
    return library


def _opened(name: str, file: Path, progress: Progress) -> Library:
    try:
        library = _library.load(file)
    except AlreadyExistsError as error:
        raise AlreadyExistsError(f"{error}\n  → give one of the two another name") from error
    except Error as error:
        if error.op is None:
            raise
        # What is wrong with an op is wrong in its source, not in the library's file in the cache.
        told = type(error).of(error.op, error.argument, error.text)
        told.code = error.code
        raise told from None
    progress.step(f"loaded as `{library.__name__}`")
    return library


def _name_in_process(name: str, request: Request, identity: str | None) -> str:
    """The library's name: the one asked for, unless this process has another of that name.

    Then it has the digest that is the same whether or not this has been built before. Where an earlier one
    has that too, as one that differs only in files that the sources include, it has that of all files.
    """
    key = request.key
    loaded = next((library for library in _library.loaded() if library.__name__ == name), None)
    if loaded is not None and name not in _names:
        file = Path(loaded.__file__)
        if not _build.is_built(request.cache, file):
            raise AlreadyExistsError(
                f"the name `{name}` is taken in this process, by the library {file}\n  → choose another name"
            )
        # A function that was pickled has loaded it: it may be this very library.
        found = _build.in_cache(request, name)
        if found is not None and found[0].resolve() == file:
            return name
        _names.add(name)
    if name in _names:
        by_key = f"{name}_{key[:8]}"
        return by_key if by_key not in _names else f"{name}_{(identity or key)[:8]}"
    return name


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not re.fullmatch("[a-z][a-z0-9_]*", name):
        near = re.sub("[^a-z0-9_]+", "_", str(name).lower()).strip("_0123456789")
        advice = (
            f"`{near}` would do" if re.fullmatch("[a-z][a-z0-9_]*", near) else "choose one such as `my_ops`"
        )
        raise InvalidArgumentError(
            "a library's name must be in snake_case, a lowercase letter and then lowercase letters, digits "
            f"and `_`, got {name!r}\n  → {advice}"
        )
    if keyword.iskeyword(name) or name in _TAKEN:
        raise InvalidArgumentError(
            f"`{name}` is reserved by Python or by a framework\n  → choose another name"
        )
