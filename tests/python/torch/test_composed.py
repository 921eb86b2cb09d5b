"""Compositions of ops in PyTorch: an LLTM, and a gradient that is a composition."""

from __future__ import annotations

import opsmith
import pytest
import torch
from conftest import load
from lltm_reference import numbers, sizes


@pytest.fixture(scope="module")
def composed() -> opsmith.Library:
    """The example library."""
    return load("composed")


def tensors(*shape: int) -> list[torch.Tensor]:
    """The inputs of a step, which want gradients."""
    return [torch.from_numpy(x).requires_grad_() for x in numbers(*shape)]


def test_the_lltm_of_ops_is_the_hand_written_one(composed: opsmith.Library) -> None:
    lltm = load("lltm")
    for shape in sizes():
        inputs = tensors(*shape)
        ours, theirs = composed.lltm_of_ops(*inputs), lltm.lltm(*inputs)
        for left, right in zip(ours, theirs, strict=True):
            torch.testing.assert_close(left, right)
        upstream = [torch.randn_like(x) for x in ours]
        found, expected = (torch.autograd.grad(y, inputs, upstream) for y in (ours, theirs))
        for left, right in zip(found, expected, strict=True):
            torch.testing.assert_close(left, right)


def test_gradients_of_two_orders(composed: opsmith.Library) -> None:
    inputs = tensors(3, 2, 4)
    assert torch.autograd.gradcheck(composed.lltm_of_ops, inputs)
    assert torch.autograd.gradgradcheck(composed.lltm_of_ops, inputs)


def test_opcheck(composed: opsmith.Library) -> None:
    for op, inputs in [
        ("lltm_of_ops", tuple(tensors(3, 2, 4))),
        ("zero_out", (torch.ones(3, requires_grad=True),)),
    ]:
        found = torch.library.opcheck(getattr(torch.ops.composed, op).default, inputs)
        assert set(found.values()) == {"SUCCESS"}
    assert composed is not None


def test_a_gradient_that_is_a_composition(composed: opsmith.Library) -> None:
    x = torch.arange(1.0, 7.0, dtype=torch.float64).reshape(2, 3).requires_grad_()
    (gradient,) = torch.autograd.grad((3 * composed.zero_out(x)).sum(), x)
    torch.testing.assert_close(gradient, torch.tensor([[3.0, 0, 0], [0, 0, 0]], dtype=torch.float64))
    assert torch.autograd.gradgradcheck(composed.zero_out, [x])


def test_an_error_names_both_ops(composed: opsmith.Library) -> None:
    with pytest.raises(RuntimeError, match=r"(?i)zero_?out_?grad.*slice"):
        composed.zero_out_grad(torch.ones(0), torch.ones(0))
