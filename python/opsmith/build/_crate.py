"""The crate: what Cargo says of it, and its library, which Cargo builds."""

from __future__ import annotations

import codecs
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TextIO

from opsmith.jit import _crates, _toolchain
from opsmith.jit._cache import cache_folder
from opsmith.jit._errors import BuildError, explained, known_problem


@dataclass(frozen=True)
class Crate:
    """A crate whose library is to be packed."""

    folder: Path
    workspace: Path
    package: dict[str, Any]
    """What `cargo metadata` says of it."""

    @property
    def name(self) -> str:
        """Its name in `Cargo.toml`."""
        return str(self.package["name"])

    @property
    def manifest(self) -> Path:
        """Its `Cargo.toml`."""
        return self.folder / "Cargo.toml"


def find(folder: Path) -> Crate:
    """The crate in a folder. Raises `BuildError` where there is none, or one without a C library."""
    manifest = folder.absolute() / "Cargo.toml"
    if not manifest.exists():
        raise BuildError(
            f"{manifest}: there is no such file\n  → `opsmith new NAME` makes a crate of operators"
        )
    told = _cargo(["metadata", "--no-deps", "--format-version", "1"], manifest)
    if told.returncode != 0:
        raise BuildError(f"{manifest}: Cargo cannot read it:\n\n{told.stderr}")
    metadata = json.loads(told.stdout)
    packages = metadata["packages"]
    own = next((each for each in packages if Path(each["manifest_path"]).samefile(manifest)), None)
    if own is None:
        names = ", ".join(sorted(each["name"] for each in packages))
        raise BuildError(f"{manifest}: is a workspace\n  → go to the folder of one of its crates: {names}")
    if not any("cdylib" in target["crate_types"] for target in own["targets"]):
        raise BuildError(
            f"{manifest}: makes no shared library\n  → write into it:\n\n        [lib]\n"
            '        crate-type = ["cdylib"]'
        )
    return Crate(manifest.parent, Path(metadata["workspace_root"]), own)


def build(crate: Crate, profile: str) -> Path:
    """Builds the library in a profile of Cargo's, whose progress is shown; its path."""
    arguments = ["build", "--profile", profile, "--lib", "--message-format", "json-render-diagnostics"]
    for name, settings in _crates.PROFILES.items():
        arguments += [part for setting in settings for part in ("--config", f"profile.{name}.{setting}")]
    done = _cargo([*arguments, *_carried(crate)], crate.manifest, show=True)
    if done.returncode != 0:
        problem = known_problem(done.stderr, crate.workspace, "set CARGO_TARGET_DIR to a folder that has room")
        why = problem or f"`{crate.name}` could not be built; Cargo's messages, above, say why"
        raise BuildError(why)
    for line in done.stdout.splitlines():
        message = json.loads(line) if line.startswith("{") else {}
        is_own = message.get("package_id") == crate.package["id"]
        if message.get("reason") == "compiler-artifact" and is_own:
            found = [Path(file) for file in message["filenames"] if file.endswith(".so")]
            if found and "cdylib" in message["target"]["crate_types"]:
                return found[0]
    raise BuildError(
        f"`{crate.name}` was built, but not as a library for Linux\n"
        "  → build it on Linux, without `build.target` in Cargo's settings"
    )


def files(crate: Crate) -> list[Path]:
    """The files that Cargo would publish, relative to the crate."""
    told = _cargo(["package", "--list", "--allow-dirty", *_carried(crate)], crate.manifest)
    if told.returncode != 0:
        raise BuildError(f"{crate.manifest}: Cargo cannot list the crate's files:\n\n{told.stderr}")
    made_by_cargo = {"Cargo.toml.orig", ".cargo_vcs_info.json"}
    listed = [Path(line) for line in told.stdout.splitlines() if line not in made_by_cargo]
    return [path for path in listed if (crate.folder / path).is_file()]


def _carried(crate: Crate) -> list[str]:
    """Settings that have a dependency on a version of `opsmith` served by the crates that this package
    carries, if they are of that version."""
    wants = [each for each in crate.package["dependencies"] if each["name"] == "opsmith"]
    if not any((each["source"] or "").startswith("registry+") for each in wants):
        return []
    cache = cache_folder()
    with explained(cache):
        crates = _crates.find(cache)
        crates.unpack(cache)
    # A string of TOML is written as one of JSON.
    path = json.dumps(str(crates.folder / "crates" / "opsmith"), ensure_ascii=False)
    return ["--config", f"patch.crates-io.opsmith.path={path}"]


def _cargo(arguments: list[str], manifest: Path, show: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs Cargo as the author would, with the author's settings; with `show`, what it says is shown as it
    comes."""
    program = _toolchain.program("CARGO", "cargo")
    on_terminal = show and sys.stderr is not None and sys.stderr.isatty()
    # It sees no terminal, for what it says is read on the way there.
    width = str(shutil.get_terminal_size().columns)
    progress = {"CARGO_TERM_PROGRESS_WHEN": "always", "CARGO_TERM_PROGRESS_WIDTH": width}
    looks = {**progress, "CARGO_TERM_COLOR": "always"} if on_terminal else {}
    try:
        with tempfile.TemporaryFile() as told:
            process = subprocess.Popen(
                [program, *arguments, "--manifest-path", str(manifest)],
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=subprocess.PIPE,
                cwd=manifest.parent,
                env={**looks, **os.environ},
            )
            with process:
                said = _passed_on(process.stderr, sys.stderr if show else None)
            told.seek(0)
            results = told.read().decode("utf-8", "replace")
            return subprocess.CompletedProcess(process.args, process.returncode, results, said)
    except OSError as error:
        raise BuildError(
            f"`{program}` cannot be started: {error.strerror}\n  → {_toolchain.INSTALL}"
        ) from error


def _passed_on(source: IO[bytes] | None, to: TextIO | None) -> str:
    """What comes from there, which is shown as it comes where that is wanted."""
    assert source is not None
    said, decoder = "", codecs.getincrementaldecoder("utf-8")("replace")
    while part := os.read(source.fileno(), 1 << 16):
        text = decoder.decode(part)
        said += text
        if to is not None:
            to.write(text)
            to.flush()
    return said
