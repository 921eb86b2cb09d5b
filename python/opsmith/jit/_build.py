"""From sources to a library in the cache: found there, or compiled into it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from opsmith._errors import Error, InvalidArgumentError, NotFoundError
from opsmith._forks import cached
from opsmith._native import check_own, read_file
from opsmith.jit import _crates, _dependencies, _room, _toolchain
from opsmith.jit._cache import (
    digest,
    digest_of_file,
    locked,
    put,
    read_json,
    workplace,
    write,
    write_atomically,
)
from opsmith.jit._crates import Crates
from opsmith.jit._dependencies import Compiled, Wanted
from opsmith.jit._errors import BuildError, ChangedError, disk_full, known_problem
from opsmith.jit._progress import Progress
from opsmith.jit._toolchain import Toolchain

# Kernels at full speed. Two units are compiled side by side; more would compile what they share again.
_FLAGS = ("-Copt-level=3", "-Ccodegen-units=2", "-Cstrip=symbols", "-Cdebuginfo=0")

# How a crate's root lists its ops.
_LIBRARY = re.compile(r"^[ \t]*(?:::)?(?:opsmith::)?library!\s*[{(\[]", re.MULTILINE)

# The longest source that anybody wrote has a tenth.
_MOST_SOURCE = 64 << 20

# What the compiler says of crates that are not what they were.
_BROKEN_DEPENDENCY = re.compile(r"error\[E0(46[0-3]|514|519|786)\]|found invalid metadata|malformed archive")


@dataclass(frozen=True)
class Source:
    """A file of ops, or of CUDA code, and its text."""

    path: Path
    text: str
    is_inline: bool = False

    def read_again(self) -> Source:
        """The source with the text that the file has now."""
        return self if self.is_inline else read_source(self.path)


@dataclass(frozen=True)
class Request:
    """What is to be built, apart from the name it gets."""

    cache: Path
    toolchain: Toolchain
    crates: Crates
    wanted: Wanted
    sources: tuple[Source, ...]
    cuda: tuple[Source, ...]
    flags: tuple[str, ...]

    @cached
    def key(self) -> str:
        """A digest of all that the library's code depends on, but for files that sources name themselves.

        It is that of the moment when it was first asked for: crates that lie in folders may change later.
        """
        files = [part for source in (*self.sources, *self.cuda) for part in (str(source.path), source.text)]
        settings = [self.toolchain.version, self.crates.state, self.wanted.state, *_FLAGS, *self.flags]
        return digest([str(len(self.sources)), *files, *settings])


def read_source(path: Path) -> Source:
    """A source file and its text."""
    path = path.absolute()
    try:
        text = read_file(path, _MOST_SOURCE).decode()
    except NotFoundError:
        raise NotFoundError(f"there is no source file {path}") from None
    except UnicodeDecodeError:
        raise InvalidArgumentError(f"{path}: is not UTF-8, as a Rust source must be") from None
    # As text files are read: whatever ends the lines.
    return Source(path, text.replace("\r\n", "\n").replace("\r", "\n"))


def inline_sources(cache: Path, texts: Mapping[str, str]) -> list[Source]:
    """Sources that have no files, as the files in the cache that they get when they are compiled: side by
    side, where one finds the other by its name alone."""
    folder = cache / "sources" / digest(part for text in texts.items() for part in text)
    return [Source(folder / name, text, is_inline=True) for name, text in texts.items()]


def identity(request: Request) -> str | None:
    """A digest of all that the library's code depends on; none while it is not known which files that are,
    or one of them is gone."""
    others = _noted_inputs(request)
    return None if others is None else _identity(request, _digests(others))


def _identity(request: Request, inputs: Mapping[str, str | None]) -> str | None:
    parts = [part for pair in inputs.items() for part in pair]
    return None if None in parts else digest([request.key, *(part for part in parts if part is not None)])


def _digests(paths: list[str]) -> dict[str, str | None]:
    return {path: digest_of_file(Path(path)) for path in paths}


def library_file(request: Request, name: str, progress: Progress) -> tuple[Path, str]:
    """The built library of this name, from the cache or compiled now, and its identity.

    Raises `ChangedError` where a file was changed meanwhile.
    """
    most = _room.limit()
    if found := in_cache(request, name):
        progress.step(f"unchanged: {found[0]}")
        return found
    key = digest([request.key, name])
    with locked(request.cache, key, lambda: progress.waiting("the same library")):
        if found := in_cache(request, name):
            progress.step(f"built by another process: {found[0]}")
            return found
        built = _built_and_held(request, name, key, progress)
    shared = _dependencies.folder(request.cache, request.toolchain, request.crates)
    # It is made smaller for the next build's sake: this one is done, whatever comes of it.
    with suppress(OSError, Error):
        _room.make_room(request.cache, frozenset({shared, request.crates.folder}), most)
    return built


def _inputs_file(request: Request) -> Path:
    """Where it is noted which files the compiler read besides the sources."""
    return request.cache / "inputs" / f"{request.key}.json"


def _noted_inputs(request: Request) -> list[str] | None:
    noted = read_json(_inputs_file(request))
    return noted if isinstance(noted, list) else None


def _place(request: Request, name: str, whole: str) -> Path:
    """Where a library lies that is made of what `whole` is the digest of."""
    return request.cache / "libraries" / f"{name}-{digest([whole, name])[:16]}"


def in_cache(request: Request, name: str) -> tuple[Path, str] | None:
    """The library and its identity, if it is in the cache and whole."""
    # Also where there is none: what a build puts there is opened a moment later.
    check_own(request.cache / "libraries")
    whole = identity(request)
    if whole is None:
        return None
    place = _place(request, name, whole)
    entry = read_json(place / "entry.json")
    if not isinstance(entry, dict) or not _room.hold(place / "entry.json"):
        return None
    file = place / f"lib{name}.so"
    check_own(file)
    return (file, whole) if digest_of_file(file) == entry.get("checksum") else None


def is_built(cache: Path, file: Path) -> bool:
    """Whether the file is a library of this cache."""
    return file.parent.parent == (cache / "libraries").resolve()


def _built_and_held(request: Request, name: str, key: str, progress: Progress) -> tuple[Path, str]:
    for _ in range(2):
        file, whole = _build(request, name, key, progress)
        if _room.hold(file.with_name("entry.json")):
            return file, whole
        # One that makes room may come before it is held.
        progress.step("removed by another process: once more")
    raise BuildError(
        f"{file} was removed as soon as it was built\n"
        f"  → stop what empties {request.cache}, or raise {_room.VARIABLE} for all that share it"
    )


def _build(request: Request, name: str, key: str, progress: Progress) -> tuple[Path, str]:
    cache = request.cache
    progress.step(f"compiling with {request.toolchain.version.splitlines()[0]}")
    compiled = _compiled(request, progress)
    for source in (*request.sources, *request.cuda):
        if source.is_inline:
            check_own(source.path)
        if source.is_inline and digest_of_file(source.path) != digest([source.text.encode()]):
            write_atomically(source.path, source.text)
    with workplace(cache, key) as made:
        before, began = _digests(_noted_inputs(request) or []), time.time_ns()
        started = time.perf_counter()
        try:
            _compile(request, name, made, compiled, progress)
        except BuildError as error:
            if not _BROKEN_DEPENDENCY.search(str(error)):
                raise
            progress.step("the compiled dependencies are broken: compiling them again")
            _compile(request, name, made, _compiled(request, progress, again=True), progress)
        progress.step(f"compiled in {time.perf_counter() - started:.2f} s")
        others = _inputs(made / "inputs.d", request, made)
        file = made / f"lib{name}.so"
        entry = {
            "checksum": digest_of_file(file),
            "key": request.key,
            "sources": [str(source.path) for source in request.sources],
        }
        write_atomically(made / "entry.json", json.dumps(entry, indent=1))
        write_atomically(_inputs_file(request), json.dumps(others))
        # Filed under what was compiled: what is saved from now on is another library.
        inputs = _digests(others)
        changed, whole = _changed(request, before, began, inputs), _identity(request, inputs)
        if changed is not None or whole is None:
            raise ChangedError(f"{changed} was changed while it was compiled\n  → try again")
        place = _place(request, name, whole)
        put(made, place)
    progress.step(f"built {place / file.name}")
    return place / file.name, whole


def _changed(
    request: Request, before: Mapping[str, str | None], began: int, inputs: Mapping[str, str | None]
) -> str | None:
    """What may not be what the compiler has read any more, of all that it reads."""
    for source in (*request.sources, *request.cuda):
        if source.read_again().text != source.text:
            return str(source.path)
    for path, now in inputs.items():
        if now is None:
            return path
        # Of one that nobody knew of there is only the time, which another machine's clock may have given;
        # by the next try it is known.
        if before[path] != now if path in before else os.stat(path).st_ctime_ns >= began:
            return path
    return None if replace(request).key == request.key else "a crate in a folder"


def _compiled(request: Request, progress: Progress, again: bool = False) -> Compiled:
    return _dependencies.compiled(
        request.cache, request.toolchain, request.crates, request.wanted, progress, again
    )


def _compile(request: Request, name: str, folder: Path, compiled: Compiled, progress: Progress) -> None:
    root = _own_root(request)
    if root is None:
        root = folder / "lib.rs"
        # There already, where the crates that it needs are compiled again.
        root.unlink(missing_ok=True)
        write(root, _root(request, name))
    command = [request.toolchain.rustc, "--crate-name", f"opsmith_jit_{name}", "--edition", "2024"]
    command += [
        "--crate-type",
        "cdylib",
        f"--emit=link={folder / f'lib{name}.so'},dep-info={folder / 'inputs.d'}",
        # What it makes on the way would be where it is started: in nobody's folder, and for other builds
        # to find.
        f"--out-dir={folder}",
    ]
    command += [*_FLAGS, *compiled.arguments(), *request.flags, "--color", "never", str(root)]
    progress.step(" ".join(command))
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=_toolchain.start_folder(),
            # What `library!` of a crate's own root asks for; Cargo would say the version.
            env={**_toolchain.environment(), "OPSMITH_JIT_LIBRARY": name, "CARGO_PKG_VERSION": "0.0.0"},
            umask=_toolchain.umask(),
            check=False,
        )
    except OSError as error:
        why = f"`{command[0]}` cannot be started: {error.strerror}"
        raise BuildError(f"{why}\n  → {_toolchain.INSTALL}") from error
    said = done.stderr.decode("utf-8", "replace").strip()
    if done.returncode == 0:
        if said:
            progress.step(said)
        return
    if -done.returncode == _SIGXFSZ:
        raise disk_full(request.cache)
    if problem := known_problem(said, request.cache):
        raise BuildError(f"{problem}\n\n{said}")
    if done.returncode < 0:
        said += f"\n\nthe compiler was killed by signal {-done.returncode}"
    said += _where_kernels_are(said, request.cuda)
    raise BuildError(f"`{name}` cannot be compiled:\n\n{said}")


_SIGXFSZ = 25


def _where_kernels_are(said: str, cuda: tuple[Source, ...]) -> str:
    """What to write where an op names a file for CUDA that is not there; nothing where none does."""
    missing = re.search(r"couldn't read `([^`]*\.cu)`", said)
    if missing is None:
        return ""
    folder = os.path.dirname(missing[1])
    given = ", ".join(f'"{os.path.relpath(source.path, folder)}"' for source in cuda)
    if not given:
        return "\n\n  → put the file beside that in Rust, or give it as `cuda_source`"
    return f"\n\n  → `cuda` is a path from the file in Rust; from there, the CUDA sources given are {given}"


def _own_root(request: Request) -> Path | None:
    """The source that is the root of a crate, for it lists the crate's ops itself, if there is one."""
    roots = [source.path for source in request.sources if _LIBRARY.search(source.text)]
    if roots and len(request.sources) > 1:
        raise InvalidArgumentError(
            f"{roots[0]}: is a crate's root, because it has a `library!`; give it as the only source, from "
            "which the crate's other files are found"
        )
    return roots[0] if roots else None


def _root(request: Request, name: str) -> str:
    files, cuda = (
        ", ".join(_rust_text(str(source.path)) for source in sources)
        for sources in (request.sources, request.cuda)
    )
    return (
        f'::opsmith::library_of! {{\n    name = "{name}",\n    version = "0.0.0",\n'
        f"    files = [{files}],\n    cuda = [{cuda}],\n}}\n"
    )


def _rust_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    try:
        escaped.encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError(f"{text!r}: is not UTF-8, as the compiler needs paths to be") from None
    return f'"{escaped}"'


def _inputs(told: Path, request: Request, made: Path) -> list[str]:
    """The files that the compiler read besides the sources: modules, texts that are included."""
    listed = read_file(told).decode().splitlines()[0].split(": ", 1)[1]
    paths = [part.replace("\\ ", " ") for part in re.split(r"(?<!\\) ", listed) if part]
    own = {str(source.path) for source in (*request.sources, *request.cuda)}
    start = _toolchain.start_folder()
    absolute = (os.path.normpath(os.path.join(start, path)) for path in paths)
    return sorted({path for path in absolute if path not in own and Path(path).parent != made})


def request(
    cache: Path,
    sources: list[Source],
    cuda: list[Source],
    wanted: Wanted,
    flags: tuple[str, ...],
) -> Request:
    """What is to be built, with the toolchain and crates of this machine."""
    crates = _crates.find(cache)
    return Request(cache, _toolchain.find(cache), crates, wanted, tuple(sources), tuple(cuda), flags)
