"""Forward mode of bodies, alone, over reverse mode, and batched, against finite differences."""

from __future__ import annotations

from typing import Any

import kernel_formulas
import numpy as np
import opsmith
import pytest
import torch
from conftest import load
from torch.func import grad, hessian, jacfwd, jacrev, jvp

FORMULAS = kernel_formulas.formulas(np)


@pytest.mark.parametrize("op", FORMULAS)
def test_of_kernels(op: str) -> None:
    kernels, formula = load("kernels"), FORMULAS[op]
    others = [torch.from_numpy(array) for array in formula.others]

    def value(*x: torch.Tensor) -> torch.Tensor:
        return getattr(kernels, op)(*x, *others, **formula.attrs)

    inputs = [torch.from_numpy(array).requires_grad_() for array in formula.numbers(6)]
    assert torch.autograd.gradcheck(
        value, inputs, check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True
    )
    assert torch.autograd.gradgradcheck(value, inputs, check_fwd_over_rev=True, fast_mode=True, atol=1e-4)


def test_of_what_gradients_read() -> None:
    """A softmax is read in its gradient, which then does not know the input."""
    softmax = load("reductions").softmax
    x = torch.rand(2, 5, dtype=torch.float64)
    torch.testing.assert_close(jacfwd(softmax)(x), jacrev(lambda x: torch.softmax(x, -1))(x))

    def loss(softmax: Any) -> Any:
        return lambda x: (softmax(x) ** 2).sum()

    second = hessian(loss(softmax))
    torch.testing.assert_close(second(x), hessian(loss(lambda x: torch.softmax(x, -1)))(x))
    with pytest.raises(NotImplementedError, match="SoftmaxGradGradGrad declares no gradient"):
        jacfwd(second)(x)


def test_hessian_of_64_numbers() -> None:
    """Of log(sum(exp(x))): diag(p) - p pᵀ with the softmax p."""
    x = torch.rand(64, dtype=torch.float64)
    p = torch.softmax(x, 0)
    log_sum_exp = load("reductions").log_sum_exp
    found = hessian(lambda x: log_sum_exp(x[None])[0])(x)
    torch.testing.assert_close(found, torch.diag(p) - torch.outer(p, p))


def test_over_reverse_with_constants(ops: opsmith.Library) -> None:
    x, y, t = (torch.rand(3, dtype=torch.float64) + 0.5 for _ in range(3))

    def slope(multiply: Any, power: Any) -> Any:
        return jvp(grad(lambda x: (multiply(x, y) * power(x, y) * x).sum()), (x,), (t,))

    torch.testing.assert_close(slope(ops.mul, ops.pow), slope(torch.mul, torch.pow))


def test_tangents_that_are_not_of_a_call(ops: opsmith.Library) -> None:
    """An input moves, and what was computed from it does not, or the other way."""
    x, y, v, t = (torch.rand(3, dtype=torch.float64) + 0.5 for _ in range(4))
    z = torch.pow(x, y)
    for of in range(4):

        def slope(moved: torch.Tensor, of: int = of) -> Any:
            inputs = [x, y, z, v]
            inputs[of] = moved
            return ops.pow_grad(*inputs)

        at, step = (x, y, z, v)[of], 1e-6
        _, found = jvp(slope, (at,), (t,))
        for tangent, up, down in zip(found, slope(at + step * t), slope(at - step * t), strict=True):
            torch.testing.assert_close(tangent, (up - down) / (2 * step), rtol=1e-6, atol=1e-6)


def test_tangents_that_two_orders_do_not_give(testops: opsmith.Library) -> None:
    """A gradient op whose gradient op has none gives the derivatives of a call, and no others."""
    x, y, v, t = (torch.rand(3, dtype=torch.float64) + 0.5 for _ in range(4))
    slope = jvp(grad(lambda x: (testops.power(x, y) * v).sum()), (x,), (t,))
    torch.testing.assert_close(slope, jvp(grad(lambda x: (torch.pow(x, y) * v).sum()), (x,), (t,)))
    with pytest.raises(NotImplementedError, match="PowerGradGrad declares no gradient"):
        jvp(grad(grad(lambda x: testops.power(x, y[0]).sum())), (x[0],), (t[0],))
    z = torch.pow(x, y)
    for of in (0, 2):
        with torch.autograd.forward_ad.dual_level():
            inputs = [x, y, z, v]
            inputs[of] = torch.autograd.forward_ad.make_dual(inputs[of], t)
            with pytest.raises(
                NotImplementedError, match="Power: its derivative has none in forward mode along these"
            ):
                testops.power_grad(*inputs)


def test_positions_have_no_tangents() -> None:
    kernels = load("kernels")
    x, y = torch.rand(4, 3, dtype=torch.float64), torch.rand(6, 3, dtype=torch.float64)
    values, tangents = jvp(kernels.nearest, (x, y), (x, y))
    assert torch.equal(values, kernels.nearest(x, y)) and not tangents.any()


def test_ops_without_gradients_and_in_place(testops: opsmith.Library) -> None:
    x = torch.rand(3)
    with pytest.raises(NotImplementedError, match="Echo: has no forward-mode derivative"):
        jvp(testops.echo, (x,), (x,))
    with pytest.raises(NotImplementedError, match="AddInto: has no forward-mode derivative"):
        jvp(lambda x: testops.add_into(torch.zeros(3), x), (x,), (x,))


def test_in_compiled_programs() -> None:
    gelu = load("activations").gelu
    x = torch.rand(5, dtype=torch.float64)
    eager = jvp(gelu, (x,), (x,))
    compiled = torch.compile(lambda x: jvp(gelu, (x,), (x,)), backend="aot_eager")
    torch.testing.assert_close(compiled(x), eager)
