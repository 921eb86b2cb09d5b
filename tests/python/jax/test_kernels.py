"""The operators of `examples/kernels` against formulas of JAX: values, gradients, and gradients of these."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import kernel_formulas
import numpy as np
import opsmith
import pytest

JAX = SimpleNamespace(
    exp=jnp.exp,
    log=jnp.log,
    sqrt=jnp.sqrt,
    sum=jnp.sum,
    amax=jnp.max,
    amin=jnp.min,
    sort=jnp.sort,
    numbers=jnp.asarray,
    plain=jax.lax.stop_gradient,
)
FORMULAS = kernel_formulas.formulas(JAX)


def orders(value: Callable[..., Any], inputs: list[Any]) -> list[Any]:
    """The values, the gradients of a weighted sum, and those of the sum of their squares."""
    everything = tuple(range(len(inputs)))

    def weighted(*x: Any) -> Any:
        z = value(*x)
        return (z * jnp.sin(1.0 + jnp.arange(z.size)).reshape(z.shape)).sum()

    first = jax.grad(weighted, everything)

    def squares(*x: Any) -> Any:
        return sum((g * g).sum() for g in first(*x))

    return [value(*inputs), *first(*inputs), *jax.grad(squares, everything)(*inputs)]


@pytest.mark.parametrize("op", [op for op in FORMULAS if op != "attention"])
def test_of_two_orders(kernels: opsmith.Library, op: str) -> None:
    formula = FORMULAS[op]
    inputs = [jnp.asarray(array) for array in formula.numbers(5)]
    function = getattr(kernels, op)
    actual = orders(lambda *x: function(*x, *map(jnp.asarray, formula.others), **formula.attrs), inputs)
    for own, expected in zip(actual, orders(formula.value, inputs), strict=True):
        np.testing.assert_allclose(own, expected, rtol=1e-9, atol=1e-9)


def test_attention_in_jit(kernels: opsmith.Library) -> None:
    """Beside softmax with a mask."""
    query, key, value = (jnp.asarray(array) for array in FORMULAS["attention"].numbers(6))
    length = jnp.array([6, 4])

    def plain(query: Any, key: Any, value: Any) -> Any:
        fit = jnp.einsum("bik,bjk->bij", query, key) / np.sqrt(3)
        fit = jnp.where(jnp.arange(6) < length[:, None, None], fit, -jnp.inf)
        return jnp.einsum("bij,bje->bie", jax.nn.softmax(fit, -1), value)

    def own(query: Any, key: Any, value: Any) -> Any:
        return kernels.attention(query, key, value, length)

    for actual, expected in zip(
        orders(jax.jit(own), [query, key, value]), orders(plain, [query, key, value]), strict=True
    ):
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)
