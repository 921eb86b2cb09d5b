"""From a changed source to the first result: Manhattan distances with a hand-written gradient.

`opsmith.jit.load` against `torch.utils.cpp_extension.load`, on a machine where everything else is built.
Opsmith's library serves every framework, the other one PyTorch. An unchanged source is loaded in a new
process; only the loading is measured.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from harness import OURS, ROOT, Case, Options, Target, isolated

TITLE = "Just-in-time builds"
PEER = "cpp_extension"


def cases(options: Options) -> Iterator[Case]:
    """A build after a change, and a load without one."""
    from opsmith import jit

    cache = jit.cache_folder()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shifts = itertools.count(time.time_ns() % 10**6)
        contenders: dict[str, Callable[[], object]] = {
            OURS: lambda: seconds(load_ours, folder, next(shifts)),
            PEER: lambda: seconds(load_peer, folder, next(shifts)),
        }
        # Once for what is built once on a machine: the dependencies of one, nothing for the other.
        contenders[OURS]()
        yield Case("changed", contenders, [Target(1.5), Target(0.1, (PEER,))], rounds=3)
        unchanged: dict[str, Callable[[], object]] = {
            OURS: partial(isolated, seconds, load_ours, folder, 0, str(cache)),
            PEER: partial(isolated, seconds, load_peer, folder, 0),
        }
        for function in unchanged.values():
            function()
        yield Case("unchanged", unchanged, [Target(0.05)], rounds=5)


def seconds(load: Callable[..., Any], folder: Path, shift: int, cache: str = "") -> float:
    """How long it takes until the op of the source with this shift has been called."""
    import opsmith.jit
    import torch
    import torch.utils.cpp_extension

    assert not cache or str(opsmith.jit.cache_folder()) == cache
    x = torch.zeros(2, 2)
    suffix, text = {load_ours: ("rs", "rust/jit_op.rs"), load_peer: ("cpp", "cpp/jit_op.cpp")}[load]
    file = folder / f"distance_{shift}.{suffix}"
    if not file.exists():
        file.write_text((ROOT / "benches" / text).read_text().replace("SHIFT", f"{shift}.0"))
    started = time.perf_counter()
    z = load(file, folder).distance(x, x)
    taken = time.perf_counter() - started
    assert float(z[0, 0]) == shift
    return taken


def load_ours(file: Path, folder: Path) -> Any:
    """The library, for every framework."""
    from opsmith import jit

    return jit.load("bench_jit", file)


def load_peer(file: Path, folder: Path) -> Any:
    """The extension in C++, for PyTorch."""
    from torch.utils.cpp_extension import load

    build = folder / file.stem
    build.mkdir(exist_ok=True)
    return load(f"bench_jit_{file.stem}", [str(file)], extra_cflags=["-O3"], build_directory=str(build))
