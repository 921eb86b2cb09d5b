"""PyTorch's DTensor: ops on tensors that are spread over processes, against one process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sharded
import torch.distributed as dist
from torch.distributed._local_tensor import LocalTensorMode
from torch.distributed.tensor import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

RANKS = 4


@pytest.fixture(scope="module", autouse=True)
def group() -> Iterator[None]:
    """Processes that are simulated in this one."""
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    yield
    dist.destroy_process_group()


@pytest.fixture(params=[(4,), (2, 2)], ids=["a mesh of 4", "a mesh of 2 x 2"])
def mesh(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Of simulated processes."""
    with LocalTensorMode(RANKS):
        yield init_device_mesh("cpu", request.param)


@pytest.mark.parametrize("library", sharded.LIBRARIES)
def test_values_and_gradients_of_simulated_processes_are_those_of_one(library: str, mesh: Any) -> None:
    count = sum(sharded.compare(call, mesh, seed) for seed, call in enumerate(sharded.calls(library)))
    print(f"{library}: {count} calls")
    assert count


def test_generated_bodies_of_simulated_processes_are_those_of_one(mesh: Any) -> None:
    bodies = sharded.bodies()
    count = sum(sharded.compare(call, mesh, seed) for seed, call in enumerate(bodies))
    print(f"{len(bodies)} bodies: {count} calls")
    assert len(bodies) == sharded.BODIES
