"""Cargo, as the author would run it, with the author's settings."""

from __future__ import annotations

import codecs
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, TextIO

from opsmith.jit import _toolchain
from opsmith.jit._errors import BuildError


def run(
    arguments: list[str], folder: Path, *, show: bool = False, program: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs Cargo in a folder, or a program in its place; with `show`, what it says is shown as it comes."""
    cargo = _toolchain.program("CARGO", "cargo")
    environment = dict(os.environ)
    if program is not None:
        # It looks for Cargo, and for the Python that has zig.
        environment |= {"CARGO": cargo, "CARGO_ZIGBUILD_PYTHON_PATH": sys.executable}
    if show and sys.stderr is not None and sys.stderr.isatty():
        # It sees no terminal, for what it says is read on the way there.
        width = str(shutil.get_terminal_size().columns)
        looks = {"COLOR": "always", "PROGRESS_WHEN": "always", "PROGRESS_WIDTH": width}
        environment = {**{f"CARGO_TERM_{name}": look for name, look in looks.items()}, **environment}
    command = [program or cargo, *arguments]
    with tempfile.TemporaryFile() as told:
        try:
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=subprocess.PIPE,
                cwd=folder,
            )
        except OSError as error:
            raise BuildError(
                f"`{command[0]}` cannot be started: {error.strerror}\n  → {_toolchain.INSTALL}"
            ) from error
        with process:
            said = _passed_on(process.stderr, sys.stderr if show else None)
        told.seek(0)
        results = told.read().decode("utf-8", "replace")
    return subprocess.CompletedProcess(command, process.returncode, results, said)


def _passed_on(source: IO[bytes] | None, to: TextIO | None) -> str:
    """What comes from there, which is shown as it comes where that is wanted."""
    assert source is not None
    said, decoder = "", codecs.getincrementaldecoder("utf-8")("replace")
    while part := os.read(source.fileno(), 1 << 16):
        text = decoder.decode(part)
        said += text
        # Nobody may be listening any more; the build goes on.
        with suppress(OSError, ValueError):
            if to is not None:
                to.write(text)
                to.flush()
    return said
