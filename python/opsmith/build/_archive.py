"""Archives whose bytes depend on what is in them and on nothing else."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import tarfile
import time
import zipfile
from pathlib import Path

from opsmith._native import read_file
from opsmith.build._metadata import Metadata
from opsmith.jit._errors import BuildError

# The first moment that an archive of ZIP can tell of.
_EARLIEST = 315532800


def write_wheel(
    folder: Path, metadata: Metadata, tag: str, files: dict[str, bytes], extra: dict[str, bytes]
) -> Path:
    """Writes a wheel with these files, and what describes them, `extra` beside it."""
    info = f"{metadata.stem}.dist-info"
    about = f"Wheel-Version: 1.0\nGenerator: opsmith\nRoot-Is-Purelib: false\nTag: {tag}\n"
    content = dict(sorted(files.items()))
    content |= {f"{info}/licenses/{name}": read_file(path) for name, path in metadata.licences.items()}
    content |= {f"{info}/{name}": data for name, data in sorted(extra.items())}
    content |= {f"{info}/METADATA": metadata.text().encode(), f"{info}/WHEEL": about.encode()}
    lines = [f"{_field(name)},{_hash(data)},{len(data)}\n" for name, data in content.items()]
    content[f"{info}/RECORD"] = "".join([*lines, f"{info}/RECORD,,\n"]).encode()
    data = io.BytesIO()
    date = time.gmtime(max(_moment(), _EARLIEST))[:6]
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, written in content.items():
            entry = zipfile.ZipInfo(name, date)
            entry.create_system = 3
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
            archive.writestr(entry, written)
    return _put(folder / f"{metadata.stem}-{tag}.whl", data.getvalue())


def write_sdist(folder: Path, metadata: Metadata, files: dict[str, bytes]) -> Path:
    """Writes an archive of sources, and `PKG-INFO`."""
    data = io.BytesIO()
    moment = _moment()
    content = {**files, "PKG-INFO": metadata.text().encode()}
    with (
        gzip.GzipFile("", "wb", fileobj=data, mtime=moment) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, written in sorted(content.items()):
            entry = tarfile.TarInfo(f"{metadata.stem}/{name}")
            entry.size, entry.mtime, entry.mode = len(written), moment, 0o644
            archive.addfile(entry, io.BytesIO(written))
    return _put(folder / f"{metadata.stem}.tar.gz", data.getvalue())


def _moment() -> int:
    """When the files are said to be from: as https://reproducible-builds.org has it, or always the same."""
    told = os.environ.get("SOURCE_DATE_EPOCH", str(_EARLIEST))
    if not told.isdecimal():
        raise BuildError(f"SOURCE_DATE_EPOCH is {told!r}\n  → give it seconds since 1970, or unset it")
    return int(told)


def _hash(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def _field(name: str) -> str:
    """A field of a list whose commas divide."""
    return f'"{name}"' if "," in name else name


def _put(path: Path, data: bytes) -> Path:
    # Whoever has the former one open goes on reading it.
    made = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            made.write_bytes(data)
            made.replace(path)
        finally:
            made.unlink(missing_ok=True)
    except OSError as error:
        why = error.strerror or error
        raise BuildError(
            f"{path} cannot be written: {why}\n  → choose a folder that can be written to and has room"
        ) from error
    return path
