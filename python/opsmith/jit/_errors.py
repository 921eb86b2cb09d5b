"""What goes wrong in a build, each with what to do about it."""

from __future__ import annotations

import errno
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
    return BuildError(f"the disk is full: no room for the build in {folder}\n  → free some, or {MOVE_CACHE}")


def says_disk_full(text: str) -> bool:
    """Whether that is why a program failed that said `text`."""
    return any(sign in text for sign in _FULL_TEXTS)


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
