"""PyTorch's DTensor: ops on tensors that are spread over simulated processes, against one process."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import opsmith
import opsmith.torch
import pytest
import samples
import sharded
import torch
import torch.distributed as dist
from conftest import LIBRARIES, load
from opsmith._library import definition_of
from sharded import whole
from torch.distributed._local_tensor import LocalTensorMode
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
    init_device_mesh,
)
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing._internal.distributed.fake_pg import FakeStore

RANKS = 4
# To simulate processes takes PyTorch before 2.15 many times as long.
ORDERS, AXES = (2, None) if torch.__version__ >= (2, 15) else (1, 2)


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


@pytest.fixture
def line() -> Iterator[Any]:
    """A mesh with one dim."""
    with LocalTensorMode(RANKS):
        yield init_device_mesh("cpu", (RANKS,))


def compared(calls: list[sharded.Call], mesh: Any) -> int:
    """How many calls were compared."""
    shorter = [replace(call, orders=min(call.orders, ORDERS)) for call in calls]
    return sum(sharded.compare(call, mesh, seed, AXES) for seed, call in enumerate(shorter))


@pytest.mark.parametrize("library", sharded.LIBRARIES)
def test_values_and_gradients_of_simulated_processes_are_those_of_one(library: str, mesh: Any) -> None:
    count = compared(sharded.calls(library), mesh)
    print(f"{library}: {count} calls")
    assert count


def test_generated_bodies_of_simulated_processes_are_those_of_one(mesh: Any) -> None:
    bodies = sharded.bodies()
    count = compared(bodies, mesh)
    print(f"{len(bodies)} bodies: {count} calls")
    assert len(bodies) == sharded.BODIES


def by_rows(mesh: Any, x: torch.Tensor) -> DTensor:
    """Over the first dim of the mesh."""
    return distribute_tensor(x, mesh, [Shard(0)] + [Replicate()] * (mesh.ndim - 1))


def test_attributes_are_never_those_of_another_call(mesh: Any, ops: opsmith.Library) -> None:
    repeat, norm = load("zero_out").repeat, load("reductions").norm
    x, q = torch.rand(4, 6, 8), torch.arange(8, dtype=torch.int32)
    calls: list[tuple[torch.Tensor, Callable[[Any], Any]]] = [
        *((q, lambda q, n=n: repeat(q, times=n)) for n in (2, 3, 4)),
        *((x, lambda x, n=n: norm(x, axes=n)) for n in (1, 2)),
        *((x, lambda x, keep=keep: ops.sum(x, axes=[1], keep_dims=keep)) for keep in (False, True)),
        *((x, lambda x, axes=axes: ops.sum(x, axes=axes)) for axes in ([0], [1], [0, 2], [2, 1])),
        *((x, lambda x, perm=perm: ops.transpose(x, perm=perm)) for perm in ([0, 1, 2], [2, 0, 1], [])),
        *((x, lambda x, to=to: ops.cast(x, to)) for to in ("float64", "int32")),
        *((x, lambda x, how=how: load("gelu").gelu(x, approximate=how)) for how in ("none", "tanh")),
    ]
    for _ in range(2):
        for value, call in calls:
            expected, found = call(value), whole(call(by_rows(mesh, value)))
            assert found.dtype == expected.dtype
            torch.testing.assert_close(found, expected)


def test_every_attribute_of_every_op_is_in_the_key_of_the_cache() -> None:
    known = DTensor._op_dispatcher.sharding_propagator.op_to_schema_info
    count = 0
    for name in (*sharded.LIBRARIES, "opsmith_ops", "opsmith_testops"):
        library = load(name)
        for op in definition_of(library).ops:
            of_torch = opsmith.torch.torch_op(library._opsmith_loaded, op)
            if of_torch is None or not op.inputs:
                continue
            own = known[of_torch.overload]
            named = [x.name for x in of_torch.overload._schema.arguments if x.kwarg_only]
            assert (own.static_argnum, own.static_kwargkey or []) == (0, named), op.name
            count += 1
    print(f"{count} ops")
    assert count > 300


def test_an_absent_input_is_not_taken_for_another(mesh: Any) -> None:
    gradient = torch.ops.distances.pairwise_manhattan_distance_grad_grad
    load("distances")
    inputs = [torch.rand(4, 4, dtype=torch.float64) for _ in range(3)]
    spread = [by_rows(mesh, x) for x in inputs]
    for _ in range(2):
        for place in (lambda t: (t, None), lambda t: (None, t)):
            expected = gradient(*inputs[:2], *place(inputs[2]))
            found = gradient(*spread[:2], *place(spread[2]))
            torch.testing.assert_close(whole(found), expected)


def test_what_is_longer_than_an_axis(line: Any) -> None:
    """Three rows on four processes: they are gathered."""
    f, x, y = load("distances").pairwise_manhattan_distance, torch.rand(3, 2), torch.rand(5, 2)
    spread = by_rows(line, x)
    z = f(spread, distribute_tensor(y, line, [Replicate()]))
    assert z.placements == (Replicate(),)
    torch.testing.assert_close(whole(z), f(x, y))


def test_along_what_is_folded_it_is_gathered(line: Any) -> None:
    softmax, x = load("reductions").softmax, torch.rand(8, 4)
    spread = distribute_tensor(x, line, [Shard(1)])
    with CommDebugMode() as communication:
        y = softmax(spread)
    assert communication.get_total_counts() == 1
    torch.testing.assert_close(whole(y), softmax(x))


def test_ops_that_change_inputs_or_have_names_like_those_that_do_are_refused(
    line: Any, testops: opsmith.Library
) -> None:
    x = by_rows(line, torch.rand(4))
    with pytest.raises(NotImplementedError, match=r"Increment: changes `x` in place, so it takes no DTensor"):
        testops.increment(x)
    with pytest.raises(NotImplementedError, match=r"AddInto: changes `sum` in place"):
        testops.add_into(x, x)
    with pytest.raises(
        NotImplementedError, match=r"Lambda: PyTorch takes testops::lambda_ for an op that changes"
    ):
        testops.lambda_(x, from_=1)
    for f in (testops.increment, testops.add_into):
        with pytest.raises(opsmith.InvalidArgumentError, match="in place, so it takes no DTensor"):
            opsmith.torch.local_map(f)


def test_what_cannot_be_known_before_is_an_error(line: Any, testops: opsmith.Library) -> None:
    x = by_rows(line, torch.rand(4))
    with pytest.raises(RuntimeError, match="non_zero"):
        load("zero_out").non_zero(x)
    with pytest.raises(RuntimeError, match=r"AddConstant: attribute `value` is a tensor, whose value cannot"):
        testops.add_constant(x, torch.tensor(2.0))
    with pytest.raises(RuntimeError, match=r"Extremes: the rank of output `least` does not follow"):
        testops.extremes(x)
    with pytest.raises(RuntimeError, match=r"Extremes: the shape of output `least` does not follow"):
        opsmith.torch.local_map(testops.extremes)(x)
    with pytest.raises(RuntimeError, match="boom"):
        testops.fails(x, message="boom")


def test_local_map(mesh: Any) -> None:
    attention = load("kernels").attention
    inputs = [torch.rand(shape, dtype=torch.float64) for shape in [(4, 5, 3), (4, 6, 3), (4, 6, 8)]]
    length = torch.tensor([6, 3, 1, 4])
    batch = [Shard(0)] + [Replicate()] * (mesh.ndim - 1)
    values = [*[Replicate()] * (mesh.ndim - 1), Shard(2)]
    of_values = [Replicate()] * mesh.ndim
    plain = [x.clone().requires_grad_() for x in inputs]
    expected = attention(*plain, length, causal=True)
    slopes = torch.autograd.grad((expected**3).sum(), plain)
    for placements in ([batch] * 4, [of_values, of_values, values, of_values]):
        own = [
            distribute_tensor(x, mesh, p).requires_grad_() for x, p in zip(inputs, placements, strict=False)
        ]
        mapped = opsmith.torch.local_map(attention, placements)
        z = mapped(*own, distribute_tensor(length, mesh, placements[3]), causal=True)
        torch.testing.assert_close(whole(z), expected)
        found = torch.autograd.grad((z**3).sum(), own)
        for one, other in zip(found, slopes, strict=True):
            torch.testing.assert_close(whole(one), other)


@pytest.mark.parametrize("arriving", [Shard(0), Replicate(), Shard(1)])
def test_local_map_in_second_order(line: Any, ops: opsmith.Library, arriving: Any) -> None:
    """However the gradient that arrives is placed; of three rows on four processes, too."""
    square = opsmith.torch.local_map(ops.square)
    for rows in (4, 3):
        v = torch.arange(1.0, 2 * rows + 1, dtype=torch.float64).reshape(rows, 2)
        x = distribute_tensor(v, line, [Shard(0)]).requires_grad_()
        w = distribute_tensor(v + 1, line, [arriving]).requires_grad_()
        (slope,) = torch.autograd.grad(square(x), x, grad_outputs=w, create_graph=True)
        by_w, by_x = torch.autograd.grad(slope.sum(), [w, x])
        torch.testing.assert_close(whole(by_w), 2 * v)
        torch.testing.assert_close(whole(by_x), 2 * (v + 1))


def test_local_map_takes_lists_and_absent_inputs(line: Any, testops: opsmith.Library) -> None:
    terms = [torch.rand(8, 2) for _ in range(3)]
    total = opsmith.torch.local_map(load("zero_out").sum_all)([by_rows(line, x) for x in terms])
    torch.testing.assert_close(whole(total), terms[0] + terms[1] + terms[2])
    x = torch.rand(4, dtype=torch.float64)
    same = opsmith.torch.local_map(testops.add_optional)(distribute_tensor(x, line, [Replicate()]))
    torch.testing.assert_close(whole(same), x)
    y = terms[0][0]
    same = opsmith.torch.local_map(testops.lambda_)(distribute_tensor(y, line, [Replicate()]), 1)
    torch.testing.assert_close(whole(same), y)


Refused = tuple[list[Any], dict[str, Any], str]
REFUSED: list[Refused] = [
    (
        [Shard(1), Replicate()],
        {},
        r"input `x` is cut along its dim 1 over dim 0 of the mesh, which is no free axis of this call "
        r"\(\(\.\.\., i, _\)",
    ),
    (
        [Shard(0), Shard(0)],
        {},
        r"input `x` is cut along its dim 0 over dim 0 of the mesh, the free axis `i`, so input `y` must be "
        r"placed as Replicate\(\), got Shard\(0\)",
    ),
    (
        [Partial(), Replicate()],
        {},
        r"input `x` is placed as P\w*\(sum\); local_map takes Shard and Replicate",
    ),
    (
        [Shard(0), Replicate()],
        {"out_placements": [Shard(1)]},
        r"output `z` comes out as \(Shard\(dim=0\),\), `out_placements` has \(Shard\(dim=1\),\)",
    ),
    (
        [Shard(0), Replicate()],
        {"in_placements": [[Replicate()], [Replicate()]]},
        r"input `x` must be placed as \(Replicate\(\),\), got \(Shard\(dim=0\),\); `redistribute_inputs",
    ),
    (
        [Shard(0), Replicate()],
        {"in_placements": [[Shard(0), Shard(1)], [Replicate()]]},
        r"input `x` takes one placement for each of the 1 dims of the mesh, `in_placements` has \[Shard",
    ),
    (
        [Shard(0), Replicate()],
        {"in_placements": [[Shard(0)]]},
        r"`in_placements` has 1 items for 2 inputs \(x, y\)",
    ),
]


@pytest.mark.parametrize(("placements", "given", "message"), REFUSED)
def test_local_map_refuses(line: Any, placements: list[Any], given: dict[str, Any], message: str) -> None:
    spread = [
        DTensor.from_local(torch.rand(2, 3), line, [p])
        if p == Partial()
        else distribute_tensor(torch.rand(8, 3), line, [p])
        for p in placements
    ]
    with pytest.raises(opsmith.InvalidArgumentError, match=f"RbfKernel: {message}"):
        opsmith.torch.local_map(load("kernels").rbf_kernel, **given)(*spread)


def test_local_map_refuses_what_is_no_function_or_no_dtensor(line: Any) -> None:
    f, x = load("distances").pairwise_manhattan_distance, torch.rand(4, 3)
    with pytest.raises(opsmith.InvalidArgumentError, match="must be a function of a library"):
        opsmith.torch.local_map(torch.cdist)
    with pytest.raises(
        opsmith.InvalidArgumentError,
        match=r"PairwiseManhattanDistance: input `y` must be a DTensor, got Local\w+; torch\.distributed",
    ):
        opsmith.torch.local_map(f)(by_rows(line, x), torch.rand(2, 3))
    moved = opsmith.torch.local_map(f, [[Shard(0)], [Replicate()]], redistribute_inputs=True)
    z = moved(by_rows(line, x), by_rows(line, torch.ones(4, 3)))
    torch.testing.assert_close(whole(z), f(x, torch.ones(4, 3)))


def program(text: str) -> str:
    """What a process of its own prints."""
    head = f"import sys, warnings, torch, opsmith\npath = {str(LIBRARIES / 'libdistances.so')!r}\n"
    command = [sys.executable, "-c", head + textwrap.dedent(text)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_strategies_wait_until_dtensor_is_imported() -> None:
    told = program(
        """
        library = opsmith.load(path)
        library.pairwise_manhattan_distance(torch.ones(2, 3), torch.ones(2, 3))
        early = "torch.distributed.tensor" in sys.modules
        from torch.distributed.tensor import DTensor
        known = DTensor._op_dispatcher.sharding_propagator.op_strategy_funcs
        print(early, torch.ops.distances.pairwise_manhattan_distance.default in known)
        """
    )
    assert told == "False True\n"


def test_another_pytorch_gets_no_strategies_and_a_warning() -> None:
    told = program(
        """
        import torch.distributed.tensor._op_schema as schema
        del schema.RuntimeSchemaInfo
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            opsmith.load(path)
        known = torch.distributed.tensor.DTensor._op_dispatcher.sharding_propagator.op_strategy_funcs
        print(torch.ops.distances.pairwise_manhattan_distance.default in known, caught[-1].message)
        """
    )
    assert told.startswith("False opsmith: PyTorch")
    assert "so ops of `distances` take no DTensor; opsmith.torch.local_map does" in told


def test_samples_that_are_left_out_are_few() -> None:
    """Those that change an input, whose output the data decide, and without inputs."""
    there = {call.name for name in ("distances", "zero_out") for call in sharded.calls(name)}
    every = {f"{case.values[0].library}.{case.values[0].op.snake_name}" for case in samples.cases()}
    assert {name.split(".")[1] for name in every - there} == {
        "zero_out_in_place",
        "non_zero",
        "attr_defaults",
        "attr_defaults_of_tensors",
        "fruit_price",
        "zeros_of_types",
        "counter",
    }
