"""Which systems a shared library runs on: the platform tag of its wheel.

A library that needs the C library and the compiler's runtime alone runs wherever these are as new as the
newest versions of symbols that it asks for (PEP 600).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opsmith._native import read_file
from opsmith.jit._errors import BuildError

# What every Linux with glibc has; anything else would have to come with the wheel.
_EVERYWHERE = re.compile(
    r"(libc|libm|libdl|librt|libpthread|libutil|libresolv|libgcc_s|ld-linux-[a-z0-9-]+)\.so\.\d+"
)
_MACHINES = {62: "x86_64", 183: "aarch64"}
# Installers know of none that is older, and Rust supports none.
_OLDEST = (2, 17)
# What the tag was called before it named the release.
_FORMER = {"manylinux2014": "manylinux_2_17"}
# What glibc calls a way of relocating that it has since 2.36.
_NAMED = {"GLIBC_ABI_DT_RELR": (2, 36)}

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_STRTAB, _DT_VERNEED, _DT_VERNEEDNUM = 1, 5, 0x6FFFFFFE, 0x6FFFFFFF


@dataclass(frozen=True)
class Needs:
    """What a shared library needs of the system."""

    machine: str
    libraries: tuple[str, ...]
    versions: frozenset[str]

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """The libraries and versions of symbols that not every Linux of some age has."""
        unusual = [
            version for version in self.versions if version.startswith("GLIBC_") and not _glibc(version)
        ]
        return (*(name for name in self.libraries if not _EVERYWHERE.fullmatch(name)), *sorted(unusual))

    @property
    def platform(self) -> str:
        """The platform tag: `manylinux_2_34_x86_64`, or `linux_x86_64` where something is needed that other
        systems may lack."""
        if self.elsewhere:
            return f"linux_{self.machine}"
        major, minor = max([_OLDEST, *filter(None, map(_glibc, self.versions))])
        return f"manylinux_{major}_{minor}_{self.machine}"

    def newer_than(self, system: tuple[int, int]) -> tuple[str, ...]:
        """What it needs that not every system with this release of glibc has."""
        newer = [version for version in self.versions if (_glibc(version) or system) > system]
        return (*self.elsewhere, *sorted(newer))

    def runs_on(self, system: tuple[int, int]) -> bool:
        """Whether every system with this release of glibc has all of it."""
        return not self.newer_than(system)


def oldest_system(platform: str) -> tuple[int, int]:
    """The release of glibc that the tag of a platform names: `manylinux_2_28` is (2, 28)."""
    told = re.fullmatch(r"manylinux_(\d+)_(\d+)", _FORMER.get(platform, platform))
    if told is None or (asked := (int(told[1]), int(told[2]))) < _OLDEST:
        raise BuildError(
            f"there is no compatibility {platform!r}\n  → name the oldest system that the wheel is for: "
            "manylinux_2_17, manylinux_2_28 or another release of glibc from 2.17 on"
        )
    return asked


def needs(library: Path) -> Needs:
    """Reads a shared library, which has been loaded before: it is whole, and for this kind of machine."""
    file = _File(read_file(library))
    return Needs(file.machine, tuple(file.libraries()), frozenset(file.versions()))


def _glibc(version: str) -> tuple[int, int] | None:
    told = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", version)
    return (int(told[1]), int(told[2])) if told else _NAMED.get(version)


class _File:
    """An ELF file of 64 bits, little endian."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        (number,) = struct.unpack_from("<H", data, 18)
        self.machine = _MACHINES.get(number, f"machine{number}")
        (programs,) = struct.unpack_from("<Q", data, 32)
        size, count = struct.unpack_from("<HH", data, 54)
        self._segments: list[tuple[int, int, int]] = []
        self._dynamic: list[tuple[int, int]] = []
        for at in range(programs, programs + size * count, size):
            kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", data, at)
            if kind == _PT_LOAD:
                self._segments.append((address, offset, length))
            elif kind == _PT_DYNAMIC:
                self._dynamic = list(struct.iter_unpack("<QQ", data[offset : offset + length // 16 * 16]))
        self._values = dict(self._dynamic)
        self._names = self._offset(self._values[_DT_STRTAB])

    def libraries(self) -> Iterator[str]:
        """The libraries that the loader opens with this one."""
        return (self._name(value) for tag, value in self._dynamic if tag == _DT_NEEDED)

    def versions(self) -> Iterator[str]:
        """The versions of symbols that it asks for."""
        if _DT_VERNEED not in self._values:
            return
        at = self._offset(self._values[_DT_VERNEED])
        for _ in range(self._values[_DT_VERNEEDNUM]):
            _, count, _, first, following = struct.unpack_from("<HHIII", self._data, at)
            version = at + first
            for _ in range(count):
                _, _, _, name, step = struct.unpack_from("<IHHII", self._data, version)
                yield self._name(name)
                version += step
            at += following

    def _offset(self, address: int) -> int:
        """Where in the file lies what is loaded at an address."""
        return next(
            address - start + offset
            for start, offset, length in self._segments
            if start <= address < start + length
        )

    def _name(self, at: int) -> str:
        start = self._names + at
        return self._data[start : self._data.index(0, start)].decode()
