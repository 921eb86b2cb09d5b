"""The program `opsmith`, which `python -m opsmith` starts too."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from importlib import metadata
from urllib.parse import unquote, urlsplit

from opsmith import _apart, _native

_AGAIN = """
import signal
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
sys.exit(native.run_program([], "", sys.argv[2:]))
"""
"""What the program starts of itself, for a library in a process of its own, starts nothing more."""


def main() -> int:
    """Run the command line, and give its exit status."""
    # Python would hear an interrupt only when all is done. Whoever ignores interrupts goes on doing so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.run_program(_apart.command(_AGAIN), _installed_from(), sys.argv[1:])


def _installed_from() -> str:
    """The folder or file that pip says the package is from, or nothing. The format is that of PEP 610."""
    try:
        text = metadata.distribution("opsmith").read_text("direct_url.json")
        told = json.loads(text or "{}")
        url = urlsplit("" if "vcs_info" in told else told.get("url", ""))
    except (metadata.PackageNotFoundError, OSError, ValueError, AttributeError, TypeError):
        return ""
    return unquote(url.path) if url.scheme == "file" else ""


if __name__ == "__main__":
    sys.exit(main())
