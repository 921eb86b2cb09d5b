"""What a build tells, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

TOOK = "one to four minutes, six on a busy machine with two cores"
"""How long the build of the dependencies takes."""


class Progress:
    """Tells each step when `verbose`; what takes a minute is always told."""

    def __init__(self, name: str, verbose: bool) -> None:
        self._name = name
        self.verbose = verbose

    def step(self, text: str) -> None:
        """One step, for those who asked."""
        if self.verbose:
            self._say(text)

    def waiting(self, what: str) -> None:
        """Another process is at it."""
        self._say(f"waiting for another process that builds {what}")

    @contextmanager
    def dependencies(self) -> Iterator[Callable[[str], None]]:
        """Around the build of the dependencies; the function inside takes Cargo's lines."""
        started, count, announced = time.perf_counter(), 0, False
        on_terminal = sys.stderr is not None and sys.stderr.isatty()

        def told(line: str) -> None:
            nonlocal count, announced
            # A build in which nothing had to be done says only that it is finished.
            if not announced and line.startswith(("Compiling", "Downloading", "Updating")):
                announced = True
                self._say(f"compiling the crates it depends on, once for this toolchain: {TOOK}")
            if line.startswith("Compiling"):
                count += 1
                text = f"[{count}] {line.removeprefix('Compiling ').split(' (')[0]}"
                if on_terminal and not self.verbose:
                    sys.stderr.write(f"\r\x1b[Kopsmith.jit: {text}")
                    sys.stderr.flush()
                else:
                    self._say(text)

        try:
            yield told
        finally:
            if on_terminal and count and not self.verbose:
                sys.stderr.write("\r\x1b[K")
        if announced:
            self._say(f"{count} crates compiled in {time.perf_counter() - started:.0f} s")

    def _say(self, text: str) -> None:
        if sys.stderr is not None:
            print(f"opsmith.jit: {self._name}: {text}", file=sys.stderr, flush=True)
