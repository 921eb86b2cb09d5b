"""Medians of windows under PyTorch: against unfolding and sorting, autograd of two orders, its compiler."""

from __future__ import annotations

import opsmith
import pytest
import torch
from conftest import load
from pools import CASES, Pool, gradient, images, random_cases


@pytest.fixture(scope="module")
def library() -> opsmith.Library:
    """The example library."""
    return load("median_pool")


def unfolded(x: torch.Tensor, ksize: tuple[int, int], strides: tuple[int, int]) -> torch.Tensor:
    """The medians of windows inside of images, in PyTorch's own ops."""
    windows = x.unfold(1, ksize[0], strides[0]).unfold(2, ksize[1], strides[1]).flatten(-2)
    return windows.sort(dim=-1, stable=True)[0][..., windows.shape[-1] // 2]


def distinct(pool: Pool, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Images no two of whose elements are near each other."""
    return torch.from_numpy(images(pool, "float64", distinct=True)).to(dtype).requires_grad_()


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.int32]
)
def test_values_are_those_of_unfolding(library: opsmith.Library, dtype: torch.dtype) -> None:
    for pool in CASES:
        if pool.padding == "VALID" and 0 not in pool.shape:
            x = torch.from_numpy(images(pool, "int64")).to(dtype)
            torch.testing.assert_close(
                library.median_pool(x, **pool.attrs), unfolded(x, pool.ksize, pool.strides), rtol=0, atol=0
            )


def test_gradients_are_those_of_unfolding(library: opsmith.Library) -> None:
    count = 0
    for pool in random_cases(60, 2):
        if pool.padding != "VALID":
            continue
        x = distinct(pool)
        y, theirs = library.median_pool(x, **pool.attrs), unfolded(x, pool.ksize, pool.strides)
        upstream = torch.randn_like(y)
        (ours,), (expected,) = (torch.autograd.grad(z, x, upstream) for z in (y, theirs))
        torch.testing.assert_close(ours, expected)
        count += 1
    print(f"median_pool: {count} gradients against PyTorch's")
    assert count >= 15


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_of_equal_elements_the_first_takes_the_gradient(library: opsmith.Library, dtype: torch.dtype) -> None:
    for pool in CASES:
        x = torch.from_numpy(images(pool, "float64")).to(dtype).requires_grad_()
        y = library.median_pool(x, **pool.attrs)
        upstream = torch.randint(0, 8, y.shape).to(dtype)
        (grad,) = torch.autograd.grad(y, x, upstream)
        expected = gradient(x.detach().float().numpy(), pool, upstream.float().numpy())
        torch.testing.assert_close(grad, torch.from_numpy(expected).to(dtype), rtol=0, atol=0)


SMALL = [
    Pool((2, 4, 5, 2), (3, 3), (1, 1), "SAME"),
    Pool((1, 5, 6, 1), (2, 3), (2, 1), "VALID"),
    Pool((1, 4, 7, 2), (4, 2), (1, 3), "SAME"),
]


@pytest.mark.parametrize("pool", SMALL)
def test_gradcheck(library: opsmith.Library, pool: Pool) -> None:
    def op(x: torch.Tensor) -> torch.Tensor:
        return library.median_pool(x, **pool.attrs)

    x = distinct(pool)
    assert torch.autograd.gradcheck(op, x)
    assert torch.autograd.gradgradcheck(op, x)


@pytest.mark.parametrize("pool", SMALL)
def test_opcheck(library: opsmith.Library, pool: Pool) -> None:
    x, ops = distinct(pool, torch.float32), torch.ops.median_pool
    y_grad = torch.randn_like(library.median_pool(x, **pool.attrs)).requires_grad_()
    calls = [
        (ops.median_pool, (x,)),
        (ops.median_pool_grad, (x, y_grad)),
        (ops.median_pool_grad_grad, (x.detach(), x.detach())),
    ]
    for op, inputs in calls:
        outcome = torch.library.opcheck(op.default, inputs, pool.attrs)
        assert set(outcome.values()) == {"SUCCESS"}


def test_compiled_with_symbolic_sizes(library: opsmith.Library) -> None:
    def halved(x: torch.Tensor) -> torch.Tensor:
        return library.median_pool(x * 2, ksize=[3, 2], strides=[2, 1], padding="SAME") / 2

    compiled = torch.compile(halved, fullgraph=True, backend="aot_eager", dynamic=True)
    for shape in ((2, 6, 7, 3), (1, 9, 4, 5)):
        x = torch.randn(shape, requires_grad=True)
        torch.testing.assert_close(compiled(x), halved(x))
        (ours,), (expected,) = (torch.autograd.grad(f(x).sum(), x) for f in (compiled, halved))
        torch.testing.assert_close(ours, expected)


def test_strided_images_and_nan(library: opsmith.Library) -> None:
    # Channels first in memory.
    x = torch.randn(2, 3, 20, 30).permute(0, 2, 3, 1)
    torch.testing.assert_close(library.median_pool(x, ksize=[3, 3]), unfolded(x, (3, 3), (1, 1)))
    x = x.contiguous()
    x[0, 5, 5, 1] = torch.nan
    windows = x.unfold(1, 3, 1).unfold(2, 3, 1).flatten(-2)
    # PyTorch's median of nine is the fifth as well, and NaN where there is one.
    torch.testing.assert_close(library.median_pool(x, ksize=[3, 3]), windows.median(-1)[0], equal_nan=True)


def test_threads_change_no_bit(library: opsmith.Library) -> None:
    x = torch.randn(2, 70, 40, 3, requires_grad=True)
    upstream, before, results = torch.randn(2, 70, 40, 3), torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            y = library.median_pool(x, ksize=[5, 5], padding="SAME")
            results.append([y, *torch.autograd.grad(y, x, upstream)])
    finally:
        torch.set_num_threads(before)
    for result in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(result, results[0], strict=True))


def test_what_does_not_fit_is_told(library: opsmith.Library) -> None:
    x = torch.ones(1, 5, 5, 1)
    for attrs, message in [
        ({"ksize": [6, 3]}, "at least 6 rows, the height of a window"),
        ({"ksize": [3, 3], "strides": [0, 1]}, "`strides` must be of numbers from 1"),
        ({"ksize": [3]}, "`ksize` must be two numbers"),
    ]:
        with pytest.raises((RuntimeError, ValueError), match=message):
            library.median_pool(x, **attrs)
    with pytest.raises((RuntimeError, ValueError), match=r"must have rank 4|batch, height, width"):
        library.median_pool(x[0], ksize=[3, 3])
