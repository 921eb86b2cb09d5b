"""Pointwise ops that are written once, in PyTorch: gradients, compiled calls, PyTorch's own checks."""

from __future__ import annotations

from collections.abc import Callable

import opsmith
import pytest
import torch
import torch.nn.functional as F
from conftest import load

Op = Callable[..., torch.Tensor]


@pytest.fixture(scope="session")
def activations() -> opsmith.Library:
    """The example library."""
    return load("activations")


def cell_in_torch(
    g0: torch.Tensor, g1: torch.Tensor, g2: torch.Tensor, old_cell: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same arithmetic in PyTorch's own ops."""
    cell = old_cell + F.elu(g2) * torch.sigmoid(g0)
    return torch.tanh(cell) * torch.sigmoid(g1), cell


def numbers(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    """Tensors that are differentiated by."""
    return [torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes]


CASES = {
    "gelu": [(3, 5)],
    "leaky_relu": [(17,)],
    "swiglu": [(5,), (3, 5)],
    "swiglu-both": [(3, 1), (1, 4)],
    "lltm_cell": [(2, 3), (2, 3), (1, 3), ()],
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_two_orders(activations: opsmith.Library, name: str) -> None:
    op: Op = getattr(activations, name.split("-")[0])
    inputs = numbers(*CASES[name])
    assert torch.autograd.gradcheck(op, inputs)
    assert torch.autograd.gradgradcheck(op, inputs)


@pytest.mark.parametrize("name", CASES)
def test_opcheck(activations: opsmith.Library, name: str) -> None:
    for suffix, with_gradient in (("", True), ("_grad", False)):
        op = getattr(torch.ops.activations, name.split("-")[0] + suffix)
        shapes = list(CASES[name])
        if suffix:
            shapes += [torch.broadcast_shapes(*shapes)] * (2 if name == "lltm_cell" else 1)
        inputs = numbers(*shapes)
        if not with_gradient:
            inputs = [x.detach() for x in inputs]
        outcome = torch.library.opcheck(op, tuple(inputs))
        assert set(outcome.values()) == {"SUCCESS"}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_cell_is_that_of_pytorch(activations: opsmith.Library, dtype: torch.dtype) -> None:
    inputs = numbers(*[(40, 50)] * 4, dtype=dtype)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    ours, theirs = activations.lltm_cell(*inputs), cell_in_torch(*wide)
    weights = [torch.randn(40, 50, dtype=dtype) for _ in range(2)]
    our_gradients = torch.autograd.grad(ours, inputs, weights)
    their_gradients = torch.autograd.grad(theirs, wide, [w.double() for w in weights])
    tolerance = 8 * torch.finfo(dtype).eps
    for left, right in zip((*ours, *our_gradients), (*theirs, *their_gradients), strict=True):
        assert left.dtype == dtype
        torch.testing.assert_close(left.double(), right, rtol=tolerance, atol=tolerance)


def test_one_output_alone_is_differentiated(activations: opsmith.Library) -> None:
    inputs = numbers(*[(4, 5)] * 4)
    for output in range(2):
        ours, theirs = (
            torch.autograd.grad(op(*inputs)[output].sum(), inputs, materialize_grads=True)
            for op in (activations.lltm_cell, cell_in_torch)
        )
        for left, right in zip(ours, theirs, strict=True):
            torch.testing.assert_close(left, right)


def test_compiled_with_symbolic_sizes(activations: opsmith.Library) -> None:
    def twice(gate: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return activations.swiglu(gate, x) * 2

    compiled = torch.compile(twice, fullgraph=True, backend="aot_eager", dynamic=True)
    for n in (3, 7):
        gate, x = numbers((5,), (n, 5))
        y = compiled(gate, x)
        torch.testing.assert_close(y, F.silu(gate) * x * 2)
        gate_grad, x_grad = torch.autograd.grad(y.sum(), (gate, x))
        assert gate_grad.shape == gate.shape and x_grad.shape == x.shape


def test_expanded_and_overlapping_inputs(activations: opsmith.Library) -> None:
    base = torch.randn(10, dtype=torch.float64)
    windows = base.as_strided((8, 3), (1, 1))
    torch.testing.assert_close(activations.gelu(windows), F.gelu(windows.contiguous()))
    torch.testing.assert_close(activations.gelu(base.expand(4, 10)), F.gelu(base).expand(4, 10))
    torch.testing.assert_close(activations.swiglu(base, base), F.silu(base) * base)


def test_batches(activations: opsmith.Library) -> None:
    gate, x = torch.randn(3, 5), torch.randn(3, 4, 5)
    expected = torch.stack([F.silu(g) * b for g, b in zip(gate, x, strict=True)])
    torch.testing.assert_close(torch.vmap(activations.swiglu)(gate, x), expected)
    per_sample = torch.vmap(torch.func.grad(lambda g, b: activations.swiglu(g, b).sum()))(gate, x)
    torch.testing.assert_close(
        per_sample, torch.vmap(torch.func.grad(lambda g, b: (F.silu(g) * b).sum()))(gate, x)
    )


def test_what_is_not_taken_leaks_into_no_gradient(activations: opsmith.Library) -> None:
    x = torch.tensor([0.0, 1.0], dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(activations.entropy(x).sum(), x, create_graph=True)
    assert grad.tolist() == [0, -1]
    (second,) = torch.autograd.grad(grad.sum(), x)
    assert second.tolist() == [0, -1]


def test_threads_change_no_bit(activations: opsmith.Library) -> None:
    gate, x, upstream = torch.randn(70), torch.randn(5000, 70), torch.randn(5000, 70)
    threads, results = torch.get_num_threads(), []
    for count in (1, 2, 4):
        torch.set_num_threads(count)
        results.append(torch.ops.activations.swiglu_grad(gate, x, upstream)[0])
    torch.set_num_threads(threads)
    assert all(torch.equal(results[0], other) for other in results)
