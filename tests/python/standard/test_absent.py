"""Derivatives along one input where those along another are infinite or NaN: what is absent there
is nothing, and not a zero that is multiplied by these."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import opsmith
import pytest
import torch
from conftest import count
from torch import func

HARD = [-2.0, -1.0, 0.0, 0.5, 2.0, 3.0]
GRID = np.array(list(itertools.product(HARD, HARD))).T
ONES = np.ones(GRID.shape[1])
Function = Callable[..., Any]
PLAIN: dict[str, tuple[Function, Function]] = {
    "pow": (jnp.power, torch.pow),
    "div": (jnp.divide, torch.div),
    "mul": (jnp.multiply, torch.mul),
}
IN_JAX: dict[str, Callable[[Function, Any], Any]] = {
    "gradient": lambda f, x: jax.grad(total(f))(x),
    "jvp": lambda f, x: jax.jvp(f, (x,), (jnp.ones_like(x),))[1],
    "reverse over reverse": lambda f, x: jax.grad(total(jax.grad(total(f))))(x),
    "forward over reverse": lambda f, x: jnp.diag(jax.hessian(total(f))(x)),
    "reverse over forward": lambda f, x: jax.grad(total(lambda x: IN_JAX["jvp"](f, x)))(x),
    "forward over forward": lambda f, x: IN_JAX["jvp"](lambda x: IN_JAX["jvp"](f, x), x),
    "batched": lambda f, x: jnp.diag(jax.jit(jax.jacrev(jax.jacrev(total(f))))(x)),
}
IN_TORCH: dict[str, Callable[[Function, Any], Any]] = {
    "gradient": lambda f, x: func.grad(total(f))(x),
    "jvp": lambda f, x: func.jvp(f, (x,), (torch.ones_like(x),))[1],
    "reverse over reverse": lambda f, x: func.grad(total(func.grad(total(f))))(x),
    "forward over reverse": lambda f, x: func.hessian(total(f))(x).diag(),
    "reverse over forward": lambda f, x: func.grad(total(lambda x: IN_TORCH["jvp"](f, x)))(x),
    "forward over forward": lambda f, x: IN_TORCH["jvp"](lambda x: IN_TORCH["jvp"](f, x), x),
    "batched": lambda f, x: func.jacrev(func.jacrev(total(f)))(x).diag(),
    "recorded": lambda f, x: recorded(f, x),
}


def total(f: Function) -> Function:
    """The sum of what a function gives."""
    return lambda x: f(x).sum()


def recorded(f: Function, x: torch.Tensor) -> Any:
    """The second derivative by PyTorch's tape."""
    x = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
    if not first.requires_grad:
        return torch.zeros_like(x)
    (second,) = torch.autograd.grad(first.sum(), x, allow_unused=True, materialize_grads=True)
    return second


def along(function: Function, place: int, other: Any) -> Function:
    """A function of one of two inputs."""
    return (lambda x: function(x, other)) if place == 0 else (lambda x: function(other, x))


def compare(found: Any, expected: Any, framework: str) -> None:
    """Compares where the reference is finite."""
    found, expected = (
        x.numpy(force=True) if isinstance(x, torch.Tensor) else np.asarray(x) for x in (found, expected)
    )
    finite = np.isfinite(expected)
    assert finite.any()
    np.testing.assert_allclose(found[finite], expected[finite], rtol=1e-9, atol=1e-12)
    count(f"{framework} along one of two inputs", int(finite.sum()))


@pytest.mark.parametrize("mode", IN_JAX)
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("op", PLAIN)
def test_jax(ops: opsmith.Library, op: str, place: int, mode: str) -> None:
    with jax.enable_x64(True):
        x, other = jnp.asarray(GRID[place]), jnp.asarray(GRID[1 - place])
        own, plain = (along(f, place, other) for f in (getattr(ops, op), PLAIN[op][0]))
        compare(IN_JAX[mode](own, x), IN_JAX[mode](plain, x), "JAX")


@pytest.mark.parametrize("mode", IN_TORCH)
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("op", PLAIN)
def test_torch(ops: opsmith.Library, op: str, place: int, mode: str) -> None:
    x, other = torch.from_numpy(GRID[place]), torch.from_numpy(GRID[1 - place])
    own, plain = (along(f, place, other) for f in (getattr(ops, op), PLAIN[op][1]))
    compare(IN_TORCH[mode](own, x), IN_TORCH[mode](plain, x), "PyTorch")


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("op", PLAIN)
def test_graphs(op: str, place: int) -> None:
    graph = opsmith.Graph()
    inputs = [graph.placeholder("float64", [GRID.shape[1]]) for _ in range(2)]
    x = inputs[place]
    y = getattr(opsmith.ops, op)(*inputs)
    (first,) = opsmith.gradients([y], [x])
    (second,) = opsmith.gradients([first], [x])
    asked = {
        "gradient": first,
        "jvp": opsmith.jvp([y], [x], [ONES])[0],
        "forward over reverse": opsmith.jvp([first], [x], [ONES])[0],
        "reverse over reverse": second,
    }
    given = dict(zip(inputs, GRID, strict=True))
    together = opsmith.Session(graph).run(list(asked.values()), given)
    with jax.enable_x64(True):
        plain = along(PLAIN[op][0], place, jnp.asarray(GRID[1 - place]))
        for (mode, one), found in zip(asked.items(), together, strict=True):
            expected = IN_JAX[mode](plain, jnp.asarray(GRID[place]))
            compare(found, expected, "graphs")
            compare(opsmith.Session(graph).run(one, given), expected, "graphs")
