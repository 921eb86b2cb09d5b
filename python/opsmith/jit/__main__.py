"""`python -m opsmith.jit`: what the cache of just-in-time builds takes on disk.

The status is 1 when that cannot be told, the message saying why.
"""

from __future__ import annotations

import argparse
import os
import sys

from opsmith._errors import Error
from opsmith.jit._room import cache_info


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    argparse.ArgumentParser(
        prog="python -m opsmith.jit",
        description="Shows what the cache of just-in-time builds takes on disk, and when it was used.",
    ).parse_args(arguments)
    try:
        text = str(cache_info())
    except (Error, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    try:
        print(text, flush=True)
    except OSError as error:
        # Python would try it again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            # Who reads has enough.
            return 0
        print(f"error: this cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
