"""Peak memory of one call, as the kernel counts it: `tracemalloc` would miss what Rust and C allocate."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path

RESET_PEAK = "5"


def peak_extra_bytes(function: Callable[[], object]) -> int | None:
    """By how many bytes the process's resident memory grew at most while `function` ran, its result included.

    `None` where the kernel does not let a process reset its own peak.
    """
    gc.collect()
    # Free memory that malloc keeps would hide what the call allocates.
    ctypes.CDLL(None).malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text(RESET_PEAK)
        before = status_bytes("VmRSS")
        result = function()
        peak = status_bytes("VmHWM")
    except OSError:
        return None
    del result
    return max(0, peak - before)


def status_bytes(key: str) -> int:
    """A size from `/proc/self/status`, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {key}")
