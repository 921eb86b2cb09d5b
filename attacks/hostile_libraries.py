"""Loads files that are no library of operators, or a damaged one, and shows what `opsmith` says of each.

Run it on any built library: `python attacks/hostile_libraries.py target/release/libdistances.so`.
"""

from __future__ import annotations

import os
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import opsmith

SYMBOL = b"opsmith_library_v1"
LARGE = 6 << 30
IN_LARGE_FILE = "names of 6 GiB in a file of no more blocks"


def table_offset(library: bytes) -> int:
    """Where in the file the table lies that the library exports."""
    section_table, entry_size, count = (
        *struct.unpack_from("<Q", library, 40),
        *struct.unpack_from("<HH", library, 58),
    )
    sections = [
        struct.unpack_from("<IIQQQQII", library, section_table + i * entry_size) for i in range(count)
    ]
    dynsym = next(section for section in sections if section[1] == 11)
    names = sections[dynsym[6]][4]
    for at in range(dynsym[4], dynsym[4] + dynsym[5], 24):
        name, _, _, section, address, _ = struct.unpack_from("<IBBHQQ", library, at)
        start = names + name
        if library[start : library.index(b"\0", start)] == SYMBOL:
            return sections[section][4] + address - sections[section][3]
    raise LookupError(f"the library does not export {SYMBOL.decode()}")


def hostile(library: bytes) -> Iterator[tuple[str, bytes, str]]:
    """Name and content of each hostile file, and a part of what must be said of it."""

    def changed(at: int, code: str, value: int) -> bytes:
        content = bytearray(library)
        struct.pack_into(code, content, at, value)
        return bytes(content)

    yield "nothing", b"", "is an empty file"
    yield "source.py", b"import numpy\n", "a text file"
    yield "script.sh", b"#!/bin/sh\nrm -rf .\n", "a script"
    yield "wheel.whl", b"PK\x03\x04", "a ZIP archive"
    yield "archive.a", b"!<arch>\n", "an archive of object files"
    yield "noise", bytes(range(256)) * 40, "data of an unknown kind"
    yield "32-bit", changed(4, "<B", 1), "32-bit"
    yield "big-endian", changed(5, "<B", 2), "big-endian"
    yield "program", changed(16, "<H", 2), "is a program"
    yield "other machine", changed(18, "<H", 243), "RISC-V"
    yield "program headers far away", changed(32, "<Q", 1 << 60), "the program headers"
    yield "section headers far away", changed(40, "<Q", 1 << 40), "the section headers"
    yield "other symbol", library.replace(SYMBOL, b"opsmith_library_v0"), "its hash table do not match"
    for length in [5, 63, 64, 500, *range(4096, len(library), max(len(library) // 40, 1)), len(library) - 1]:
        yield f"cut off at {length}", library[:length], "truncated or damaged"
    table = table_offset(library)
    yield "ABI version 0", changed(table + 8, "<I", 0), "version 0 of the Opsmith ABI"
    for size in [0, 8, 12, 40]:
        yield f"table of {size} bytes", changed(table, "<Q", size), f"{size} bytes"
    (sections,) = struct.unpack_from("<Q", library, 40)
    (names,) = struct.unpack_from("<H", library, 62)
    header = bytearray(library)
    struct.pack_into("<QQ", header, sections + 64 * names + 24, 0, LARGE)
    yield IN_LARGE_FILE, bytes(header), "more than 268435456 bytes"


def answers(library: bytes, folder: Path) -> Iterator[tuple[str, str, str]]:
    """Name of each hostile file, what must be said of it, and what was said."""
    for number, (name, content, expected) in enumerate(hostile(library)):
        path = folder / f"{number}.so"
        path.write_bytes(content)
        if name == IN_LARGE_FILE:
            os.truncate(path, LARGE)
        try:
            answer = f"loaded: {opsmith.load(path)}"
        except opsmith.Error as error:
            answer = f"{type(error).__name__}: {error}".replace(f"{path}: ", "")
        path.unlink()
        yield name, expected, answer


def main() -> int:
    """Show every answer; the status says whether all were as they must be."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, expected, answer in answers(Path(sys.argv[1]).read_bytes(), Path(folder)):
            right = expected in answer and not answer.startswith("loaded")
            wrong += not right
            print(f"{'ok   ' if right else 'WRONG'} {name}: {answer}")
    print(f"{wrong} wrong answers")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
