"""Gradients that users register for ops which declare none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import opsmith
import pytest
import registered
from jax import export
from jax.test_util import check_grads

Given = list[Any]
X = jnp.asarray(np.random.default_rng(0).random(4))


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What a test registers is gone after it."""
    with registered.forgotten():
        yield


@pytest.fixture(params=[lambda f: f, jax.jit], ids=["function", "jit"])
def squares(request: pytest.FixtureRequest, testops: opsmith.Library) -> Callable[..., Any]:
    """An op with a registered gradient."""
    opsmith.register_gradient(testops.squares)(registered.of_squares)
    return request.param(testops.squares)


def test_two_orders(squares: Callable[..., Any]) -> None:
    check_grads(squares, (X,), order=2, modes=["rev"])
    check_grads(jax.jit(jax.grad(lambda x: squares(x).sum())), (X,), order=1, modes=["rev"])


def test_forward_mode(squares: Callable[..., Any]) -> None:
    """The transpose of what is registered."""
    value, tangent = jax.jvp(squares, (X,), (jnp.ones(4),))
    np.testing.assert_allclose(value, X**2)
    np.testing.assert_allclose(tangent, 2 * X)
    np.testing.assert_allclose(jax.jacfwd(squares)(X), jnp.diag(2 * X))
    np.testing.assert_allclose(jax.hessian(lambda x: squares(x).sum())(X), 2 * jnp.eye(4))
    check_grads(squares, (X,), order=2, modes=["fwd", "rev"])


def test_transforms(squares: Callable[..., Any]) -> None:
    rows = jnp.stack([X, 2 * X])
    np.testing.assert_array_equal(jax.vmap(jax.grad(lambda x: squares(x).sum()))(rows), 2 * rows)
    np.testing.assert_array_equal(jax.jacrev(squares)(X), jnp.diag(2 * X))
    np.testing.assert_array_equal(jax.grad(jax.checkpoint(lambda x: squares(x).sum()))(X), 2 * X)


def in_jax(inputs: Given, outputs: Given, attributes: dict[str, Any], grads: Given) -> Given:
    """Of zero_out, in JAX's own functions, whose shapes are static."""
    place, flat = attributes["from"], grads[0].ravel()
    return [jnp.zeros_like(flat).at[place].set(flat[place]).reshape(inputs[0].shape)]


TRACED = jax.__version_info__ < (0, 7)
"""Before 0.7 JAX traces all gradients."""


@pytest.mark.parametrize(
    "wrap, own",
    [
        pytest.param(
            lambda f: f, False, marks=pytest.mark.skipif(TRACED, reason="its shapes depend on the data")
        ),
        (lambda f: f, True),
        (jax.jit, True),
    ],
)
def test_a_composition(
    testops: opsmith.Library, ops: opsmith.Library, wrap: Callable[..., Any], own: bool
) -> None:
    opsmith.register_gradient(testops.lambda_)(in_jax if own else registered.of_zero_out(ops, jnp.asarray))
    x = jnp.array([[1.0, 2.0], [3.0, 4.0]], jnp.float32)
    gradient = wrap(jax.grad(lambda x: (testops.lambda_(x, 2) * jax.lax.stop_gradient(x)).sum()))(x)
    np.testing.assert_array_equal(gradient, [[0.0, 0.0], [3.0, 0.0]])
    default = wrap(jax.grad(lambda x: testops.lambda_(x).sum()))(x)
    np.testing.assert_array_equal(default, [[0.0, 1.0], [0.0, 0.0]])


def test_by_an_op_of_another_library(testops: opsmith.Library, distances: opsmith.Library) -> None:
    opsmith.register_gradient(testops.pairwise)(registered.of_pairwise(distances))
    rng = np.random.default_rng(1)
    x, y = jnp.asarray(rng.random((3, 4))), jnp.asarray(rng.random((5, 4)))
    check_grads(testops.pairwise, (x, y), order=1, modes=["rev"])
    check_grads(lambda y: testops.pairwise(x, jnp.asarray(y)), (y,), order=1, modes=["rev"])


def test_exported_with_symbolic_sizes(testops: opsmith.Library) -> None:
    opsmith.register_gradient(testops.squares)(registered.of_squares)
    (size,) = export.symbolic_shape("n")
    checks = opsmith.jax.export_checks(testops)
    gradient = jax.jit(jax.grad(lambda x: testops.squares(x).sum()))
    exported = export.export(gradient, disabled_checks=checks)(jax.ShapeDtypeStruct((size,), jnp.float64))
    np.testing.assert_array_equal(exported.call(X), 2 * X)


def test_lists(ops: opsmith.Library) -> None:
    @opsmith.register_gradient(ops.concat_grad_grad)
    def gradient(inputs: Given, outputs: Given, attributes: dict[str, Any], grads: Given) -> Given:
        first, _, last = inputs[0]
        assert attributes == {"axis": 0} and outputs[0].shape == (6,)
        # The one in the middle has no gradient.
        return [[grads[0][: first.size], None, grads[0][-last.size :]]]

    weights = jnp.arange(6.0)
    f = lambda *xs: (ops.concat_grad_grad(list(xs), axis=0) * weights).sum()  # noqa: E731
    xs = [jnp.ones(1), jnp.ones(2), jnp.ones(3)]
    for found in (jax.grad(f, (0, 1, 2))(*xs), jax.jit(jax.grad(f, (0, 1, 2)))(*xs)):
        for got, expected in zip(found, ([0.0], [0.0, 0.0], [3.0, 4.0, 5.0]), strict=True):
            np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(jax.grad(f, 2)(*xs), [3.0, 4.0, 5.0])


def test_several_outputs_and_attributes(ops: opsmith.Library) -> None:
    @opsmith.register_gradient(ops.momentum_step)
    def gradient(inputs: Given, outputs: Given, attributes: dict[str, Any], grads: Given) -> Given:
        assert attributes == {"learning_rate": 0.5, "momentum": 0.25}
        assert len(outputs) == 2 and (TRACED or not np.any(grads[1]))
        rate = attributes["learning_rate"]
        return [grads[0], -rate * grads[0], -rate * attributes["momentum"] * grads[0]]

    def f(*xs: jax.Array) -> jax.Array:
        return ops.momentum_step(*xs, learning_rate=0.5, momentum=0.25)[0]

    check_grads(f, (X, X, X), order=1, modes=["rev"])


@pytest.mark.parametrize("is_there", [True, False])
def test_an_optional_input(testops: opsmith.Library, is_there: bool) -> None:
    @opsmith.register_gradient(testops.add_optional)
    def gradient(inputs: Given, outputs: Given, attributes: dict[str, Any], grads: Given) -> Given:
        assert (inputs[1] is not None) == is_there
        return [grads[0], 2.0 * grads[0] if is_there else None]

    rest = [X] if is_there else []
    found = jax.grad(lambda *xs: testops.add_optional(*xs).sum(), range(1 + len(rest)))(X, *rest)
    for factor, each in enumerate(found, 1):
        np.testing.assert_array_equal(each, factor * jnp.ones(4))


def test_an_attribute_that_is_a_tensor(testops: opsmith.Library) -> None:
    @opsmith.register_gradient(testops.add_constant)
    def gradient(inputs: Given, outputs: Given, attributes: dict[str, Any], grads: Given) -> Given:
        return [grads[0] * attributes["value"]]

    value = np.array([1.0, 2.0, 3.0], np.float32)
    found = jax.grad(lambda x: testops.add_constant(x, value=value).sum())(jnp.ones(3, jnp.float32))
    np.testing.assert_array_equal(found, value)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit])
@pytest.mark.parametrize("case", registered.MISFITS)
def test_a_result_that_does_not_fit(testops: opsmith.Library, case: str, wrap: Callable[..., Any]) -> None:
    make, message = registered.MISFITS[case]
    opsmith.register_gradient(testops.pairwise)(registered.misfit(make))
    x, y = jnp.ones((3, 4), jnp.float32), jnp.ones((5, 4), jnp.float32)
    with pytest.raises(opsmith.InvalidArgumentError, match=message):
        wrap(jax.grad(lambda x: testops.pairwise(x, y).sum()))(x)


def test_a_gradient_of_an_integer(ops: opsmith.Library) -> None:
    opsmith.register_gradient(ops.gather_grad_grad)(lambda inputs, *_: inputs)
    f = jax.grad(lambda x: ops.gather_grad_grad(x, jnp.array([0]), axis=0).sum())
    with pytest.raises(opsmith.InvalidArgumentError, match="`indices` must be None, for the input is int64"):
        f(X)


def test_registered_late_replaced_and_raising(testops: opsmith.Library) -> None:
    def raising(inputs: Given, outputs: Given, attributes: dict[str, Any], grads: Given) -> Given:
        raise ZeroDivisionError("mine")

    def gradient() -> jax.Array:
        return jax.grad(lambda x: testops.squares(x).sum())(X)

    with pytest.raises(opsmith.UnimplementedError, match="Squares: has no gradient"):
        gradient()
    opsmith.register_gradient(testops.squares)(registered.of_squares)
    np.testing.assert_array_equal(gradient(), 2 * X)
    opsmith.register_gradient(testops.squares, replace=True)(lambda i, o, a, grads: [3.0 * grads[0]])
    np.testing.assert_array_equal(gradient(), jnp.full(4, 3.0))
    opsmith.register_gradient(testops.squares, replace=True)(raising)
    with pytest.raises(ZeroDivisionError, match="mine"):
        gradient()
