"""The crate: what Cargo says of it, and its library, which Cargo builds."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sysconfig
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsmith.build import _cargo, _inventory
from opsmith.build._inventory import Inventory
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
    told = _asked(["metadata", "--no-deps", "--format-version", "1"], manifest)
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


def build(crate: Crate, profile: str, oldest: tuple[int, int] | None = None) -> Path:
    """Builds the library in a profile of Cargo's, whose progress is shown; its path.

    With `oldest`, a release of glibc, it is linked for systems as old as that one.
    """
    arguments = ["--profile", profile, "--lib", "--message-format", "json-render-diagnostics"]
    for name, settings in _crates.PROFILES.items():
        arguments += [part for setting in settings for part in ("--config", f"profile.{name}.{setting}")]
    arguments += [*_carried(crate), "--manifest-path", str(crate.manifest)]
    if oldest is None:
        done = _cargo.run(["build", *arguments], crate.folder, show=True)
    else:
        major, minor = oldest
        target = f"{_host(crate)}.{major}.{minor}"
        arguments = ["zigbuild", "--target", target, *arguments]
        done = _cargo.run(arguments, crate.folder, show=True, program=_zigbuild())
    if done.returncode != 0:
        problem = known_problem(
            done.stderr, crate.workspace, "set CARGO_TARGET_DIR to a folder that has room"
        )
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


def inventory(crate: Crate, oldest: tuple[int, int] | None) -> Inventory:
    """What the library is made of besides the crate. It has been built, so Cargo has all of it."""
    carried = _carried(crate)

    def cargo(arguments: list[str]) -> str:
        told = _asked([*arguments, *carried], crate.manifest)
        if told.returncode != 0:
            raise BuildError(
                f"{crate.manifest}: Cargo cannot tell what `{crate.name}` depends on:\n\n{told.stderr}"
            )
        return told.stdout

    others = [] if oldest is None else [_inventory.unwinder()]
    return _inventory.read(cargo, crate.name, _host(crate), _rust(crate, "release"), others)


def files(crate: Crate) -> list[Path]:
    """The files that Cargo would publish, relative to the crate."""
    told = _asked(["package", "--list", "--allow-dirty", *_carried(crate)], crate.manifest)
    if told.returncode != 0:
        raise BuildError(f"{crate.manifest}: Cargo cannot list the crate's files:\n\n{told.stderr}")
    made_by_cargo = {"Cargo.toml.orig", ".cargo_vcs_info.json"}
    listed = [Path(line) for line in told.stdout.splitlines() if line not in made_by_cargo]
    return [path for path in listed if (crate.folder / path).is_file()]


def published_manifest(crate: Crate) -> bytes:
    """The crate's `Cargo.toml` as Cargo would publish it: dependencies with a version have no path in it."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["package", "--no-verify", "--allow-dirty", "--exclude-lockfile", "--target-dir", folder]
        told = _asked(arguments, crate.manifest)
        if told.returncode != 0:
            raise BuildError(f"{crate.manifest}: Cargo cannot package the crate:\n\n{told.stderr}")
        stem = f"{crate.name}-{crate.package['version']}"
        with tarfile.open(Path(folder) / "package" / f"{stem}.crate") as archive:
            manifest = archive.extractfile(f"{stem}/Cargo.toml")
            assert manifest is not None
            # Cargo leaves it out; with it the crate is one by itself, wherever it is unpacked.
            return manifest.read() + b"\n[workspace]\n"


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


def _host(crate: Crate) -> str:
    """What Cargo compiles for in the crate's folder: `x86_64-unknown-linux-gnu`."""
    return _rust(crate, "host")


def _rust(crate: Crate, key: str) -> str:
    """What `cargo -vV` says of the tools that the crate is built with."""
    told = _cargo.run(["-vV"], crate.folder)
    found = re.search(rf"^{key}: (\S+)", told.stdout, re.MULTILINE)
    if found is None:
        raise BuildError(f"`cargo -vV` does not tell its {key}: {told.stderr}\n  → {_toolchain.INSTALL}")
    return found[1]


def _zigbuild() -> str:
    """The program that has Cargo link with zig, which knows the C libraries of all systems: that of this
    environment, or on the path."""
    found = shutil.which("cargo-zigbuild", path=sysconfig.get_path("scripts"))
    if found is None and (found := shutil.which("cargo-zigbuild")) is None:
        raise BuildError(
            "there is no `cargo-zigbuild`, which links for older systems\n  → pip install cargo-zigbuild"
        )
    return found


def _asked(arguments: list[str], manifest: Path) -> subprocess.CompletedProcess[str]:
    """What Cargo says of the crate with this manifest."""
    return _cargo.run([*arguments, "--manifest-path", str(manifest)], manifest.parent)
