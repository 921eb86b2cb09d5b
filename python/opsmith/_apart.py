"""Processes that have the native part alone: they start in no time, without the package and NumPy."""

from __future__ import annotations

import sys

from opsmith import _native

_LOAD = """
import sys
from importlib import util
spec = util.spec_from_file_location("opsmith._native", sys.argv[1])
native = util.module_from_spec(spec)
spec.loader.exec_module(native)
"""


def command(calls: str) -> list[str]:
    """The program and the arguments of a process that makes these calls of `native`.

    What follows them is in `sys.argv[2:]`. The program is empty where Python is part of another, and does not
    say of which."""
    return [sys.executable or "", "-I", "-S", "-c", _LOAD + calls, _native.__file__]
