"""One of two processes that divide calls: `distributed_worker.py <address> <number> <library>`."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
import opsmith
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

address, number, path = sys.argv[1:]
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.config.update("jax_num_cpu_devices", 1)
jax.distributed.initialize(address, 2, int(number))

f = opsmith.load(path).pairwise_manhattan_distance
rng = np.random.default_rng(0)
x, y = rng.random((8, 3)), rng.random((6, 3))
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("i",))
half = x[4 * int(number) :][:4]
rows = jax.make_array_from_process_local_data(NamedSharding(mesh, P("i")), half)
whole = jax.device_put(y, NamedSharding(mesh, P()))


def loss(x: jax.Array, y: jax.Array) -> jax.Array:
    return (f(x, y) ** 2).sum()


programs = [jax.jit(f), jax.jit(jax.grad(loss)), jax.jit(jax.grad(loss, 1))]
answers = [program(rows, whole) for program in programs]
compiled = programs[0].lower(rows, whole).compile().as_text()
assert "all-gather" not in compiled and answers[0].sharding.spec == P("i"), compiled
together = [multihost_utils.process_allgather(answer, tiled=True) for answer in answers]
for found, program in zip(together, programs, strict=True):
    np.testing.assert_allclose(found, program(jnp.asarray(x), jnp.asarray(y)), rtol=1e-12)
print("well", number)
