"""Derivatives of every op of the example libraries that has a gradient, in both modes and batches of them."""

from __future__ import annotations

from typing import Any

import derivatives
import pytest
import torch
from derivatives import Case
from torch.utils import _pytree as pytree

CASES = derivatives.cases()
OF_LISTS = {"zero_out.sum_all"}
"""Derivatives of these are not batched by the checker, whose own vmap calls no op that takes a list."""


def test_no_op_is_left_out() -> None:
    assert not derivatives.left_out({case.id for case in CASES})
    assert len(CASES) == 44


def function(case: Case) -> Any:
    """The outputs that are floats, of the inputs that are differentiated by."""

    def of(*values: torch.Tensor) -> list[torch.Tensor]:
        inputs = pytree.tree_map(torch.as_tensor, case.filled(values))
        return [y for y in case.sample.call(*inputs) if y.is_floating_point()]

    return of


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_gradcheck(case: Case) -> None:
    of, inputs = function(case), [torch.as_tensor(x).requires_grad_() for x in case.at]
    steps = {"eps": 0.5, "atol": 1e-2, "rtol": 1e-2} if case.id in derivatives.FLOAT32 else {}
    has_second = case.id not in derivatives.ONE_ORDER
    assert torch.autograd.gradcheck(
        of,
        inputs,
        check_forward_ad=has_second,
        check_batched_grad=case.id not in OF_LISTS,
        check_batched_forward_grad=has_second and case.id not in OF_LISTS,
        fast_mode=True,
        **steps,
    )
    if has_second:
        assert torch.autograd.gradgradcheck(
            of, inputs, check_fwd_over_rev=True, fast_mode=True, **(steps or {"atol": 1e-4})
        )
        return
    tangents = tuple(map(torch.ones_like, inputs))
    with pytest.raises(NotImplementedError, match=derivatives.ONE_ORDER[case.id]):
        torch.func.jvp(of, tuple(inputs), tangents)
    with pytest.raises(NotImplementedError, match=derivatives.ONE_ORDER[case.id]):
        torch.autograd.gradgradcheck(of, inputs, fast_mode=True)


def test_batches_of_derivatives_of_lists() -> None:
    assert {case.id for case in CASES} >= OF_LISTS
    for case in (case for case in CASES if case.id in OF_LISTS):
        of, inputs = function(case), tuple(map(torch.as_tensor, case.at))
        batches = tuple(torch.rand(3, *x.shape, dtype=x.dtype) for x in inputs)
        found = torch.func.vmap(lambda *t: torch.func.jvp(of, inputs, t)[1])(*batches)  # noqa: B023
        for at in range(3):
            expected = torch.func.jvp(of, inputs, tuple(batch[at] for batch in batches))[1]
            torch.testing.assert_close([x[at] for x in found], expected)
        outputs, back = torch.func.vjp(of, *inputs)
        arriving = [torch.rand(3, *y.shape, dtype=y.dtype) for y in outputs]
        batched = torch.func.vmap(back)(arriving)
        for at in range(3):
            torch.testing.assert_close(tuple(x[at] for x in batched), back([x[at] for x in arriving]))
