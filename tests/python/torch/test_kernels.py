"""The operators of `examples/kernels` against PyTorch: values, gradients, and gradients of these."""

from __future__ import annotations

from types import SimpleNamespace

import kernel_formulas
import opsmith
import pytest
import torch
from conftest import load

TORCH = SimpleNamespace(
    exp=torch.exp,
    log=torch.log,
    sqrt=torch.sqrt,
    sum=torch.sum,
    amax=torch.amax,
    amin=torch.amin,
    sort=lambda x: torch.sort(x, stable=True).values,
    numbers=torch.from_numpy,
    plain=lambda x: x.detach().numpy(),
)
FORMULAS = kernel_formulas.formulas(TORCH)


@pytest.fixture(scope="module")
def kernels() -> opsmith.Library:
    """The example library."""
    return load("kernels")


@pytest.mark.parametrize("op", FORMULAS)
def test_of_two_orders(kernels: opsmith.Library, op: str) -> None:
    formula = FORMULAS[op]
    others = [torch.from_numpy(array) for array in formula.others]
    function = getattr(kernels, op)
    found = []
    for value in (lambda *x: function(*x, *others, **formula.attrs), formula.value):
        inputs = [torch.from_numpy(array).requires_grad_() for array in formula.numbers(3)]
        z = value(*inputs)
        weights = torch.sin(1.0 + torch.arange(z.numel(), dtype=z.dtype)).reshape(z.shape)
        first = torch.autograd.grad(z, inputs, weights, create_graph=True)
        whole = sum((g * g).sum() for g in first)
        found.append([z, *first, *torch.autograd.grad(whole, inputs)])
    for actual, expected in zip(*found, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("op", FORMULAS)
def test_finite_differences(kernels: opsmith.Library, op: str) -> None:
    formula = FORMULAS[op]
    others = [torch.from_numpy(array) for array in formula.others]
    inputs = [torch.from_numpy(array).requires_grad_() for array in formula.numbers(4)]
    assert torch.autograd.gradcheck(
        lambda *x: getattr(kernels, op)(*x, *others, **formula.attrs), inputs, nondet_tol=0
    )


def test_attention_is_pytorchs(kernels: opsmith.Library) -> None:
    query, key, value = (torch.randn(2, 3, 40, 16) for _ in range(3))
    everything = torch.tensor(40)
    for causal in (False, True):
        expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=causal)
        torch.testing.assert_close(kernels.attention(query, key, value, everything, causal=causal), expected)
