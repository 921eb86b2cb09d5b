"""Builds and loads the peers written in C++ (`cpp/peer.cpp`, `cpp/lltm.cpp`); needs a C++ compiler."""

from __future__ import annotations

from harness import ROOT, Options


def load(options: Options, source: str = "peer") -> None:
    """Make the ops of `cpp/<source>.cpp` available, compiled with `-O3`: `torch.ops.peer` and
    `torch.ops.peer_autograd`, or for `lltm` `torch.ops.peer_lltm`."""
    from torch.utils.cpp_extension import load as load_extension

    folder = options.libraries.parent / "bench-cpp" / source
    folder.mkdir(parents=True, exist_ok=True)
    load_extension(
        f"opsmith_bench_{source}",
        [str(ROOT / "benches" / "cpp" / f"{source}.cpp")],
        extra_cflags=["-O3"],
        build_directory=str(folder),
        is_python_module=False,
    )
