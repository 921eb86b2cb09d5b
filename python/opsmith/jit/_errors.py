"""What goes wrong in a build, each with what to do about it."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opsmith._errors import Error


class BuildError(Error):
    """A library could not be built: the compiler's messages, or what is missing and how to get it."""

    code = "FailedPrecondition"


class ChangedError(BuildError):
    """A file was changed while it was compiled: nobody knows which text the library has."""


MOVE_CACHE = "set OPSMITH_CACHE_DIR to a folder that can be written to and has room"

# The program `opsmith build` knows the same.
_KNOWN = (
    (
        re.compile(r"linker `.*` not found"),
        "there is no linker, for which Rust asks the C compiler `cc`\n"
        "  → install one: `apt install gcc` on Debian and Ubuntu, `dnf install gcc` on Fedora",
    ),
    (
        re.compile(
            r"Could not resolve host|failed to download|network failure|Could ?n[o']t connect|spurious network error"
            r"|failed to fetch|download of config.json failed|tunnel failed|--offline"
        ),
        "crates.io cannot be reached, and not every crate that is needed is in Cargo's cache\n"
        "  → build once with a network, or copy $CARGO_HOME/registry (~/.cargo/registry) from a machine that has;\n"
        "    behind a proxy, set https_proxy",
    ),
    (
        re.compile(r"rustc \S+ is not supported by|feature `edition2024` is required"),
        "this Rust is too old\n  → run: rustup update stable",
    ),
)

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FULL_TEXTS = (
    "No space left on device",
    "Disk quota exceeded",
    "File too large",
    "os error 27",
    "File size limit exceeded",
)


def disk_full(folder: Path) -> BuildError:
    """There is no room for what a build writes."""
    return BuildError(_no_room(folder, MOVE_CACHE))


def _no_room(folder: Path, elsewhere: str) -> str:
    return f"the disk is full: no room for the build in {folder}\n  → free some, or {elsewhere}"


def known_problem(said: str, folder: Path, elsewhere: str = MOVE_CACHE) -> str | None:
    """Why a build failed that writes to `folder`, in one sentence with what to do about it, where that can be
    told from what Cargo or the compiler `said`."""
    if any(sign in said for sign in _FULL_TEXTS):
        return _no_room(folder, elsewhere)
    return next((problem for sign, problem in _KNOWN if sign.search(said)), None)


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turns what the system says of the cache's files into what to do about it."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise disk_full(folder) from error
        why = error.strerror or error
        raise BuildError(
            f"the cache {folder} cannot be used: {why} ({error.filename})\n  → {MOVE_CACHE}"
        ) from error
