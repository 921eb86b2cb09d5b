"""An eager addition of two 1 x 1 float32 matrices from Rust. The peer is candle.

One program calls both in turns, each a hundred thousand times in a row. The figures are medians,
and of these the medians of five processes: in two of eight, calls took nearly twice as long.
"""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Iterator

from harness import OURS, ROOT, Case, Options, Target

TITLE = "Eager calls from Rust"

MANIFEST = ROOT / "benches" / "eager" / "Cargo.toml"


def cases(options: Options) -> Iterator[Case]:
    """The one addition."""
    command = ["cargo", "run", "--quiet", "--release", "--locked", "--manifest-path", str(MANIFEST)]
    command += ["--target-dir", str(options.libraries.parent / "eager")]
    outputs = [
        subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout for _ in range(5)
    ]
    columns = zip(*(map(float, output.split()) for output in outputs), strict=True)
    ours, theirs = (statistics.median(nanoseconds) / 1e9 for nanoseconds in columns)
    contenders = {OURS: lambda: ours, "candle": lambda: theirs}
    yield Case("1x1 addition", contenders, [Target(1.0, ("candle",))], rounds=1)
