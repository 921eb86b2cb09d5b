"""`torch.autocast` casts the inputs of ops that declare a policy, before autograd, and of no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import opsmith
import pytest
import torch
from conftest import load
from torch import autocast
from torch._subclasses.fake_tensor import FakeTensorMode

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64


def both(library: opsmith.Library, name: str) -> list[Callable[..., Any]]:
    """An op's function, and the op itself."""
    return [getattr(library, name), getattr(torch.ops.testops, name)]


@pytest.mark.parametrize(
    ("name", "given", "lower", "expected"),
    [
        ("product_lower", (F32, F32), BF16, BF16),
        ("product_lower", (F16, F32), BF16, BF16),
        ("product_lower", (F32, F32), F16, F16),
        ("product_lower", (F64, F64), BF16, F64),
        ("product_widest", (BF16, F32), BF16, F32),
        ("product_widest", (BF16, BF16), BF16, BF16),
        ("product_widest", (BF16, F16), BF16, F32),
        ("product_widest", (F64, F64), BF16, F64),
    ],
)
def test_dtypes_and_values(
    testops: opsmith.Library,
    name: str,
    given: tuple[torch.dtype, torch.dtype],
    lower: torch.dtype,
    expected: torch.dtype,
) -> None:
    x, y = (torch.randn(5).to(dtype) for dtype in given)
    for op in both(testops, name):
        with autocast("cpu", dtype=lower):
            z = op(x, y)
        assert z.dtype == expected
        torch.testing.assert_close(z, x.to(expected) * y.to(expected))


def test_a_sum_is_taken_in_float32(testops: opsmith.Library) -> None:
    x, offset = torch.randn(9, dtype=BF16), torch.ones(1)
    with autocast("cpu"):
        # The dtype of the offset is fixed, so that it stays even where everything is lowered.
        found = testops.square_sum(x, offset)
        assert testops.square_sum(x.double(), offset).dtype == F64
    assert found.dtype == F32
    torch.testing.assert_close(found, x.float().square().sum() + 1)
    with pytest.raises(RuntimeError, match="input `x` is bfloat16, but must be one of float32, float64"):
        testops.square_sum(x, offset)


def test_inputs_of_a_body_become_the_widest_among_them() -> None:
    pairwise = load("pairwise")
    x, y = torch.randn(3, 2, dtype=BF16), torch.randn(4, 2, requires_grad=True)
    with autocast("cpu"):
        z = pairwise.manhattan(x, y)
    torch.testing.assert_close(z, torch.cdist(x.float(), y, p=1))
    z.sum().backward()
    assert y.grad is not None and y.grad.dtype == F32
    with pytest.raises(RuntimeError, match="y"):
        pairwise.manhattan(x, y)


def test_without_a_policy_or_autocast_nothing_is_cast(testops: opsmith.Library) -> None:
    x, half = torch.randn(2, 3), torch.randn(2, 3, dtype=BF16)
    with autocast("cpu"):
        assert testops.pairwise(x, x).dtype == F32
        with autocast("cpu", enabled=False):
            assert testops.product_lower(x, x).dtype == F32
            with pytest.raises(
                RuntimeError,
                match="inputs `x` and `y` must have one dtype, got float32 and bfloat16; cast one of them",
            ):
                testops.product_widest(x, half)
    assert testops.product_lower(x, x).dtype == F32


@pytest.mark.parametrize("name", ["product_lower", "product_widest"])
def test_gradients_arrive_in_the_inputs_own_dtypes(testops: opsmith.Library, name: str) -> None:
    for op in both(testops, name):
        x, y = torch.randn(6, requires_grad=True), torch.randn(6, dtype=BF16, requires_grad=True)
        with autocast("cpu"):
            z = op(x, y)
        common = z.dtype
        z.sum().backward()
        assert x.grad is not None and y.grad is not None
        assert (x.grad.dtype, y.grad.dtype) == (F32, BF16)
        torch.testing.assert_close(x.grad, y.detach().to(common).to(F32))
        torch.testing.assert_close(y.grad, x.detach().to(common).to(BF16))


@pytest.mark.parametrize("inside", [False, True])
def test_backward_inside_and_outside_of_autocast(testops: opsmith.Library, inside: bool) -> None:
    for op in both(testops, "square_sum"):
        x = torch.randn(6, dtype=BF16, requires_grad=True)
        with autocast("cpu"):
            loss = op(x, torch.zeros(1))
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        assert x.grad is not None and x.grad.dtype == BF16
        torch.testing.assert_close(x.grad, 2 * x.detach())


def test_transforms(testops: opsmith.Library) -> None:
    x = torch.randn(3, 4)
    with autocast("cpu"):
        product = torch.vmap(testops.product_lower)(x, x)
        slope = torch.func.grad(lambda x: testops.product_lower(x, x).sum())(x)
    assert (product.dtype, slope.dtype) == (BF16, F32)
    torch.testing.assert_close(product, x.bfloat16() * x.bfloat16())
    torch.testing.assert_close(slope, 2 * x.bfloat16().float())


def test_a_compiled_function(testops: opsmith.Library) -> None:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with autocast("cpu"):
            return testops.product_widest(testops.product_lower(x, x), y)

    x, y = torch.randn(7, requires_grad=True), torch.randn(7)
    found = torch.compile(step, fullgraph=True, backend="aot_eager")(x, y)
    found.sum().backward()
    slope = x.grad
    x.grad = None
    expected = step(x, y)
    expected.sum().backward()
    assert found.dtype == expected.dtype == F32
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(slope, x.grad)


@pytest.fixture
def cuda_autocast() -> Iterator[None]:
    """Autocast for cards, which `torch.autocast` leaves off where there is none."""
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", F16)
    yield
    torch.set_autocast_enabled("cuda", False)
    torch.clear_autocast_cache()


@pytest.mark.usefixtures("cuda_autocast")
def test_cards_have_the_same_policies(testops: opsmith.Library) -> None:
    with FakeTensorMode():
        x = torch.empty(3, device="cuda")
        for op in both(testops, "product_lower"):
            assert (op(x, x).dtype, op(x, x).device.type) == (F16, "cuda")
        for op in both(testops, "product_widest"):
            assert op(x.bfloat16(), x).dtype == F32
        # Autocast of cards is no matter of the CPU.
        assert testops.product_lower(x.cpu(), x.cpu()).dtype == F32
