"""The gradients of the standard operators against finite differences, and against PyTorch's."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import opsmith
import pytest
import torch
from conftest import count
from operators import OPS
from table import Op, tensor

DIFFERENTIATED = [op for op in OPS if op.differentiated]
LARGEST = 700
"""From how many elements on finite differences take long."""


def problems(op: Op) -> list[tuple[Callable[..., Any], list[torch.Tensor], dict[str, Any], list[Any]]]:
    """Functions of tensors that want gradients, made of the cases in float64; empty ones are left out."""
    rng = np.random.default_rng(zlib.crc32(op.name.encode()))
    found = []
    for inputs, attributes in op.cases(rng, "float64"):
        given = list(inputs[0]) if op.listed else list(inputs)
        positions = range(len(given)) if op.listed else op.differentiated
        tensors = [tensor(given[p]) for p in positions]
        if not all(bool(torch.isfinite(x).all()) and x.numel() > 0 for x in tensors):
            continue
        found.append((positions, tensors, attributes, given))
    return found


def call(function: Callable[..., Any], op: Op, problem: Any, wrap: bool) -> Callable[..., Any]:
    """The function of the differentiated inputs alone."""
    positions, _, attributes, given = problem

    def of(*tensors: torch.Tensor) -> Any:
        filled = [tensor(x) if isinstance(x, np.ndarray) else x for x in given]
        for position, given_one in zip(positions, tensors, strict=True):
            filled[position] = given_one
        outputs = function(filled, **attributes) if op.listed and wrap else function(*filled, **attributes)
        if isinstance(outputs, (tuple, list)):
            return tuple(output for output in outputs if output.is_floating_point())
        return outputs

    return of


def size(problem: Any) -> int:
    return sum(x.numel() for x in problem[1])


@pytest.mark.parametrize("op", DIFFERENTIATED, ids=lambda op: op.name)
def test_gradients_are_those_of_finite_differences(ops: opsmith.Library, op: Op) -> None:
    small = [problem for problem in problems(op) if size(problem) <= LARGEST]
    assert small
    for problem in small:
        tensors = [x.requires_grad_() for x in problem[1]]
        function = call(getattr(ops, op.name), op, problem, wrap=True)
        assert torch.autograd.gradcheck(
            function,
            tensors,
            fast_mode=size(problem) > 60,
            atol=1e-5,
            check_forward_ad=op.orders > 1,
        )
        count("finite differences")


@pytest.mark.parametrize("op", [op for op in DIFFERENTIATED if op.orders > 1], ids=lambda op: op.name)
def test_second_gradients_are_those_of_finite_differences(ops: opsmith.Library, op: Op) -> None:
    small = [problem for problem in problems(op) if size(problem) <= 100]
    assert small
    for problem in small:
        tensors = [x.requires_grad_() for x in problem[1]]
        function = call(getattr(ops, op.name), op, problem, wrap=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert torch.autograd.gradgradcheck(function, tensors, fast_mode=True, atol=1e-4)
        count("finite differences, in the second order")


@pytest.mark.parametrize("op", [op for op in DIFFERENTIATED if op.torch], ids=lambda op: op.name)
def test_gradients_are_pytorchs(ops: opsmith.Library, op: Op) -> None:
    found = problems(op)
    assert found
    for problem in found:

        def gradients(function: Callable[..., Any], problem: Any = problem) -> list[torch.Tensor]:
            tensors = [x.detach().clone().requires_grad_() for x in problem[1]]
            outputs = function(*tensors)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            generator = torch.Generator().manual_seed(3)
            total = torch.zeros((), dtype=torch.float64)
            for output in outputs:
                weights = torch.randn(output.shape, dtype=output.dtype, generator=generator)
                total = total + (weights * output).sum()
            return [*outputs, *torch.autograd.grad(total, tensors, materialize_grads=True)]

        ours = gradients(call(getattr(ops, op.name), op, problem, wrap=True))
        theirs = gradients(call(op.torch, op, problem, wrap=False))
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
        count("PyTorch's values and gradients")


def test_the_gradient_of_a_cast_has_the_dtype_that_it_came_from(ops: opsmith.Library) -> None:
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    y = ops.cast(x, dtype="float32")
    (slope,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
    assert slope.dtype == torch.float64
    torch.testing.assert_close(slope, 2 * y.double())
    (second,) = torch.autograd.grad(slope.sum(), x)
    torch.testing.assert_close(second, torch.full_like(x, 2.0))
    count("PyTorch's values and gradients", 2)


def test_a_window_of_nothing_adds_nothing_to_a_gradient(ops: opsmith.Library) -> None:
    options: dict[str, Any] = {"ksize": [1], "padding": [1], "count_padding": False}
    x = torch.tensor([[1.0, 2.0]], dtype=torch.float64, requires_grad=True)
    y = ops.avg_pool(x, **options)
    assert torch.equal(y.isnan(), torch.tensor([[True, False, False, True]]))
    y_grad = torch.ones_like(y, requires_grad=True)
    (x_grad,) = torch.autograd.grad(y, x, y_grad, create_graph=True)
    assert torch.equal(x_grad, torch.ones_like(x))
    (again,) = torch.autograd.grad((x_grad * torch.tensor([[3.0, 5.0]])).sum(), y_grad)
    assert torch.equal(again, torch.tensor([[0.0, 3.0, 5.0, 0.0]], dtype=torch.float64))
