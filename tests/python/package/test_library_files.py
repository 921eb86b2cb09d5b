"""What a built library is as a file: in need of nothing but the C library."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", Path(__file__).parents[3] / "target" / "release"))
EXAMPLES = ["distances", "zero_out"]
ALLOWED = ("libc.so", "libm.so", "libgcc_s.so", "ld-linux")

PT_LOAD, PT_DYNAMIC = 1, 2
DT_NEEDED, DT_STRTAB = 1, 5


def needed(path: Path) -> list[str]:
    """The names of the shared objects that a 64-bit little-endian ELF file asks for."""
    data = path.read_bytes()
    (offset,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    # Type, flags, offset in the file, address, physical address, size in the file, size in memory, alignment.
    segments = [struct.unpack_from("<IIQQQQQQ", data, offset + i * size) for i in range(count)]
    (dynamic,) = (segment for segment in segments if segment[0] == PT_DYNAMIC)
    entries = list(struct.iter_unpack("<QQ", data[dynamic[2] : dynamic[2] + dynamic[5]]))
    (address,) = (value for tag, value in entries if tag == DT_STRTAB)
    strings = next(
        segment[2] + address - segment[3]
        for segment in segments
        if segment[0] == PT_LOAD and segment[3] <= address < segment[3] + segment[5]
    )
    starts = [strings + value for tag, value in entries if tag == DT_NEEDED]
    return [data[start : data.index(b"\0", start)].decode() for start in starts]


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_library_needs_nothing_but_the_c_library(name: str) -> None:
    names = needed(LIBRARIES / f"lib{name}.so")
    assert any(name.startswith("libc.so") for name in names)
    assert [name for name in names if not name.startswith(ALLOWED)] == []


@pytest.mark.parametrize("name", ["gelu", "opsmith_ops"])
def test_nothing_for_its_developers_is_in_a_library(name: str) -> None:
    """Such as a variable of the environment by which it would write its code into files."""
    assert b"DBG_" not in (LIBRARIES / f"lib{name}.so").read_bytes()
