"""An eager addition of two 1 x 1 float32 matrices from Rust. The peer is candle.

One program calls both in turns, each a hundred thousand times in a row. The figures are medians.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

from harness import OURS, ROOT, Case, Options, Target

TITLE = "Eager calls from Rust"

MANIFEST = ROOT / "benches" / "eager" / "Cargo.toml"


def cases(options: Options) -> Iterator[Case]:
    """The one addition."""
    command = ["cargo", "run", "--quiet", "--release", "--locked", "--manifest-path", str(MANIFEST)]
    command += ["--target-dir", str(options.libraries.parent / "eager")]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    ours, theirs = (float(nanoseconds) / 1e9 for nanoseconds in output.split())
    contenders = {OURS: lambda: ours, "candle": lambda: theirs}
    yield Case("1x1 addition", contenders, [Target(1.0, ("candle",))], rounds=1)
