"""Pairwise kernels that are written once, under PyTorch: autograd of two orders and its compiler."""

from __future__ import annotations

import opsmith
import pytest
import torch
from conftest import load
from samples import floats

OPS = [
    "manhattan",
    "squared_euclidean",
    "euclidean",
    "chebyshev",
    "canberra",
    "minkowski_power",
    "mean_squared",
]


@pytest.fixture(scope="module")
def pairwise() -> opsmith.Library:
    """The example library."""
    return load("pairwise")


@pytest.mark.parametrize("size", [(3, 4, 5), (2, 3, 20), (17, 5, 18)])
@pytest.mark.parametrize("op", OPS)
def test_gradients_of_two_orders(pairwise: opsmith.Library, op: str, size: tuple[int, int, int]) -> None:
    n, m, p = size
    # No two differences are equal, of which a largest could be.
    x, y = (torch.randn(rows, p, dtype=torch.float64).requires_grad_() for rows in (n, m))
    function = getattr(pairwise, op)
    assert torch.autograd.gradcheck(function, (x, y))
    assert torch.autograd.gradgradcheck(function, (x, y))


@pytest.mark.parametrize("op", OPS)
def test_opcheck(pairwise: opsmith.Library, op: str) -> None:
    x, y = floats(6, 5).requires_grad_(), floats(4, 5).requires_grad_()
    for suffix in ("", "_grad"):
        overload = getattr(torch.ops.pairwise, op + suffix).default
        tensors = sum(str(argument.type) == "Tensor" for argument in overload._schema.arguments)
        inputs = (x, y, *(floats(6, 4).abs().requires_grad_() for _ in range(tensors - 2)))
        outcome = torch.library.opcheck(overload, inputs)
        assert set(outcome.values()) == {"SUCCESS"}
    assert pairwise is not None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_gradients_are_those_of_broadcasting(pairwise: opsmith.Library, dtype: torch.dtype) -> None:
    x, y = torch.randn(50, 70, dtype=dtype), torch.randn(40, 70, dtype=dtype)
    upstream = torch.randn(50, 40, dtype=dtype)

    def gradients(function: object, dtype: torch.dtype) -> list[torch.Tensor]:
        at = [t.to(dtype).requires_grad_() for t in (x, y)]
        return list(torch.autograd.grad(function(*at), at, upstream.to(dtype)))

    definitions = {
        "squared_euclidean": lambda x, y: ((x[:, None] - y[None]) ** 2).sum(-1),
        "chebyshev": lambda x, y: (x[:, None] - y[None]).abs().amax(-1),
        "mean_squared": lambda x, y: ((x[:, None] - y[None]) ** 2).mean(-1),
    }
    for op, definition in definitions.items():
        # Half-precision numbers are computed in float32: one rounding, of the result.
        expected = gradients(definition, torch.float64)
        for ours, theirs in zip(gradients(getattr(pairwise, op), dtype), expected, strict=True):
            assert ours.dtype == dtype
            eps = torch.finfo(dtype).eps
            torch.testing.assert_close(
                ours.double(), theirs, rtol=8 * eps, atol=60 * torch.finfo(torch.float32).eps
            )


def test_compiled_with_dynamic_shapes(pairwise: opsmith.Library) -> None:
    compiled = torch.compile(lambda x, y: pairwise.euclidean(x, y) * 2, dynamic=True, fullgraph=True)
    for n, m, p in [(3, 4, 5), (6, 7, 8)]:
        x, y = torch.randn(n, p).requires_grad_(), torch.randn(m, p)
        torch.testing.assert_close(compiled(x, y), torch.cdist(x, y) * 2)
        (grad,) = torch.autograd.grad(compiled(x, y).sum(), x)
        (expected,) = torch.autograd.grad(torch.cdist(x, y).sum() * 2, x)
        torch.testing.assert_close(grad, expected)


def test_threads_change_no_bit(pairwise: opsmith.Library) -> None:
    x, y = torch.randn(300, 40).requires_grad_(), torch.randn(200, 40).requires_grad_()
    upstream, before = torch.randn(300, 200), torch.get_num_threads()
    results = []
    try:
        for threads in [1, 2, 16]:
            torch.set_num_threads(threads)
            z = pairwise.euclidean(x, y)
            results.append([z, *torch.autograd.grad(z, (x, y), upstream)])
    finally:
        torch.set_num_threads(before)
    for result in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(result, results[0], strict=True))
