"""Reductions that are written once, under PyTorch: autograd of two orders, its checks, and its compiler."""

from __future__ import annotations

from collections.abc import Callable

import opsmith
import pytest
import torch
import torch.nn.functional as F
from conftest import load

REFERENCES: dict[str, Callable[[torch.Tensor], object]] = {
    "norm": lambda x: torch.linalg.vector_norm(x, dim=-1),
    "softmax": lambda x: torch.softmax(x, -1),
    "log_sum_exp": lambda x: torch.logsumexp(x, -1),
    "range": lambda x: (x.amin(-1), x.amax(-1)),
}
SHAPES = [(7,), (3, 5), (2, 3, 40), (4, 130)]


@pytest.fixture(scope="module")
def reductions() -> opsmith.Library:
    """The example library."""
    return load("reductions")


@pytest.mark.parametrize("shape", SHAPES[:3])
@pytest.mark.parametrize("op", REFERENCES)
def test_gradients_of_two_orders(reductions: opsmith.Library, op: str, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, dtype=torch.float64).requires_grad_()
    function = getattr(reductions, op)
    assert torch.autograd.gradcheck(function, (x,))
    assert torch.autograd.gradgradcheck(function, (x,))


@pytest.mark.parametrize("shapes", [((3, 5), (5,), (5,)), ((2, 3, 4), (3, 4), (1,)), ((6,), (2, 6), (1, 1))])
def test_layer_norm_and_what_its_inputs_share(
    reductions: opsmith.Library, shapes: tuple[tuple[int, ...], ...]
) -> None:
    inputs = [torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in shapes]
    assert torch.autograd.gradcheck(reductions.layer_norm, inputs)
    assert torch.autograd.gradgradcheck(reductions.layer_norm, inputs)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("op", REFERENCES)
def test_values_and_gradients_are_pytorchs(
    reductions: opsmith.Library, op: str, shape: tuple[int, ...]
) -> None:
    x = torch.randn(shape, dtype=torch.float64)

    def results(function: Callable[[torch.Tensor], object]) -> list[torch.Tensor]:
        at = x.clone().requires_grad_()
        outputs = function(at)
        outputs = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
        total = sum((output**2).sum() for output in outputs)
        return [*outputs, *torch.autograd.grad(total, at)]

    for ours, theirs in zip(results(getattr(reductions, op)), results(REFERENCES[op]), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_layer_norm_is_pytorchs(reductions: opsmith.Library, dtype: torch.dtype) -> None:
    x, gamma, beta = (torch.randn(shape, dtype=dtype) for shape in [(300, 200), (200,), (200,)])
    upstream = torch.randn(300, 200, dtype=dtype)

    def results(function: Callable[..., torch.Tensor], dtype: torch.dtype) -> list[torch.Tensor]:
        at = [t.to(dtype).requires_grad_() for t in (x, gamma, beta)]
        y = function(*at)
        return [y, *torch.autograd.grad(y, at, upstream.to(dtype))]

    theirs = results(lambda x, g, b: F.layer_norm(x, (200,), g, b), torch.float64)
    tolerance = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-5}[dtype]
    for ours, expected in zip(results(reductions.layer_norm, dtype), theirs, strict=True):
        torch.testing.assert_close(ours.double(), expected, rtol=tolerance, atol=tolerance)


def test_ties_share_the_gradient_as_in_amax(reductions: opsmith.Library) -> None:
    rows = [[1.0, 3.0, 3.0, 2.0], [5.0, 5.0, 5.0, 5.0], [0.0, float("inf"), 1.0, float("inf")]]

    def gradient(function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        x = torch.tensor(rows).requires_grad_()
        return torch.autograd.grad(function(x).sum(), x)[0]

    torch.testing.assert_close(gradient(lambda x: reductions.range(x)[1]), gradient(lambda x: x.amax(-1)))


@pytest.mark.parametrize("op", REFERENCES)
def test_opcheck(reductions: opsmith.Library, op: str) -> None:
    x = torch.randn(6, 5).requires_grad_()
    outcome = torch.library.opcheck(getattr(torch.ops.reductions, op).default, (x,), {"axes": 1})
    assert set(outcome.values()) == {"SUCCESS"}
    assert reductions is not None


def test_compiled_with_any_shape(reductions: opsmith.Library) -> None:
    compiled = torch.compile(lambda x: reductions.softmax(x * 2).sum(-1), dynamic=True, backend="aot_eager")
    for shape in [(3, 5), (4, 9)]:
        x = torch.randn(shape).requires_grad_()
        torch.testing.assert_close(compiled(x), torch.ones(shape[0]))
        compiled(x).sum().backward()
        torch.testing.assert_close(x.grad, torch.zeros(shape), rtol=0, atol=1e-6)
