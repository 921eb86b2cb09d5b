"""What goes wrong in a build, each with what to do about it."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opsmith._errors import Error


class BuildError(Error):
    """A library could not be built. The message has the compiler's output, or what is missing and how to get
    it.
    """

    code = "FailedPrecondition"


class ChangedError(BuildError):
    """A file was changed while it was compiled: nobody knows which text the library has."""


MOVE_CACHE = "set OPSMITH_CACHE_DIR to a folder that can be written to and has room"

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# What Cargo and the compiler say; `opsmith build` knows the same.
_SAYS_FULL = (
    "No space left on device",
    "Disk quota exceeded",
    "File too large",
    "os error 27",
    "File size limit exceeded",
    # A linker writes its output as memory, and is killed where that has no room.
    "ld terminated with signal 7",
    "Bus error",
)
_SAYS_NO_NETWORK = (
    "Could not resolve host",
    "failed to download",
    "network failure",
    "Could not connect",
    "Couldn't connect",
    "spurious network error",
    "failed to fetch",
    "download of config.json failed",
    "tunnel failed",
    "--offline",
)
_SAYS_OLD = ("is not supported by the following package", "feature `edition2024` is required")
_NO_LINKER = (
    "there is no linker, for which Rust asks the C compiler `cc`\n"
    "  → install one: `apt install gcc` on Debian and Ubuntu, `dnf install gcc` on Fedora"
)
_NO_NETWORK = (
    "crates.io cannot be reached, and not every crate that is needed is in Cargo's cache\n"
    "  → build once with a network, or copy $CARGO_HOME/registry (~/.cargo/registry) from a machine that\n"
    "    has; behind a proxy, set https_proxy"
)
_OLD_RUST = "this Rust is too old\n  → run: rustup update stable"


def disk_full(folder: Path) -> BuildError:
    """There is no room for what a build writes."""
    return BuildError(_no_room(folder, MOVE_CACHE))


def _no_room(folder: Path, elsewhere: str) -> str:
    return f"the disk is full: no room for the build in {folder}\n  → free some, or {elsewhere}"


def known_problem(said: str, folder: Path, elsewhere: str = MOVE_CACHE) -> str | None:
    """Why a build failed that writes to `folder`, in one sentence with what to do about it, where that can be
    told from what Cargo or the compiler `said`."""
    said = re.sub(r"\x1b\[[0-9;]*m", "", said)
    if any(sign in said for sign in _SAYS_FULL):
        return _no_room(folder, elsewhere)
    if re.search(r"linker `.*` not found", said):
        return _NO_LINKER
    # What comes before may be a warning of something that went well in the end, and what a compiler says
    # quotes the user's text.
    error = re.search(r"^error: (?!could not compile)", said, re.MULTILINE)
    if error is None or re.search(r"^error(\[E|: could not compile)", said, re.MULTILINE):
        return None
    told = said[error.start() :]
    for signs, problem in ((_SAYS_NO_NETWORK, _NO_NETWORK), (_SAYS_OLD, _OLD_RUST)):
        if any(sign in told for sign in signs):
            return problem
    return None


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turns what the system says of the cache's files into what to do about it."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise disk_full(folder) from error
        why = f"{error.strerror or error} ({error.filename})"
        if error.errno == errno.EXDEV and error.filename2:
            # What is made in one of them is renamed to be in the other.
            made, place = (Path(path).parent for path in (error.filename, error.filename2))
            why = f"{place} is on another file system than {made}"
        raise BuildError(f"the cache {folder} cannot be used: {why}\n  → {MOVE_CACHE}") from error
