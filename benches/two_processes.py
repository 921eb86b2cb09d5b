"""One process and two: calls whose rows are divided.

    python benches/two_processes.py {dtensor,jax,dask} [rows [op]]

`op` is `gaussian_convolution` (rows of 3 and of 3, with a weight each) or `pairwise_manhattan_distance` (rows
of 3 and of 3), in float32. The line has the median times of a call in one process with one thread, in one
process with two threads, and divided over two processes with one thread each, which are there before the
clock starts; the ratio of the last to the first; and the bytes that the processes send each other for it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

THREADS = os.environ.setdefault("OPSMITH_NUM_THREADS", "1")
os.environ["OMP_NUM_THREADS"] = THREADS
os.environ["NPROC"] = THREADS  # for XLA's pool of threads

import numpy as np  # noqa: E402

FOLDER = Path(os.environ.get("OPSMITH_LIB_DIR", Path(__file__).parents[1] / "target" / "release"))
RUNS = 5
LIBRARIES = {"gaussian_convolution": "kernels", "pairwise_manhattan_distance": "distances"}


def function(op: str) -> Any:
    """Of the library."""
    import opsmith

    return getattr(opsmith.load(FOLDER / f"lib{LIBRARIES[op]}.so"), op)


def inputs(op: str, rows: int) -> list[Any]:
    """Points, points and, for a convolution, a weight for each of the latter."""
    rng = np.random.default_rng(0)
    columns = (3, 3, 1) if op == "gaussian_convolution" else (3, 3)
    return [rng.random((rows, count), np.float32) for count in columns]


def median(call: Callable[[], Any]) -> float:
    """Seconds."""
    call()
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return sorted(times)[RUNS // 2]


def whole(engine: str, op: str, rows: int) -> float:
    """Seconds of a call in this process."""
    given = inputs(op, rows)
    if engine == "dtensor":
        import torch

        torch.set_num_threads(int(THREADS))
        tensors = [torch.from_numpy(x) for x in given]
        f = function(op)
        return median(lambda: f(*tensors))
    if engine == "jax":
        import jax
        import jax.numpy as jnp

        arrays, f = [jnp.asarray(x) for x in given], jax.jit(function(op))
        return median(lambda: f(*arrays).block_until_ready())
    f = function(op)
    return median(lambda: f(*given))


def dtensor(op: str, rows: int, rank: int, port: str) -> tuple[float, str]:
    """Rows on two gloo processes."""
    f = function(op)
    import torch
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://localhost:{port}", rank=rank, world_size=2)
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    tensors = [torch.from_numpy(x) for x in inputs(op, rows)]
    parts = [distribute_tensor(x, mesh, [Replicate() if i else Shard(0)]) for i, x in enumerate(tensors)]

    def divided() -> Any:
        found = f(*parts)
        assert isinstance(found, DTensor) and found.placements == (Shard(0),)
        dist.barrier()
        return found

    seconds = median(divided)
    half = slice(rank * rows // 2, (rank + 1) * rows // 2)
    torch.testing.assert_close(divided().to_local(), f(tensors[0][half], *tensors[1:]))
    dist.destroy_process_group()
    return seconds, "0 bytes"


def in_jax(op: str, rows: int, rank: int, port: str) -> tuple[float, str]:
    """Rows on two gloo processes."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import multihost_utils
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_num_cpu_devices", 1)
    jax.distributed.initialize(f"localhost:{port}", 2, rank)
    f, given = jax.jit(function(op)), inputs(op, rows)
    mesh = Mesh(np.array(jax.devices()), ("i",))
    half = given[0][rank * rows // 2 :][: rows // 2]
    x = jax.make_array_from_process_local_data(NamedSharding(mesh, P("i")), half)
    rest = [jax.make_array_from_process_local_data(NamedSharding(mesh, P()), y) for y in given[1:]]
    text = f.lower(x, *rest).compile().as_text()
    assert "all-gather" not in text and "all-reduce" not in text

    def divided() -> None:
        f(x, *rest).block_until_ready()
        multihost_utils.sync_global_devices("done")

    seconds = median(divided)
    part = f(x, *rest).addressable_shards[0].data
    np.testing.assert_allclose(part, f(jnp.asarray(half), *map(jnp.asarray, given[1:])), rtol=1e-5)
    return seconds, "0 bytes"


def in_dask(op: str, rows: int) -> tuple[float, str]:
    """Rows in a cluster of two processes; the result stays there."""
    import dask.array as da
    from distributed import Client, LocalCluster, wait

    f, given = function(op), inputs(op, rows)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        # Others each time: a result that is there is not computed again.
        points = [given[0] + np.float32(step / 64) for step in range(RUNS + 1)]
        xs = [client.persist(da.from_array(each, chunks=(rows // 4, 3))) for each in points]
        rest = [client.persist(da.from_array(y, chunks=-1)) for y in given[1:]]
        calls = [f(x, *rest) for x in xs]
        wait([*xs, *rest])
        left = iter(calls)
        seconds = median(lambda: wait(client.persist(next(left))))
        divided = calls[0]
        np.testing.assert_allclose(
            divided[: rows // 8].compute(), f(given[0][: rows // 8], *given[1:]), rtol=1e-5
        )
    return seconds, f"{sum(y.nbytes for y in given[1:])} bytes, of what all chunks take, once"


def started(arguments: list[str], threads: int) -> subprocess.Popen[str]:
    """This program in another process."""
    variables = os.environ | {"OPSMITH_NUM_THREADS": str(threads)}
    command = [sys.executable, __file__, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables)


def answer(worker: subprocess.Popen[str]) -> str:
    """The last line of what it says."""
    said, _ = worker.communicate()
    if worker.returncode:
        sys.exit(f"a process ended with {worker.returncode}")
    return said.splitlines()[-1] if said else ""


def main() -> None:
    """Starts the processes, or is one of them."""
    engine, rows, op, *role = [*sys.argv[1:], *("20480", "gaussian_convolution")[len(sys.argv) - 2 :]]
    if role == ["whole"]:
        print(whole(engine, op, int(rows)))
    elif role == ["cluster"]:
        print(*in_dask(op, int(rows)))
    elif role:
        found = {"dtensor": dtensor, "jax": in_jax}[engine](op, int(rows), int(role[0]), role[1])
        print(*found)
    else:
        one, two = (float(answer(started([engine, rows, op, "whole"], threads))) for threads in (1, 2))
        if engine == "dask":
            workers = [started([engine, rows, op, "cluster"], 1)]
        else:
            with socket.socket() as probe:
                probe.bind(("localhost", 0))
                port = str(probe.getsockname()[1])
            workers = [started([engine, rows, op, str(rank), port], 1) for rank in range(2)]
        answers = [answer(worker) for worker in workers]
        seconds, sent = answers[0].split(" ", 1)
        times = ", ".join(f"{each * 1e3:.1f} ms" for each in (one, two, float(seconds)))
        print(f"{engine}, {op}, {rows} rows: {times}, {float(seconds) / one:.3f}, {sent}")


if __name__ == "__main__":
    main()
