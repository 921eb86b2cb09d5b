"""An LLTM in JAX: values, gradients and what is refused, the function over sequences, and a training run."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import opsmith
import pytest
from conftest import load
from jax.test_util import check_grads
from lltm_reference import RANDOM_STEPS, gradients, losses, mistakes, numbers, sizes, step, upstream


@pytest.fixture(scope="module")
def lltm() -> opsmith.Library:
    """The example library."""
    return load("lltm")


def arrays(*shape: int, dtype: str = "float64") -> list[jax.Array]:
    """The inputs of a step."""
    return [jnp.asarray(x) for x in numbers(*shape, dtype)]


def plain(
    input: jax.Array, weights: jax.Array, bias: jax.Array, old_h: jax.Array, old_cell: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The step in JAX's own ops."""
    g0, g1, g2 = jnp.split(jnp.concatenate([old_h, input], 1) @ weights.T + bias, 3, 1)
    new_cell = old_cell + jax.nn.elu(g2) * jax.nn.sigmoid(g0)
    return jnp.tanh(new_cell) * jax.nn.sigmoid(g1), new_cell


def test_values_and_gradients_of_random_steps(lltm: opsmith.Library) -> None:
    count = 0
    for shape in sizes():
        inputs, incoming = arrays(*shape), upstream(shape[0], shape[2])
        outputs, backward = jax.vjp(lltm.lltm, *inputs)
        for ours, theirs in zip(outputs, step(*map(np.asarray, inputs)), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-13, atol=1e-13)
        found = backward(type(outputs)(map(jnp.asarray, incoming)))
        for ours, theirs in zip(found, gradients(tuple(map(np.asarray, inputs)), incoming), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-12)
        count += 1
    print(f"{count} steps")
    assert count == RANDOM_STEPS + 5


def test_check_grads(lltm: opsmith.Library) -> None:
    check_grads(lltm.lltm, arrays(3, 2, 4), order=1, modes=["rev"])


def test_float32_under_jit(lltm: opsmith.Library) -> None:
    inputs = arrays(16, 32, 128, dtype="float32")
    inputs[1] = inputs[1] * np.float32(0.1)

    def gradient(function: object, inputs: list[jax.Array]) -> list[jax.Array]:
        return jax.grad(lambda inputs: (function(*inputs)[0] ** 2).sum())(inputs)

    wide = [x.astype(jnp.float64) for x in inputs]
    for ours, theirs in zip(jax.jit(lltm.lltm)(*inputs), plain(*wide), strict=True):
        assert ours.dtype == jnp.float32
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)
    ours = jax.jit(lambda inputs: gradient(lltm.lltm, inputs))(inputs)
    for left, right in zip(ours, gradient(plain, wide), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-4)


def test_only_what_is_asked_for(lltm: opsmith.Library) -> None:
    inputs = arrays(4, 3, 5)
    for position in range(5):
        ours, theirs = (
            jax.grad(lambda *x, f=function: f(*x)[0].sum(), position)(*inputs)
            for function in (lltm.lltm, plain)
        )
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13)


def test_nan_reaches_what_depends_on_it(lltm: opsmith.Library) -> None:
    inputs = arrays(4, 3, 5)
    inputs[0] = inputs[0].at[1, 0].set(jnp.nan)
    for ours, theirs in zip(lltm.lltm(*inputs), plain(*inputs), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.parametrize(("inputs", "said"), [pytest.param(*rest, id=case) for case, *rest in mistakes()])
def test_bad_input(lltm: opsmith.Library, inputs: tuple[np.ndarray, ...], said: str) -> None:
    for call in (lltm.lltm, jax.jit(lltm.lltm)):
        with pytest.raises(jax.errors.JaxRuntimeError, match=f"INVALID_ARGUMENT: {said}"):
            call(*map(jnp.asarray, inputs))


def test_a_second_order_is_refused_by_name(lltm: opsmith.Library) -> None:
    inputs = arrays(3, 2, 4)

    def slope(weights: jax.Array) -> jax.Array:
        return jax.grad(lambda w: lltm.lltm(inputs[0], w, *inputs[2:])[0].sum())(weights).sum()

    with pytest.raises(opsmith.UnimplementedError, match="LltmGrad: has no gradient"):
        jax.grad(slope)(inputs[1])


def test_sequences(lltm: opsmith.Library) -> None:
    import lltm_jax

    assert lltm is not None
    parameters = lltm_jax.init(jax.random.key(0), 3, 5, jnp.float64)
    assert parameters.weights.shape == (15, 8)
    assert 0.3 < float(abs(parameters.weights).max()) <= 5**-0.5
    inputs = jax.random.normal(jax.random.key(1), (4, 6, 3), jnp.float64)

    def last(weights: jax.Array, bias: jax.Array) -> jax.Array:
        state = (jnp.zeros((4, 5)), jnp.zeros((4, 5)))
        for row in jnp.swapaxes(inputs, 0, 1):
            state = plain(row, weights, bias, *state)
        return state[0]

    np.testing.assert_allclose(lltm_jax.last(parameters, inputs), last(*parameters), rtol=1e-12)
    ours = jax.grad(lambda p: lltm_jax.last(p, inputs).sum())(parameters)
    theirs = jax.grad(lambda p: last(*p).sum())(parameters)
    for left, right in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-11, atol=1e-12)


def test_training_takes_the_curve_of_numpy(lltm: opsmith.Library) -> None:
    from train import with_jax

    assert lltm is not None
    np.testing.assert_allclose(with_jax(30, "float64").losses, losses(30), rtol=1e-9)
