"""Builds and loads the peers written in C++ (`cpp/peer.cpp`); needs a C++ compiler."""

from __future__ import annotations

from harness import ROOT, Options

SOURCE = ROOT / "benches" / "cpp" / "peer.cpp"


def load(options: Options) -> None:
    """Make `torch.ops.peer` and `torch.ops.peer_autograd` available, compiled with `-O3`."""
    from torch.utils.cpp_extension import load as load_extension

    folder = options.libraries.parent / "bench-cpp"
    folder.mkdir(parents=True, exist_ok=True)
    load_extension(
        "opsmith_bench_peer",
        [str(SOURCE)],
        extra_cflags=["-O3"],
        build_directory=str(folder),
        is_python_module=False,
    )
