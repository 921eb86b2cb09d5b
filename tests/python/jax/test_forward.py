"""Forward mode, alone and with the other transformations, against plain JAX and finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import kernel_formulas
import numpy as np
import opsmith
import pytest
from conftest import load
from jax.test_util import check_grads

FORMULAS = kernel_formulas.formulas(np)
RNG = np.random.default_rng(0)
X, T = jnp.asarray(RNG.random((3, 5))) + 0.5, jnp.asarray(RNG.random((3, 5)))
BATCH = jnp.stack([X, 2 * X, X + 1])
F = Callable[[jax.Array], jax.Array]


@pytest.mark.parametrize("op", FORMULAS)
def test_of_kernels(op: str) -> None:
    kernels, formula = load("kernels"), FORMULAS[op]
    others = [jnp.asarray(array) for array in formula.others]

    def value(*x: jax.Array) -> jax.Array:
        return getattr(kernels, op)(*x, *others, **formula.attrs)

    inputs = tuple(jnp.asarray(array) for array in formula.numbers(6))
    if jnp.issubdtype(value(*inputs).dtype, jnp.floating):
        check_grads(value, inputs, order=2, modes=["fwd", "rev"])
    else:
        _, tangent = jax.jvp(value, inputs, inputs)
        assert tangent.dtype == jax.dtypes.float0


def loss(f: F) -> F:
    return lambda x: (f(x) ** 3).sum()


def scanned(f: F) -> F:
    return lambda x: jax.lax.scan(lambda c, _: (f(c) + x, f(c).sum()), x, None, length=3)[1]


USES: dict[str, Callable[[F], Any]] = {
    "jvp": lambda f: jax.jvp(f, (X,), (T,)),
    "jit of jvp": lambda f: jax.jit(lambda x, t: jax.jvp(f, (x,), (t,)))(X, T),
    "jacfwd": lambda f: jax.jacfwd(f)(X),
    "linearize": lambda f: jax.linearize(f, X)[1](T),
    "vmap of linearize": lambda f: jax.vmap(jax.linearize(f, X)[1])(BATCH),
    "transpose of linearize": lambda f: jax.linear_transpose(jax.linearize(f, X)[1], X)(T),
    "transpose of vmap of linearize": lambda f: jax.linear_transpose(jax.vmap(jax.linearize(f, X)[1]), BATCH)(
        BATCH
    ),
    "hessian": lambda f: jax.hessian(loss(f))(X),
    "forward over reverse": lambda f: jax.jvp(jax.grad(loss(f)), (X,), (T,)),
    "reverse over forward": lambda f: jax.grad(lambda x: jax.jvp(loss(f), (x,), (T,))[1])(X),
    "forward over forward": lambda f: jax.jvp(lambda x: jax.jvp(f, (x,), (T,))[1], (X,), (T,)),
    "vmap of jvp": lambda f: jax.vmap(lambda x, t: jax.jvp(f, (x,), (t,)))(BATCH, BATCH),
    "vmap of jvp, one point": lambda f: jax.vmap(lambda t: jax.jvp(f, (X,), (t,)))(BATCH),
    "vmap of jvp, one tangent": lambda f: jax.vmap(lambda x: jax.jvp(f, (x,), (T,)), 2)(
        BATCH.transpose(1, 2, 0)
    ),
    "vmap of vmap of jvp": lambda f: jax.vmap(lambda x: jax.vmap(lambda t: jax.jvp(f, (x,), (t,)))(BATCH))(
        BATCH
    ),
    "jvp of vmap": lambda f: jax.jvp(jax.vmap(f), (BATCH,), (BATCH,)),
    "grad of vmap of jvp": lambda f: jax.grad(
        lambda x: jax.vmap(lambda t: jax.jvp(f, (x,), (t,))[1])(BATCH).sum()
    )(X),
    "checkpoint": lambda f: jax.jvp(jax.grad(lambda x: jax.checkpoint(loss(f))(x)), (X,), (T,)),
    "scan": lambda f: jax.jvp(scanned(f), (X,), (T,)),
    "grad of scan": lambda f: jax.jvp(jax.grad(lambda x: scanned(f)(x).prod()), (X,), (T,)),
    "cond": lambda f: jax.jvp(lambda x: jax.lax.cond(x[0, 0] > 9, loss(f), f_sum(f), x), (X,), (T,)),
}


def f_sum(f: F) -> F:
    return lambda x: f(x).sum()


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("use", USES)
def test_as_plain_jax(use: str, jit: bool) -> None:
    softmax = load("reductions").softmax
    found = USES[use](jax.jit(softmax) if jit else softmax)
    expected = USES[use](lambda x: jax.nn.softmax(x, -1))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), found, expected)


def test_hessian_of_64_numbers() -> None:
    """Of log(sum(exp(x))): diag(p) - p pᵀ with the softmax p."""
    x = jnp.asarray(RNG.random(64))
    p = jax.nn.softmax(x)
    found = jax.hessian(lambda x: load("reductions").log_sum_exp(x[None])[0])(x)
    np.testing.assert_allclose(found, jnp.diag(p) - jnp.outer(p, p), rtol=1e-9, atol=1e-12)


def test_along_some_inputs(ops: opsmith.Library) -> None:
    x, y, t = (jnp.asarray(RNG.random(3)) + 0.5 for _ in range(3))
    for own, plain in ((ops.pow, jnp.power), (ops.div, jnp.divide)):
        for of in (lambda f: lambda x: f(x, y), lambda f: lambda x: f(y, x)):
            np.testing.assert_allclose(jax.jvp(of(own), (x,), (t,)), jax.jvp(of(plain), (x,), (t,)))
    slope = lambda f: jax.jvp(jax.grad(lambda x: (f(x, y) * x).sum()), (x,), (t,))  # noqa: E731
    np.testing.assert_allclose(slope(ops.pow), slope(jnp.power))


def test_lists_integers_and_constants(ops: opsmith.Library, zero_out: opsmith.Library) -> None:
    x = jnp.asarray(RNG.random(4))
    _, tangent = jax.jvp(lambda x: zero_out.sum_all([x, 2 * x, jnp.ones(4)]), (x,), (x,))
    np.testing.assert_allclose(tangent, 3 * x)
    (value, place), (tangent, none) = jax.jvp(lambda x: tuple(zero_out.max_with_index(x)), (x,), (x,))
    assert tangent == value == x[place] and none.dtype == jax.dtypes.float0
    places, zeros = jnp.array([2, 0]), np.zeros(2, jax.dtypes.float0)
    _, tangent = jax.jvp(lambda x, at: ops.gather(x, at, axis=0), (x, places), (x, zeros))
    np.testing.assert_allclose(tangent, x[places])


def test_what_has_none_is_an_error(testops: opsmith.Library, distances: opsmith.Library) -> None:
    x = jnp.ones(3, np.float32)
    for program in (jax.jvp, lambda *args: jax.jit(lambda: jax.jvp(*args))()):
        with pytest.raises(opsmith.UnimplementedError, match="Echo: has no forward-mode derivative"):
            program(testops.echo, (x,), (x,))
    with pytest.raises(opsmith.UnimplementedError, match="Increment: has no forward-mode derivative"):
        jax.jvp(testops.increment, (x,), (x,))
    # Two orders are declared.
    f, y = distances.pairwise_manhattan_distance, X[:2]
    second = lambda x: jax.jvp(jax.grad(lambda x: (f(x, y) ** 2).sum()), (x,), (T,))[1]  # noqa: E731
    third = lambda x: jax.jvp(lambda x: jax.jvp(second, (x,), (T,))[1], (x,), (T,))  # noqa: E731
    assert second(X).shape == X.shape
    with pytest.raises(
        opsmith.UnimplementedError, match=r"^PairwiseManhattanDistance: its derivative has none in forward"
    ):
        third(X)
    # So are two here, of an op that reads its output: forward over forward takes a third.
    power = lambda x: testops.power(x, x)  # noqa: E731
    x = jnp.asarray([0.5, 1.5])
    plain = lambda x: jnp.power(x, x)  # noqa: E731
    over = lambda f: jax.grad(lambda x: jax.jvp(f, (x,), (x,))[1].sum())(x)  # noqa: E731
    np.testing.assert_allclose(over(power), over(plain))
    with pytest.raises(opsmith.UnimplementedError, match=r"^Power: its derivative has none in forward mode"):
        jax.jvp(lambda x: jax.jvp(power, (x,), (x,))[1], (x,), (x,))
    x = jnp.ones(3, np.float32)
    # What flows nowhere is no error.
    assert jax.grad(lambda x: (jax.lax.stop_gradient(testops.echo(x)) * x).sum())(x).tolist() == [1] * 3


def test_zeros_along_what_is_not_differentiable(zero_out: opsmith.Library) -> None:
    x = jnp.arange(4.0)
    _, tangent = jax.jvp(lambda x: zero_out.zero_out(x.astype(np.int32)).astype(float) + x, (x,), (x,))
    np.testing.assert_array_equal(tangent, x)


def test_without_jit_and_with_numbers_of_python(ops: opsmith.Library) -> None:
    with jax.disable_jit():
        np.testing.assert_allclose(ops.tanh(X), jnp.tanh(X))
        np.testing.assert_allclose(jax.grad(lambda x: ops.tanh(x).sum())(X), 1 - jnp.tanh(X) ** 2)
    assert jax.grad(lambda s: ops.mul(s, jnp.ones((8, 4))).sum())(2.0) == 32.0
    assert jax.grad(lambda s: ops.pow(jnp.full(2, 3.0), s).sum())(2.0) == pytest.approx(18 * np.log(3))


def test_second_order_by_one_of_two(ops: opsmith.Library) -> None:
    """What arrives at the other's gradient is nothing, and the gradient's gradient must have it."""
    condition, y = X > 1, jnp.asarray(RNG.random(5))
    for of in (
        lambda f: lambda x: (f(condition, x, y) ** 3).sum(),
        lambda f: lambda x: (f(condition, y, x) ** 3).sum(),
    ):
        own, plain = of(ops.select), of(jnp.where)
        np.testing.assert_allclose(jax.hessian(own)(X), jax.hessian(plain)(X))
        second = lambda f: jax.grad(lambda x: (jax.grad(f)(x) ** 2).sum())(X)  # noqa: E731
        np.testing.assert_allclose(second(own), second(plain))
