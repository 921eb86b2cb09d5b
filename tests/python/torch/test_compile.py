"""`torch.compile`, `torch.export`, `torch.jit.trace`, meta and fake tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import opsmith
import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

Op = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

# Distinct and at least 2 at first: equal dims, 0 and 1 are specialised by design.
SIZES = [(3, 5, 4), (7, 2, 6), (4, 4, 4), (9, 8, 3), (2, 11, 5)]


@pytest.fixture(params=["torch.ops", "package"])
def op(request: pytest.FixtureRequest, distances: opsmith.Library) -> Op:
    through_ops = torch.ops.distances.pairwise_manhattan_distance
    return through_ops if request.param == "torch.ops" else distances.pairwise_manhattan_distance


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_five_shapes_compile_once(op: Op, backend: str) -> None:
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(lambda x, y: op(x, y) * 2, fullgraph=True, dynamic=True, backend=counter)
    for n, m, p in SIZES:
        x, y = torch.rand(n, p), torch.rand(m, p)
        torch.testing.assert_close(compiled(x, y), 2 * torch.cdist(x, y, p=1))
    assert counter.frame_count == 1


OTHERS = {
    "zero_out_real": lambda n, m, p: (torch.rand(n, m, p),),
    "zero_out_rows": lambda n, m, p: (torch.rand(n, m, p),),
    "sum_all": lambda n, m, p: ([torch.rand(n, p), torch.rand(n, p)],),
    "max_with_index": lambda n, m, p: (torch.rand(n * m),),
    "zero_out_each": lambda n, m, p: ([torch.rand(n), torch.rand(m, p)],),
}


@pytest.mark.parametrize("name", OTHERS)
def test_five_shapes_of_other_ops_compile_once(zero_out: opsmith.Library, name: str) -> None:
    op = getattr(zero_out, name)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda *args: op(*args), fullgraph=True, dynamic=True, backend=counter)
    for sizes in SIZES:
        inputs = OTHERS[name](*sizes)
        torch.testing.assert_close(compiled(*inputs), op(*inputs))
    assert counter.frame_count == 1


def test_compiled_backward(op: Op) -> None:
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda x, y: op(x, y) ** 2, fullgraph=True, dynamic=True, backend=counter)
    for n, m, p in SIZES:
        x, y = torch.rand(n, p, requires_grad=True), torch.rand(m, p, requires_grad=True)
        got = torch.autograd.grad(compiled(x, y).sum(), (x, y))
        expected = torch.autograd.grad((op(x, y) ** 2).sum(), (x, y))
        torch.testing.assert_close(got, expected)
    assert counter.frame_count == 1


def test_a_mismatch_in_a_compiled_call_has_the_ops_message(op: Op) -> None:
    compiled = torch.compile(op, fullgraph=True, dynamic=True, backend="aot_eager")
    with pytest.raises(RuntimeError, match="dim 1 of input `y` must equal dim 1 of input `x`"):
        compiled(torch.rand(3, 4), torch.rand(5, 6))


def test_export_with_dynamic_dims_round_trips(op: Op, tmp_path: Path) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return op(x, y)

    n, m, p = torch.export.Dim("n"), torch.export.Dim("m"), torch.export.Dim("p")
    shapes = {"x": {0: n, 1: p}, "y": {0: m, 1: p}}
    program = torch.export.export(Module(), (torch.rand(3, 4), torch.rand(5, 4)), dynamic_shapes=shapes)
    assert "distances.pairwise_manhattan_distance" in str(program.graph)
    torch.export.save(program, tmp_path / "distances.pt2")
    loaded = torch.export.load(tmp_path / "distances.pt2").module()
    for n, m, p in SIZES:
        x, y = torch.rand(n, p), torch.rand(m, p)
        torch.testing.assert_close(loaded(x, y), torch.cdist(x, y, p=1))


def test_a_traced_function_calls_the_op(op: Op) -> None:
    traced = torch.jit.trace(op, (torch.rand(3, 4), torch.rand(5, 4)))
    x, y = torch.rand(2, 6), torch.rand(3, 6)
    torch.testing.assert_close(traced(x, y), torch.cdist(x, y, p=1))


def test_meta_tensors_give_shape_and_dtype(op: Op) -> None:
    z = op(
        torch.empty(3, 4, dtype=torch.float64, device="meta"),
        torch.empty(5, 4, dtype=torch.float64, device="meta"),
    )
    assert z.shape == (3, 5) and z.dtype == torch.float64 and z.is_meta
    with pytest.raises(RuntimeError, match="input `x` must have rank 2"):
        op(torch.empty(3, device="meta"), torch.empty(5, 4, device="meta"))


def test_how_many_results_there_are_may_depend_on_data(zero_out: opsmith.Library) -> None:
    compiled = torch.compile(
        lambda x: zero_out.non_zero(x).sum(0), fullgraph=True, dynamic=True, backend="aot_eager"
    )
    for x in (torch.tensor([[1.0, 0, 2], [0, 3, 0]]), torch.zeros(4, 5), torch.ones(2, 2)):
        assert torch.equal(compiled(x), x.nonzero().sum(0))


def test_arithmetic_on_symbolic_dims(zero_out: opsmith.Library) -> None:
    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        x = mode.from_tensor(torch.ones(5, dtype=torch.int32), static_shapes=False)
        torch._dynamo.mark_dynamic(x, 0)
        y = zero_out.repeat(x, times=3)
    assert isinstance(y.shape[0], torch.SymInt) or y.shape[0] == 15
    assert int(y.shape[0]) == 15


def test_a_rank_that_shapes_do_not_tell_cannot_be_traced(testops: opsmith.Library) -> None:
    with pytest.raises(RuntimeError, match="DoubleAll: the rank of output `ys` does not follow"):
        testops.double_all([torch.rand(2, device="meta"), torch.rand(2, device="meta")])


class OfJax(list):
    """What PyTorch would take, as it does JAX's arrays, and JAX calls its own."""

    def __jax_array__(self) -> None:
        raise AssertionError


# Dynamo would take the first for a plain array, and the second for a list.
REFUSED = {
    "a masked array": (np.ma.masked_array(np.ones((2, 3)), [[1, 0, 0], [0, 0, 0]]), "is a masked array"),
    "of another framework": (OfJax([[1.0, 2.0, 3.0]]), "must be of one framework, but .* `y` is of JAX"),
}


@pytest.mark.parametrize(("y", "message"), REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_arrays_that_are_refused_eagerly_are_when_compiled(
    distances: opsmith.Library, y: object, message: str, backend: str
) -> None:
    if isinstance(y, OfJax):
        pytest.importorskip("jax")
    x = torch.ones(2, 3, dtype=torch.float64)

    def of_two(x: torch.Tensor, y: object) -> torch.Tensor:
        return distances.pairwise_manhattan_distance(x, y)

    def of_one(x: torch.Tensor) -> torch.Tensor:
        return distances.pairwise_manhattan_distance(x, y)

    compiled = torch.compile(of_two, backend=backend)
    # What an array has compiled is not for what comes after it.
    assert compiled(x, np.ones((2, 3))).tolist() == [[0, 0], [0, 0]]
    for call in (lambda: compiled(x, y), lambda: torch.compile(of_one, backend=backend)(x)):
        with pytest.raises(opsmith.InvalidArgumentError, match=message):
            call()
    with pytest.raises(RuntimeError):
        torch.compile(of_two, backend=backend, fullgraph=True)(x, y)


def test_an_array_does_not_break_the_graph(distances: opsmith.Library) -> None:
    compiled = torch.compile(distances.pairwise_manhattan_distance, fullgraph=True, backend="eager")
    x = torch.ones(2, 3, dtype=torch.float64)
    assert compiled(x, np.full((1, 3), 2.0)).tolist() == [[3], [3]]
