"""GELU of both kinds under PyTorch: against PyTorch's own, gradients of two orders, its compiler."""

from __future__ import annotations

from collections.abc import Callable

import opsmith
import pytest
import torch
from conftest import load

KINDS = ["none", "tanh"]


@pytest.fixture(scope="module")
def library() -> opsmith.Library:
    """The example library."""
    return load("gelu")


@pytest.mark.parametrize("approximate", KINDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_values_and_gradients_are_pytorchs(
    library: opsmith.Library, dtype: torch.dtype, approximate: str
) -> None:
    x = (torch.randn(70, 90) * 3).to(dtype).requires_grad_()
    upstream = torch.randn(70, 90).to(dtype)
    wide = x.detach().double().requires_grad_()
    y = library.gelu(x, approximate=approximate)
    expected = torch.nn.functional.gelu(wide, approximate=approximate)
    (grad,) = torch.autograd.grad(y, x, upstream)
    (their_grad,) = torch.autograd.grad(expected, wide, upstream.double())
    eps = torch.finfo(dtype).eps
    assert y.dtype == grad.dtype == dtype
    rounding = torch.finfo(torch.promote_types(dtype, torch.float32)).eps
    torch.testing.assert_close(y.double(), expected, rtol=2 * eps, atol=2 * rounding)
    # The slope is a sum of terms of both signs.
    torch.testing.assert_close(grad.double(), their_grad, rtol=2 * eps, atol=60 * rounding)


@pytest.mark.parametrize("approximate", KINDS)
def test_gradients_of_two_orders(library: opsmith.Library, approximate: str) -> None:
    def ours(x: torch.Tensor) -> torch.Tensor:
        return library.gelu(x, approximate=approximate)

    def theirs(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x, approximate=approximate)

    x = torch.randn(4, 5, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(ours, x)
    assert torch.autograd.gradgradcheck(ours, x)

    def second(function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        (first,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
        return torch.autograd.grad((first**2).sum(), x)[0]

    torch.testing.assert_close(second(ours), second(theirs))


@pytest.mark.parametrize("approximate", KINDS)
def test_opcheck(library: opsmith.Library, approximate: str) -> None:
    x, upstream = (torch.randn(3, 5, requires_grad=True) for _ in range(2))
    ops = torch.ops.gelu
    for op, inputs in ((ops.gelu, (x,)), (ops.gelu_grad, (x, upstream))):
        outcome = torch.library.opcheck(op.default, inputs, {"approximate": approximate})
        assert set(outcome.values()) == {"SUCCESS"}
    assert library is not None


def test_compiled(library: opsmith.Library) -> None:
    def twice(x: torch.Tensor) -> torch.Tensor:
        return library.gelu(library.gelu(x), approximate="tanh")

    compiled = torch.compile(twice, fullgraph=True, backend="aot_eager", dynamic=True)
    for n in (3, 7):
        x = torch.randn(n, 4, requires_grad=True)
        torch.testing.assert_close(compiled(x), twice(x))
        (ours,), (expected,) = (torch.autograd.grad(f(x).sum(), x) for f in (compiled, twice))
        torch.testing.assert_close(ours, expected)


def test_strided_empty_and_wrong(library: opsmith.Library) -> None:
    x = torch.randn(20, 30).t()[::2]
    torch.testing.assert_close(library.gelu(x), torch.nn.functional.gelu(x))
    assert library.gelu(torch.empty(0, 4)).shape == (0, 4)
    with pytest.raises((RuntimeError, ValueError), match="must be one of 'none', 'tanh', got 'erf'"):
        library.gelu(x, approximate="erf")
