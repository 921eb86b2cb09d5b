"""`python -m opsmith.jit`: what the cache of just-in-time builds takes on disk."""

from __future__ import annotations

import sys

from opsmith._errors import Error
from opsmith.jit._room import cache_info

if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit("usage: python -m opsmith.jit\n\nshows what the cache of just-in-time builds takes on disk")
    try:
        print(cache_info())
    except Error as error:
        sys.exit(f"error: {error}")
