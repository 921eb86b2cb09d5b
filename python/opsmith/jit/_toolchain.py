"""The Rust toolchain on this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from opsmith.jit._cache import digest, read_json, write_atomically
from opsmith.jit._errors import BuildError

OLDEST = (1, 90)
"""The first release of Rust that compiles Opsmith."""

INSTALL = (
    "install Rust, which takes a minute and no root:\n\n"
    "        curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y\n\n"
    "    and start this program from a new shell; or set RUSTC and CARGO to where they are"
)

# What would change how the crates are compiled, or where to, behind the back of the cache.
_OURS_TO_SET = re.compile(
    r"CARGO_(?!HOME$|NET_|HTTP_|REGISTR|SOURCE_|TERM_)|(RUSTFLAGS|RUSTC_WRAPPER|RUSTC_WORKSPACE_WRAPPER|RUSTC_BOOTSTRAP)$"
)


@dataclass(frozen=True)
class Toolchain:
    """The compiler and its build tool, and what the compiler says of itself."""

    rustc: str
    cargo: str
    version: str

    @property
    def host(self) -> str:
        """What it compiles for: `x86_64-unknown-linux-gnu`."""
        told = re.search(r"^host: (\S+)", self.version, re.MULTILINE)
        return told[1] if told else ""


def find(cache: Path) -> Toolchain:
    """The toolchain that the environment names, or that is on the path, or where rustup puts it.

    What the compiler says of itself is kept in the cache: to ask it takes longer than all else where nothing
    is to be built. Raises `BuildError` where there is none, or one too old.
    """
    rustc, cargo = program("RUSTC", "rustc"), program("CARGO", "cargo")
    choice = os.environ.get("RUSTUP_TOOLCHAIN", "")
    record = cache / "toolchains" / f"{digest([rustc, choice, str(_rustup_home())])}.json"
    known = read_json(record)
    if isinstance(known, dict) and known.get("stamps") == _stamps(rustc, known.get("compiler", "")):
        return Toolchain(known["compiler"], cargo, known["version"])
    version = _version(rustc)
    compiler = _compiler(rustc)
    # A cache that cannot be written to is told of where something has to be built.
    with suppress(OSError):
        told = {"compiler": compiler, "version": version, "stamps": _stamps(rustc, compiler)}
        write_atomically(record, json.dumps(told))
    return Toolchain(compiler, cargo, version)


def environment() -> dict[str, str]:
    """The environment for the toolchain: the user's, without what would change a build."""
    kept = {name: value for name, value in os.environ.items() if not _OURS_TO_SET.match(name)}
    return {**kept, "CARGO_INCREMENTAL": "0", "CARGO_TERM_COLOR": "never"}


def umask() -> int:
    """The mode that programs' files lack: that of this process's, and what would let others write to them."""
    # To ask the system is to set it, for all threads.
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return 0o022
    told = re.search(r"^Umask:\s*([0-7]+)", status, re.MULTILINE)
    return int(told[1] if told else "0", 8) | 0o022


def start_folder() -> str:
    """Where programs are started: not in the user's folder, which may have settings of its own."""
    return os.path.abspath(os.sep)


def program(variable: str, name: str) -> str:
    """The program that the environment variable names, or that is on the path, or where rustup puts it."""
    own = os.environ.get(variable)
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    found = shutil.which(own or name) or (None if own else shutil.which(name, path=str(home / "bin")))
    if found is None:
        raise BuildError(f"there is no `{own or name}`, which builds need\n  → {INSTALL}")
    return os.path.abspath(found)


def _rustup_home() -> Path:
    return Path(os.environ.get("RUSTUP_HOME") or Path.home() / ".rustup")


def _stamps(rustc: str, compiler: str) -> dict[str, list[int]]:
    """When what decides which compiler runs was last changed: a link may lead to rustup, which chooses."""
    start = Path(start_folder())
    deciding = [Path(rustc), Path(compiler), _rustup_home() / "settings.toml"]
    deciding += [start / "rust-toolchain", start / "rust-toolchain.toml"]
    stamps = {}
    for path in deciding:
        with suppress(OSError):
            status = path.stat()
            stamps[str(path)] = [status.st_mtime_ns, status.st_size, status.st_ino]
    return stamps


def _compiler(rustc: str) -> str:
    """The compiler that rustup would start, to start it without rustup; else what was found."""
    own = os.path.join(_ask(rustc, "--print", "sysroot").stdout.strip(), "bin", "rustc")
    is_rustup = os.path.basename(os.path.realpath(rustc)).startswith("rustup")
    return own if is_rustup and os.access(own, os.X_OK) else rustc


def _ask(rustc: str, *question: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [rustc, *question],
            capture_output=True,
            text=True,
            cwd=start_folder(),
            env=environment(),
            check=False,
        )
    except OSError as error:
        raise BuildError(f"`{rustc}` cannot be started: {error.strerror}\n  → {INSTALL}") from error


def _version(rustc: str) -> str:
    told = _ask(rustc, "-vV")
    release = re.search(r"^release: (\d+)\.(\d+)", told.stdout, re.MULTILINE)
    if told.returncode != 0 or release is None:
        raise BuildError(f"`{rustc} -vV` failed: {told.stderr.strip()}\n  → {INSTALL}")
    if (int(release[1]), int(release[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise BuildError(
            f"`{rustc}` is Rust {release[1]}.{release[2]}; it takes {oldest} or newer\n"
            "  → run: rustup update stable"
        )
    return told.stdout
