"""What the processes of `test_dtensor_processes.py` do."""

from __future__ import annotations

import datetime
import json
import threading
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import opsmith
import opsmith.torch
import sharded
import torch
import torch.distributed as dist
from conftest import load
from sharded import whole
from torch import nn
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
    init_device_mesh,
)
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.experimental import implicit_replication

WORLD = 2
CHECKS: dict[str, Callable[[Any], None]] = {}


def check(function: Callable[[Any], None]) -> Callable[[Any], None]:
    """One that every process makes, on a mesh of both."""
    CHECKS[function.__name__] = function
    return function


def begin(rank: int, store: str) -> None:
    """Join the other processes."""
    torch.set_num_threads(1)
    wait = datetime.timedelta(seconds=60)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD, init_method=f"file://{store}", timeout=wait)


def work(rank: int, folder: str) -> None:
    """Make all checks, and write what is wrong by their names."""
    begin(rank, f"{folder}/store")
    mesh = init_device_mesh("cpu", (WORLD,))
    wrong = {}
    for name, function in CHECKS.items():
        torch.manual_seed(0)
        torch._dynamo.reset()
        try:
            function(mesh)
        except Exception:
            wrong[name] = traceback.format_exc()
    Path(folder, f"{rank}.json").write_text(json.dumps(wrong), encoding="utf-8")
    dist.destroy_process_group()


def fail_in_one(rank: int, folder: str) -> None:
    """A call in which the part of process 1 alone is an error."""
    begin(rank, f"{folder}/failing")
    mesh = init_device_mesh("cpu", (WORLD,))
    indices = torch.tensor([0, 1, 2, 9])
    load("opsmith_ops").gather(
        distribute_tensor(torch.rand(3, 2), mesh, [Replicate()]),
        distribute_tensor(indices, mesh, [Shard(0)]),
        axis=0,
    )
    threading.Event().wait()


def miss_in_one(rank: int, folder: str) -> None:
    """Process 1 has no library."""
    begin(rank, f"{folder}/missing")
    load("distances") if rank == 0 else opsmith.load(f"{folder}/libdistances.so")
    threading.Event().wait()


def rows(count: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    """The inputs of a call of distances."""
    return torch.rand(count, 3, dtype=torch.float64), torch.rand(4, 3, dtype=torch.float64)


def close(found: Any, expected: Any) -> None:
    """Equal but for the order of sums."""
    torch.testing.assert_close(whole(found), expected, rtol=1e-9, atol=1e-9)


def raised(function: Callable[[], Any]) -> str:
    """The message of the error that comes."""
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("nothing was raised")


@check
def values_and_gradients(mesh: Any) -> None:
    """Of every library and of generated bodies."""
    every = [call for name in sharded.LIBRARIES for call in sharded.calls(name)] + sharded.bodies()
    for number, call in enumerate(every):
        sharded.compare(replace(call, orders=min(call.orders, 1)), mesh, number, axes=1)


@check
def placements_of_a_call(mesh: Any) -> None:
    """As the free axes say."""
    x, y = rows()
    for function in (
        load("distances").pairwise_manhattan_distance,
        torch.ops.distances.pairwise_manhattan_distance,
    ):
        spread = [distribute_tensor(x, mesh, [Shard(0)]), distribute_tensor(y, mesh, [Replicate()])]
        with CommDebugMode() as communication:
            z = function(*(t.requires_grad_() for t in spread))
        assert communication.get_total_counts() == 0
        assert z.placements == (Shard(0),)
        gradients = torch.autograd.grad(z.sum(), spread)
        assert [g.placements for g in gradients] == [(Shard(0),), (Partial(),)]


@check
def one_gradient_of_two(mesh: Any) -> None:
    """Nobody asks for the other."""
    f = load("distances").pairwise_manhattan_distance
    for wanted in (0, 1):
        expected = list(rows())
        found = [
            distribute_tensor(t, mesh, [p]) for t, p in zip(expected, (Shard(0), Replicate()), strict=True)
        ]
        for inputs in (expected, found):
            inputs[wanted].requires_grad_()
        (one,) = torch.autograd.grad((f(*found) ** 2).sum(), [found[wanted]])
        (other,) = torch.autograd.grad((f(*expected) ** 2).sum(), [expected[wanted]])
        close(one, other)


@check
def an_output_whose_gradient_is_missing(mesh: Any) -> None:
    """Zeros in its place are spread too."""
    step = load("lltm").lltm
    inputs = [torch.rand(shape, dtype=torch.float64) for shape in [(4, 3), (6, 5), (6,), (4, 2), (4, 2)]]
    placements = [Shard(0), Replicate(), Replicate(), Shard(0), Shard(0)]
    for output in (0, 1):

        def loss(*x: torch.Tensor, output: int = output) -> torch.Tensor:
            return step(*x)[output].sum()

        plain = [x.clone().requires_grad_() for x in inputs]
        expected = torch.autograd.grad(loss(*plain), plain, allow_unused=True)
        programs = [loss, torch.compile(loss, fullgraph=True, backend="aot_eager")]
        for program in programs[: 2 - output]:
            both = zip(inputs, placements, strict=True)
            spread = [distribute_tensor(x, mesh, [p]).requires_grad_() for x, p in both]
            found = torch.autograd.grad(program(*spread), spread, allow_unused=True)
            for one, other in zip(found, expected, strict=True):
                close(one, other)


@check
def compiled(mesh: Any) -> None:
    """By function and by `torch.ops`."""
    for f in (load("distances").pairwise_manhattan_distance, torch.ops.distances.pairwise_manhattan_distance):
        for dynamic, sizes in ((None, (4, 4, 6)), (True, (5, 6, 8))):
            torch._dynamo.reset()

            def loss(x: torch.Tensor, y: torch.Tensor, f: Any = f) -> torch.Tensor:
                return (f(x, y) ** 2).sum()

            program = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=dynamic)
            for size in sizes:
                plain = [t.requires_grad_() for t in rows(size)]
                spread = [
                    distribute_tensor(t.detach(), mesh, [p]).requires_grad_()
                    for t, p in zip(plain, (Shard(0), Replicate()), strict=True)
                ]
                value, expected = program(*spread), loss(*plain)
                close(value, expected)
                gradients = torch.autograd.grad(value, spread)
                for one, other in zip(gradients, torch.autograd.grad(expected, plain), strict=True):
                    close(one, other)


@check
def partial_inputs(mesh: Any) -> None:
    """Are summed first."""
    f, (x, y) = load("distances").pairwise_manhattan_distance, rows()
    summed = DTensor.from_local(x / WORLD, mesh, [Partial()])
    close(f(summed, distribute_tensor(y, mesh, [Shard(0)])), f(x, y))


@check
def plain_tensors_beside(mesh: Any) -> None:
    """PyTorch's error, unless they count as replicated."""
    f, (x, y) = load("distances").pairwise_manhattan_distance, rows()
    spread = distribute_tensor(x, mesh, [Shard(0)])
    assert "mixed torch.Tensor and DTensor" in raised(lambda: f(spread, y))
    assert "mixed torch.Tensor and DTensor" in raised(lambda: f(y, spread))
    with implicit_replication():
        close(f(spread, y), f(x, y))
        close(f(y, spread), f(y, x))


@check
def several_meshes(mesh: Any) -> None:
    """Are an error."""
    f, (x, y) = load("distances").pairwise_manhattan_distance, rows()
    other = init_device_mesh("cpu", (1, WORLD), mesh_dim_names=("a", "b"))["b"]
    spread = distribute_tensor(x, mesh, [Shard(0)]), distribute_tensor(y, other, [Shard(0)])
    assert "PairwiseManhattanDistance: all inputs must be on one mesh" in raised(lambda: f(*spread))
    mapped = opsmith.torch.local_map(f)
    assert "PairwiseManhattanDistance: all inputs must be on one mesh" in raised(lambda: mapped(*spread))


@check
def transforms(mesh: Any) -> None:
    """`vmap` is right; PyTorch itself has no forward mode of DTensors."""
    f, softmax = load("distances").pairwise_manhattan_distance, load("reductions").softmax
    x, y = torch.rand(2, 5, 3, dtype=torch.float64), rows()[1]
    spread_y = distribute_tensor(y, mesh, [Replicate()])
    for placement in (Replicate(), Shard(0), Shard(1), Shard(2)):
        spread = distribute_tensor(x, mesh, [placement])
        close(torch.vmap(softmax)(spread), softmax(x))
        try:
            found = torch.vmap(f, (0, None))(spread, spread_y)
        except RuntimeError as error:
            # To put the batch beside rows that are cut, which PyTorch before 2.15 does not do.
            assert "flatten" in str(error) and placement == Shard(1) and torch.__version__ < (2, 15)
        else:
            close(found, torch.vmap(f, (0, None))(x, y))
    spread = distribute_tensor(x[0], mesh, [Shard(0)])
    tangent = distribute_tensor(torch.ones_like(x[0]), mesh, [Shard(0)])
    told = raised(lambda: torch.func.jvp(lambda x: f(x, spread_y), (spread,), (tangent,)))
    assert told.startswith("NotImplementedError"), told


@check
def mapped_onto_parts(mesh: Any) -> None:
    """`local_map`: placements, gradients, no communication, uneven parts."""
    f = load("kernels").gaussian_convolution
    inputs = [torch.rand(shape, dtype=torch.float64) for shape in [(5, 3), (4, 3), (4, 2)]]
    ways = [
        ([Shard(0), Replicate(), Replicate()], Shard(0), [Shard(0), Partial(), Partial()]),
        ([Replicate(), Replicate(), Shard(1)], Shard(1), [Partial(), Partial(), Shard(1)]),
        ([Replicate()] * 3, Replicate(), [Replicate()] * 3),
    ]
    plain = [x.clone().requires_grad_() for x in inputs]
    expected = f(*plain, gamma=0.4)
    slopes = torch.autograd.grad((expected**2).sum(), plain)
    for given, output, gradients in ways:
        mapped = opsmith.torch.local_map(f, [[p] for p in given], [output])
        both = zip(inputs, given, strict=True)
        spread = [distribute_tensor(x, mesh, [p]).requires_grad_() for x, p in both]
        with CommDebugMode() as communication:
            z = mapped(*spread, gamma=0.4)
            found = torch.autograd.grad((z.to_local() ** 2).sum(), spread)
        assert communication.get_total_counts() == 0
        close(z, expected)
        assert z.placements == (output,)
        assert [g.placements for g in found] == [(p,) for p in gradients]
        for one, other in zip(found, slopes, strict=True):
            close(one, other)


class Radial(nn.Module):
    """A network of radial basis functions."""

    def __init__(self) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.rand(6, 3, dtype=torch.float64))
        self.weights = nn.Parameter(torch.rand(6, 4, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Sums over the centres."""
        return load("kernels").gaussian_convolution(x, self.centres, self.weights, gamma=0.5)


class Network(nn.Module):
    """What is trained."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.radial = Radial()
        self.last = nn.Linear(4, 1, dtype=torch.float64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A number for each row."""
        return self.last(self.radial(x))


def train(model: nn.Module, parts: int, rank: int) -> tuple[list[float], list[torch.Tensor]]:
    """Losses of all rows, and the weights at the end."""
    generator = torch.Generator().manual_seed(2)
    x = torch.rand(8, 3, dtype=torch.float64, generator=generator)
    y = torch.sin(x.sum(1, keepdim=True))
    own, target = x.chunk(parts)[rank], y.chunk(parts)[rank]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.5)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(own), target)
        loss.backward()
        optimizer.step()
        told = loss.detach().clone()
        if parts > 1:
            dist.all_reduce(told)
        losses.append(told.item() / parts)
    weights = [whole(parameter.detach()) for parameter in model.parameters()]
    return losses, [weight for weight in weights if weight is not None]


def trained_alike(model: nn.Module, parts: int) -> None:
    """Losses and weights are those of one process."""
    losses, weights = train(model, parts, dist.get_rank() if parts > 1 else 0)
    expected, own = train(Network(), 1, 0)
    assert expected[-1] < 0.7 * expected[0]
    torch.testing.assert_close(losses, expected, rtol=1e-9, atol=1e-9)
    for one, other in zip(weights, own, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@check
def data_parallel(mesh: Any) -> None:
    """DDP."""
    trained_alike(nn.parallel.DistributedDataParallel(Network()), WORLD)


@check
def fully_sharded(mesh: Any) -> None:
    """FSDP2."""
    from torch.distributed.fsdp import fully_shard

    model = Network()
    fully_shard(model.radial, mesh=mesh)
    fully_shard(model, mesh=mesh)
    assert all(isinstance(parameter, DTensor) for parameter in model.parameters())
    trained_alike(model, WORLD)


@check
def tensor_parallel(mesh: Any) -> None:
    """Channels of the outputs by process."""
    from torch.distributed.tensor.parallel import ParallelStyle, RowwiseParallel, parallelize_module

    class ByChannels(ParallelStyle):
        """Spreads the weights of `Radial` by their columns."""

        def _apply(self, module: nn.Module, device_mesh: Any) -> nn.Module:
            def partition(_: str, module: nn.Module, mesh: Any) -> None:
                for name, placement in (("centres", Replicate()), ("weights", Shard(1))):
                    spread = distribute_tensor(getattr(module, name).detach(), mesh, [placement])
                    module.register_parameter(name, nn.Parameter(spread))

            def enter(_: nn.Module, inputs: Any, mesh: Any) -> Any:
                return tuple(DTensor.from_local(x, mesh, [Replicate()]) for x in inputs)

            return distribute_module(module, device_mesh, partition, enter)

    model = Network()
    parallelize_module(model, mesh, {"radial": ByChannels(), "last": RowwiseParallel()})
    assert model.radial.weights.to_local().shape == (6, 2)
    trained_alike(model, 1)
