"""Changes numbers in the tables of a library, one at a time, and loads each file that `opsmith` does not
refuse in a process of its own: none may die.

Run it on any built library: `python attacks/damaged_tables.py libdistances.so [NUMBER [SEED]]`.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import opsmith
from opsmith import _native

# What a table's entries are made of, as `struct` has it.
HEADER = "<16sHHIQQQIHHHHHH"
SEGMENT = "<IIQQQQQQ"
SECTION = "<IIQQQQIIQQ"
DYNAMIC = "<QQ"
SYMBOL = "<IBBHQQ"
RELOCATION = "<QIIQ"
WORD, HALF = "<I", "<H"
# The kind of a symbol that is a function whose answer is the address of another (`STT_GNU_IFUNC`).
CHOOSER = 10
# What the dynamic section calls the first and the last function.
INIT, FINI = 12, 13
# Tables by the kind of section that they are.
OF_SECTIONS = {
    4: ("relocations", RELOCATION),
    5: ("hash table", WORD),
    6: ("dynamic section", DYNAMIC),
    11: ("symbols", SYMBOL),
    0x6FFFFFF6: ("hash table", WORD),
    0x6FFFFFFE: ("needed versions", HALF),
    0x6FFFFFFF: ("versions of symbols", HALF),
}


@dataclass(frozen=True)
class Table:
    """A table of the file."""

    name: str
    code: str
    at: int
    count: int

    def fields(self) -> list[tuple[int, str]]:
        """Place in an entry and code of each number."""
        codes = list(self.code.replace("16s", "B" * 16))[1:]
        sizes = [struct.calcsize(f"<{code}") for code in codes]
        return [(sum(sizes[:index]), f"<{code}") for index, code in enumerate(codes)]


def tables(library: bytes) -> list[Table]:
    """The tables that lead the loader through the file."""
    header = struct.unpack_from(HEADER, library)
    segments, sections = (header[5], header[10]), (header[6], header[12])
    found = [
        Table("header", HEADER, 0, 1),
        Table("program headers", SEGMENT, *segments),
        Table("section headers", SECTION, *sections),
    ]
    for index in range(sections[1]):
        _, kind, flags, _, at, size, *_ = struct.unpack_from(SECTION, library, sections[0] + 64 * index)
        if kind in OF_SECTIONS and flags & 2:
            name, code = OF_SECTIONS[kind]
            found.append(Table(name, code, at, size // struct.calcsize(code)))
    return found


def mutations(library: bytes, number: int, seed: int) -> Iterator[tuple[str, int, bytes]]:
    """The table, the place in the file and the bytes that are put there, of each damaged file."""
    chance = random.Random(seed)
    found = tables(library)
    symbols = next(table.count for table in found if table.code == SYMBOL)
    while number:
        table = chance.choice(found)
        at, code = chance.choice(table.fields())
        size = struct.calcsize(table.code)
        place = table.at + size * chance.randrange(table.count) + at
        other = table.at + size * chance.randrange(table.count) + at
        bits = 8 * struct.calcsize(code)
        (old,) = struct.unpack_from(code, library, place)
        (elsewhere,) = struct.unpack_from(code, library, other)
        near = [old + step for step in (-4096, -16, -8, -1, 1, 8, 16, 4096)]
        far = [0, 1, (1 << bits) - 1, chance.getrandbits(bits), chance.randrange(len(library)), elsewhere]
        new = chance.choice([chance.choice(near), chance.choice(far), old ^ 1 << chance.randrange(bits)])
        new %= 1 << bits
        # Another name or address of a symbol, a function that chooses one in place of one, another symbol or
        # address in a relocation: that makes another program of it that nobody can tell from the first.
        addresses = 2 * len(library)
        fitting = {
            SYMBOL: {0: len(library), 8: addresses},
            RELOCATION: {0: addresses, 12: symbols, 16: addresses},
        }
        chooses = (table.code, at, new & 15) == (SYMBOL, 4, CHOOSER)
        # Nor can another first or last function, which linkers take as an option; they are aligned to 16.
        begins = (table.code, at, new % 16) == (DYNAMIC, 8, 0) and library[place - 8] in (INIT, FINI)
        if new != old and not chooses and not begins and new >= fitting.get(table.code, {}).get(at, 0):
            yield table.name, place, struct.pack(code, new)
            number -= 1


def load_apart(path: Path, patience: int = 60) -> str:
    """What becomes of a process that loads the file, and ends: `loaded`, `refused` or how it died."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(patience)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            opsmith.load(path)
            status = 0
        except opsmith.Error:
            status = 3
        finally:
            # As at the end of a process: what the library has for that is called too.
            if status != 1:
                import ctypes

                ctypes.CDLL(None).exit(status)
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {0: "loaded", 3: "refused"}.get(status, f"died with {status}")


def outcomes(source: Path, folder: Path, number: int, seed: int) -> Iterator[tuple[str, str]]:
    """Each damaged table and the place in it, and what came of it."""
    library = source.read_bytes()
    path = folder / "damaged.so"
    shutil.copy(source, path)
    with open(path, "r+b", buffering=0) as file:
        for table, place, new in mutations(library, number, seed):
            os.pwrite(file.fileno(), new, place)
            try:
                _native.check(path)
                outcome = load_apart(path)
            except opsmith.Error:
                outcome = "refused"
            os.pwrite(file.fileno(), library[place : place + len(new)], place)
            what = f"{table}: {library[place : place + len(new)].hex()} -> {new.hex()} at {place:#x}"
            yield what, outcome


def main() -> int:
    """Show what died, and how many were what; the status says whether none died."""
    if len(sys.argv) not in (2, 3, 4):
        print(__doc__, file=sys.stderr)
        return 2
    number, seed = [*map(int, sys.argv[2:]), *[1000, 1][len(sys.argv) - 2 :]]
    counts: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for what, outcome in outcomes(Path(sys.argv[1]), Path(folder), number, seed):
            kind = outcome.split()[0]
            counts[what.split(":")[0], kind] += 1
            if kind == "died":
                print(f"{what}: {outcome}")
    for table in sorted({table for table, _ in counts}):
        kinds = [f"{counts[table, kind]} {kind}" for kind in ("refused", "loaded", "died")]
        print(f"{table}: {', '.join(kinds)}")
    loaded, died = (sum(n for (_, kind), n in counts.items() if kind == end) for end in ("loaded", "died"))
    print(f"{counts.total()} files, {loaded} loaded, {died} died")
    return 1 if died else 0


if __name__ == "__main__":
    sys.exit(main())
