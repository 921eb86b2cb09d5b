"""One process and two: the Gaussian convolution over rows that are divided.

    python benches/two_processes.py {dtensor,jax,dask} [rows]

Each line is the median time of a call in a process with one thread, then of the same call divided over two
such processes that are there before the clock starts, their ratio, and the bytes that the processes send each
other. The first is measured while the others wait.
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

os.environ["OPSMITH_NUM_THREADS"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["NPROC"] = "1"  # for XLA's pool of threads

import numpy as np

FOLDER = Path(os.environ.get("OPSMITH_LIB_DIR", Path(__file__).parents[1] / "target" / "release"))
RUNS = 5


def inputs(rows: int) -> list[Any]:
    """Points, points and a weight for each of the latter, as float32."""
    rng = np.random.default_rng(0)
    return [rng.random(shape, np.float32) for shape in ((rows, 3), (rows, 3), (rows, 1))]


def median(call: Callable[[], Any]) -> float:
    """Seconds."""
    call()
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return sorted(times)[RUNS // 2]


def tell(name: str, one: float, two: float, sent: str) -> None:
    """The line."""
    print(f"{name}: {one * 1e3:.1f} ms, {two * 1e3:.1f} ms, {two / one:.3f}, {sent}", flush=True)


def dtensor(rank: int, port: str, rows: int) -> None:
    """Rows of x on two gloo processes."""
    import opsmith
    import torch
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://localhost:{port}", rank=rank, world_size=2)
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    f = opsmith.load(FOLDER / "libkernels.so").gaussian_convolution
    whole = [torch.from_numpy(x) for x in inputs(rows)]
    parts = [distribute_tensor(x, mesh, [Shard(0) if i == 0 else Replicate()]) for i, x in enumerate(whole)]

    def divided() -> Any:
        found = f(*parts)
        assert isinstance(found, DTensor) and found.placements == (Shard(0),)
        dist.barrier()
        return found

    one = median(lambda: f(*whole)) if rank == 0 else 0.0
    dist.barrier()
    two = median(divided)
    expected = f(*whole)[rows // 2 :] if rank else f(*whole)[: rows // 2]
    torch.testing.assert_close(divided().to_local(), expected)
    if rank == 0:
        tell("dtensor", one, two, "0 bytes")
    dist.destroy_process_group()


def in_jax(rank: int, port: str, rows: int) -> None:
    """Rows of x on two gloo processes."""
    import jax
    import jax.numpy as jnp
    import opsmith
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_num_cpu_devices", 1)
    jax.distributed.initialize(f"localhost:{port}", 2, rank)
    f = jax.jit(opsmith.load(FOLDER / "libkernels.so").gaussian_convolution)
    mesh = Mesh(np.array(jax.devices()), ("i",))
    local = inputs(rows)
    half = local[0][rank * rows // 2 :][: rows // 2]
    x = jax.make_array_from_process_local_data(NamedSharding(mesh, P("i")), half)
    rest = [jax.make_array_from_process_local_data(NamedSharding(mesh, P()), y) for y in local[1:]]
    whole = [jnp.asarray(y) for y in local]
    together = jax.jit(jnp.sum)
    text = f.lower(x, *rest).compile().as_text()
    assert "all-gather" not in text and "all-reduce" not in text
    one = median(lambda: f(*whole).block_until_ready()) if rank == 0 else 0.0
    together(x).block_until_ready()
    # A sum of all parts ends when every process has.
    two = median(lambda: together(f(x, *rest)).block_until_ready())
    part = f(x, *rest).addressable_shards[0].data
    np.testing.assert_allclose(part, f(*whole)[rank * rows // 2 :][: rows // 2], rtol=1e-5)
    if rank == 0:
        tell("jax", one, two, "4 bytes, of the sum that ends a run")


def in_dask(rows: int) -> None:
    """Rows of x in a cluster of two processes."""
    import dask.array as da
    import opsmith
    from distributed import Client, LocalCluster

    f = opsmith.load(FOLDER / "libkernels.so").gaussian_convolution
    whole = inputs(rows)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        x = client.persist(da.from_array(whole[0], chunks=(rows // 2, 3)))
        rest = [client.persist(da.from_array(y, chunks=-1)) for y in whole[1:]]
        divided = f(x, *rest)
        one = median(lambda: f(*whole))
        # The sum: else the result is sent to this process.
        two = median(lambda: divided.sum().compute())
        np.testing.assert_allclose(divided.compute(), f(*whole), rtol=1e-5)
    sent = sum(y.nbytes for y in whole[1:])
    tell("dask", one, two, f"{sent} bytes of y and its weights, once")


def main() -> None:
    """Starts the processes."""
    engine, rows, *rank = sys.argv[1:] if len(sys.argv) > 2 else [*sys.argv[1:], "20480"]
    if engine == "dask":
        in_dask(int(rows))
    elif rank:
        {"dtensor": dtensor, "jax": in_jax}[engine](int(rank[0]), rank[1], int(rows))
    else:
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            port = str(probe.getsockname()[1])
        commands = [[sys.executable, __file__, engine, rows, str(rank), port] for rank in range(2)]
        workers = [subprocess.Popen(command) for command in commands]
        sys.exit(max(worker.wait() for worker in workers))


if __name__ == "__main__":
    main()
