"""The order of dims in memory: results of pointwise ops have that of their inputs, as PyTorch's own have."""

from __future__ import annotations

from collections.abc import Callable

import opsmith
import pytest
import torch

Call = Callable[..., torch.Tensor]

IMAGES = (2, 3, 4, 5)


def channels_last(*shape: int) -> torch.Tensor:
    return torch.randn(shape).to(memory_format=torch.channels_last)


CASES: dict[str, tuple[Callable[[], tuple[torch.Tensor, ...]], str]] = {
    "channels last": (lambda: (channels_last(*IMAGES),), "tanh"),
    "transposed": (lambda: (torch.randn(4, 5).T,), "tanh"),
    "dims in any order": (lambda: (torch.randn(IMAGES).permute(2, 0, 3, 1),), "relu"),
    "one channel": (lambda: (channels_last(2, 1, 4, 5).permute(0, 2, 3, 1),), "tanh"),
    "beside row-major": (lambda: (channels_last(*IMAGES), torch.randn(IMAGES)), "add"),
    "row-major first": (lambda: (torch.randn(IMAGES), channels_last(*IMAGES)), "add"),
    "with a bias": (lambda: (channels_last(*IMAGES), torch.randn(3, 1, 1)), "mul"),
    "behind a bias": (lambda: (torch.randn(1, 3, 1, 1), channels_last(*IMAGES)), "sub"),
    "with a number": (lambda: (channels_last(*IMAGES), torch.tensor(2.0)), "div"),
    "expanded": (lambda: (torch.randn(5, 1).T.expand(4, 5), torch.randn(5, 4).T), "add"),
}
"""Inputs, and PyTorch's function of them, which is also the op's name."""


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("compiled", ["eager", "static", "dynamic"])
def test_results_have_the_strides_of_torch(ops: opsmith.Library, case: str, compiled: str) -> None:
    make, name = CASES[case]
    inputs = make()
    call: Call = getattr(ops, name)
    if compiled != "eager":
        torch._dynamo.reset()
        call = torch.compile(call, dynamic=compiled == "dynamic")
    expected = getattr(torch, name)(*inputs)
    result = call(*inputs)
    torch.testing.assert_close(result, expected, check_stride=True)


@pytest.mark.parametrize("case", CASES)
def test_shapes_alone_have_the_same_strides(ops: opsmith.Library, case: str) -> None:
    make, name = CASES[case]
    op = getattr(torch.ops.opsmith, name).default
    torch.library.opcheck(op, tuple(x.requires_grad_() for x in make()))


def test_gradients_have_the_strides_of_the_input(ops: opsmith.Library) -> None:
    x = channels_last(*IMAGES).requires_grad_()
    (ours,) = torch.autograd.grad(ops.tanh(x).sum(), x)
    (theirs,) = torch.autograd.grad(x.tanh().sum(), x)
    torch.testing.assert_close(ours, theirs, check_stride=True)


def test_a_gradient_summed_for_a_bias_is_right(ops: opsmith.Library) -> None:
    x, bias = channels_last(*IMAGES).requires_grad_(), torch.randn(3, 1, 1, requires_grad=True)
    ours = torch.autograd.grad(ops.mul(x, bias).square().sum(), (x, bias))
    theirs = torch.autograd.grad((x * bias).square().sum(), (x, bias))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_compiled_function_serves_inputs_of_other_orders(
    ops: opsmith.Library, dynamic: bool | None
) -> None:
    compiled = torch.compile(lambda x: (ops.tanh(x).flatten() * 2, ops.tanh(x)), dynamic=dynamic)
    for columns in (9, 10, 11, 5):
        x = torch.randn(6, columns)[:, :5].T
        flat, result = compiled(x)
        torch.testing.assert_close(flat, x.tanh().flatten() * 2)
        torch.testing.assert_close(result, ops.tanh(x), check_stride=True)


def test_tensors_without_elements(ops: opsmith.Library) -> None:
    x = torch.empty(2, 0, 4, 5).to(memory_format=torch.channels_last)
    assert ops.tanh(x).shape == x.shape
    torch.library.opcheck(torch.ops.opsmith.tanh.default, (x.requires_grad_(),))


def test_what_is_refused_row_major_is_refused_in_any_order(ops: opsmith.Library) -> None:
    x, grad = torch.randn(1, 4, 3).transpose(1, 2), torch.randn(3, 4)
    for given in (x, x.contiguous()):
        with pytest.raises(RuntimeError, match="must have the rank of input `x`"):
            ops.neg_grad(grad, given)
    with pytest.raises(RuntimeError, match="dim 1 of input"):
        ops.neg_grad(torch.randn(2, 1, 4, 5), channels_last(*IMAGES))


def test_shapes_that_do_not_fit_are_told_as_they_are(ops: opsmith.Library) -> None:
    with pytest.raises(RuntimeError, match=r"\[2,3,4,5\].*\[2,3,4,6\]"):
        ops.add(channels_last(*IMAGES), channels_last(2, 3, 4, 6))


def test_sums_do_not_depend_on_the_order(ops: opsmith.Library) -> None:
    x, y = channels_last(*IMAGES).requires_grad_(), torch.tensor(1.25, requires_grad=True)
    plain = x.detach().contiguous().requires_grad_()
    for one, other in zip(
        torch.autograd.grad(ops.div(x, y).square().sum(), (x, y)),
        torch.autograd.grad(ops.div(plain, y).square().contiguous().sum(), (plain, y)),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
    grads = ops.div_grad(x.detach(), y.detach(), channels_last(*IMAGES))
    assert all(grad.is_contiguous() for grad in grads)


def test_other_ops_give_row_major_results(ops: opsmith.Library) -> None:
    x = channels_last(*IMAGES)
    assert ops.cum_sum(x).is_contiguous()
