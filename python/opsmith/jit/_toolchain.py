"""The Rust toolchain on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

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


def find() -> Toolchain:
    """The toolchain that the environment names, or that is on the path, or where rustup puts it.

    Raises `BuildError` where there is none, or one too old.
    """
    rustc, cargo = _program("RUSTC", "rustc"), _program("CARGO", "cargo")
    return Toolchain(rustc, cargo, _version(rustc, os.environ.get("RUSTUP_TOOLCHAIN")))


def environment() -> dict[str, str]:
    """The environment for the toolchain: the user's, without what would change a build."""
    kept = {name: value for name, value in os.environ.items() if not _OURS_TO_SET.match(name)}
    return {**kept, "CARGO_INCREMENTAL": "0", "CARGO_TERM_COLOR": "never"}


def start_folder() -> str:
    """Where programs are started: not in the user's folder, which may have settings of its own."""
    return os.path.abspath(os.sep)


def _program(variable: str, name: str) -> str:
    own = os.environ.get(variable)
    home = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    found = shutil.which(own or name) or (None if own else shutil.which(name, path=str(home / "bin")))
    if found is None:
        raise BuildError(f"there is no `{own or name}`, which just-in-time builds need\n  → {INSTALL}")
    return os.path.abspath(found)


@lru_cache
def _version(rustc: str, _toolchain: str | None) -> str:
    try:
        told = subprocess.run(
            [rustc, "-vV"], capture_output=True, text=True, cwd=start_folder(), env=environment(), check=False
        )
    except OSError as error:
        raise BuildError(f"`{rustc}` cannot be started: {error.strerror}\n  → {INSTALL}") from error
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
