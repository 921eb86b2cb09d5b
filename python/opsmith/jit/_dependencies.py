"""The crates that every build needs, compiled once by Cargo into the cache."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opsmith._errors import InvalidArgumentError
from opsmith._native import check_own, read_file
from opsmith.jit import _toolchain
from opsmith.jit._cache import (
    digest,
    digest_of_file,
    fingerprint,
    locked,
    make_folder,
    read_json,
    touch,
    write_atomically,
)
from opsmith.jit._crates import PROFILES, Crates
from opsmith.jit._errors import BuildError, known_problem
from opsmith.jit._progress import TOOK, Progress
from opsmith.jit._toolchain import Toolchain

# What that resolver would not look at by itself: releases that this compiler is too old for.
_RELEASES = {"CARGO_RESOLVER_INCOMPATIBLE_RUST_VERSIONS": "fallback"}
_CRATE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Wanted:
    """The crates that sources use besides `opsmith`, as lines of a manifest."""

    lines: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()

    @property
    def state(self) -> str:
        """Changes when the list does, or a crate that lies in a folder."""
        return digest([*self.lines, *(fingerprint(folder) for folder in self.folders)])


@dataclass(frozen=True)
class Compiled:
    """Where the compiler finds the crates."""

    externs: dict[str, str]
    search: list[str] = field(default_factory=list)

    def arguments(self) -> list[str]:
        """The compiler's arguments."""
        externs = [f"--extern={name}={path}" for name, path in self.externs.items()]
        return [*externs, *(f"-L{place}" for place in self.search)]


def wanted(dependencies: Mapping[str, str | Mapping[str, Any]]) -> Wanted:
    """Reads the argument `dependencies`: a version for each crate, or what a manifest says in a table."""
    lines, folders = [], []
    for name, requirement in sorted(dependencies.items()):
        if not isinstance(name, str) or not _CRATE_NAME.fullmatch(name) or name == "opsmith":
            raise InvalidArgumentError(
                f"dependencies: {name!r} cannot be added; give names of crates, such as 'rand'"
            )
        if isinstance(requirement, Mapping):
            requirement = dict(requirement)
            if "path" in requirement:
                folder = Path(requirement["path"]).absolute()
                if not (folder / "Cargo.toml").exists():
                    raise InvalidArgumentError(
                        f"dependencies: {folder} has no Cargo.toml; give a crate's folder"
                    )
                folders.append(folder)
                requirement["path"] = str(folder)
        elif not isinstance(requirement, str):
            raise InvalidArgumentError(
                f"dependencies: {name!r} takes a version, such as '1.0', or a dict such as "
                f"{{'version': '1.0', 'features': ['std']}}, not {requirement!r}"
            )
        lines.append(f"{name} = {_toml(requirement)}")
    return Wanted(tuple(lines), tuple(folders))


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(part)}" for key, part in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    # TOML's basic strings and its booleans are written as JSON's.
    return json.dumps(value, ensure_ascii=False)


def folder(cache: Path, toolchain: Toolchain, crates: Crates) -> Path:
    """Where the crates lie that this toolchain has compiled for this release of the package."""
    return cache / "dependencies" / digest([toolchain.version, str(crates.folder)])


def compiled(
    cache: Path, toolchain: Toolchain, crates: Crates, wanted: Wanted, progress: Progress, again: bool = False
) -> Compiled:
    """The compiled crates, compiled now where they are not there; with `again`, from the beginning."""
    place = folder(cache, toolchain, crates)
    package = place / digest([str(crates.folder), *crates.features, *wanted.lines])
    state = digest([crates.state, wanted.state])
    # The compiler runs code of it: macros, and what build scripts were compiled to.
    check_own(place, tree=True)
    touch(place / "used")
    crates.touch()
    if not again and (found := _found(package, state)):
        return found
    with locked(cache, f"dependencies-{place.name}", lambda: progress.waiting(f"the dependencies: {TOOK}")):
        if again:
            shutil.rmtree(place, ignore_errors=True)
        if found := _found(package, state):
            return found
        crates.unpack(cache)
        make_folder(place)
        touch(place / "used")
        _write_package(package, crates, wanted)
        artifacts = _build(package, place / "target", toolchain, progress, cache)
        built = _read(artifacts, _resolved(package, toolchain))
        files = {path: os.stat(path).st_size for path in _files(artifacts)}
        record = {"state": state, "externs": built.externs, "search": built.search, "files": files}
        write_atomically(package / "built.json", json.dumps(record))
    return built


def _found(package: Path, state: str) -> Compiled | None:
    record = read_json(package / "built.json")
    if not isinstance(record, dict) or record.get("state") != state:
        return None
    try:
        whole = all(os.stat(path).st_size == size for path, size in record["files"].items())
    except OSError:
        return None
    return Compiled(record["externs"], record["search"]) if whole else None


def _write_package(package: Path, crates: Crates, wanted: Wanted) -> None:
    make_folder(package)
    opsmith = _toml({"path": str(crates.folder / "crates" / "opsmith"), "features": crates.features})
    manifest = [
        "[package]",
        'name = "opsmith-jit-dependencies"',
        'version = "0.0.0"',
        'edition = "2024"',
        "",
        "[lib]",
        'path = "lib.rs"',
        "",
        # One set of features for what is needed by macros and build scripts, too: nothing is compiled twice.
        "[workspace]",
        'resolver = "1"',
        "",
        "[dependencies]",
        f"opsmith = {opsmith}",
        *wanted.lines,
        "",
        "[profile.release]",
        *PROFILES["release"],
    ]
    write_atomically(package / "Cargo.toml", "\n".join(manifest) + "\n")
    write_atomically(package / "lib.rs", "")
    # The releases that Opsmith has been tested with; Cargo leaves out what is not needed and adds what is.
    lock, origin = package / "Cargo.lock", package / "locked.txt"
    known = digest_of_file(crates.folder / "Cargo.lock") or ""
    if not lock.exists() or not origin.exists() or read_file(origin) != known.encode():
        write_atomically(lock, read_file(crates.folder / "Cargo.lock").decode())
        write_atomically(origin, known)


def _cargo(toolchain: Toolchain, arguments: list[str], results: int) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            [toolchain.cargo, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=results,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            cwd=_toolchain.start_folder(),
            env={**_toolchain.environment(), **_RELEASES, "RUSTC": toolchain.rustc},
            umask=_toolchain.umask(),
        )
    except OSError as error:
        raise BuildError(
            f"`{toolchain.cargo}` cannot be started: {error.strerror}\n  → {_toolchain.INSTALL}"
        ) from error


def _build(
    package: Path, target: Path, toolchain: Toolchain, progress: Progress, cache: Path
) -> list[dict[str, Any]]:
    """Runs Cargo and gives its messages."""
    arguments = ["build", "--release", "--lib", "--message-format", "json-render-diagnostics"]
    arguments += ["--manifest-path", str(package / "Cargo.toml"), "--target-dir", str(target)]
    # Cargo tells of progress on one stream and of results on the other, so one of them goes to a file.
    results = package / "messages.json"
    said: list[str] = []
    write_atomically(results, "")
    with progress.dependencies() as told, open(results, "a", encoding="utf-8") as file:
        process = _cargo(toolchain, arguments, file.fileno())
        try:
            assert process.stderr is not None
            for line in process.stderr:
                said.append(line)
                told(line.strip())
            status = process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
    if status != 0:
        raise _failure("".join(said), status, cache)
    lines = read_file(results).decode().splitlines()
    results.unlink()
    return [json.loads(line) for line in lines if line.startswith("{")]


def _failure(said: str, status: int, cache: Path) -> BuildError:
    if problem := known_problem(said, cache):
        return BuildError(f"{problem}\n\n{said}")
    if status < 0:
        return BuildError(f"Cargo was killed by signal {-status}")
    return BuildError(f"the crates that the sources depend on cannot be compiled:\n\n{said}")


def _resolved(package: Path, toolchain: Toolchain) -> dict[str, str]:
    """The package that each name stands for in sources."""
    arguments = ["metadata", "--format-version", "1", "--manifest-path", str(package / "Cargo.toml")]
    # Or it would download what other systems need.
    arguments += ["--filter-platform", toolchain.host]
    process = _cargo(toolchain, arguments, subprocess.PIPE)
    out, err = process.communicate()
    if process.returncode != 0:
        raise BuildError(f"`cargo metadata` failed:\n\n{err}")
    resolve = json.loads(out)["resolve"]
    root = next(node for node in resolve["nodes"] if node["id"] == resolve["root"])
    return {dependency["name"]: dependency["pkg"] for dependency in root["deps"]}


def _read(artifacts: list[dict[str, Any]], resolved: dict[str, str]) -> Compiled:
    by_package = {package: name for name, package in resolved.items()}
    externs: dict[str, str] = {}
    search: list[str] = []
    for artifact in artifacts:
        if artifact.get("reason") == "build-script-executed":
            search += artifact["linked_paths"]
        name = by_package.get(artifact.get("package_id", ""))
        if artifact.get("reason") != "compiler-artifact" or name is None:
            continue
        if "custom-build" not in artifact["target"]["kind"]:
            files = [file for file in artifact["filenames"] if file.endswith((".rlib", ".so"))]
            externs.update(dict.fromkeys([name], files[0]) if files else {})
    if missing := resolved.keys() - externs.keys():
        raise BuildError(f"these dependencies are not Rust libraries: {', '.join(sorted(missing))}")
    folder = Path(externs["opsmith"]).parent
    # Cargo puts a copy of what was asked for beside the folder of what it needs.
    needed = folder if folder.name == "deps" else folder / "deps"
    return Compiled(externs, [f"dependency={needed}", *search])


def _files(artifacts: list[dict[str, Any]]) -> list[str]:
    files = (file for artifact in artifacts for file in artifact.get("filenames", ()))
    return [file for file in files if file.endswith((".rlib", ".so"))]
