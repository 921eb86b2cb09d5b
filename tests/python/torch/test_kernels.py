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


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(2, 2, 300, 32), (1, 130, 64), (9, 257, 33), (1, 16, 9000, 32)])
def test_gradients_of_attention_in_slices(
    kernels: opsmith.Library, shape: tuple[int, ...], dtype: torch.dtype, *, causal: bool
) -> None:
    # Of several blocks and of one, few slices and many, and rows so long that blocks are low.
    *batch, keys, width = shape
    queries = 40 if keys == 9000 else keys
    torch.manual_seed(0)
    inputs = [torch.randn(*batch, n, width).to(dtype).requires_grad_() for n in (queries, keys, keys)]
    upstream = torch.randn(*batch, queries, width).to(dtype)
    seen = keys - 7
    found = kernels.attention(*inputs, torch.tensor(seen), causal=causal)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    query, key, value = wide
    fit = query @ key.mT * width**-0.5
    is_seen = (torch.arange(keys) < seen) & (
        (torch.arange(keys) <= torch.arange(queries)[:, None]) if causal else torch.tensor(data=True)
    )
    expected = torch.softmax(fit.masked_fill(~is_seen, -torch.inf), -1) @ value
    tolerance = {torch.float32: 2e-5, torch.float64: 1e-11, torch.bfloat16: 3e-2}[dtype]
    ours = torch.autograd.grad(found, inputs, upstream)
    theirs = torch.autograd.grad(expected, wide, upstream.double())
    for actual, exact in zip(ours, theirs, strict=True):
        torch.testing.assert_close(actual.double(), exact, rtol=tolerance, atol=tolerance)
    # The same bits on one thread.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        again = torch.autograd.grad(
            kernels.attention(*inputs, torch.tensor(seen), causal=causal), inputs, upstream
        )
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(ours, again, strict=True))
