"""`opsmith.grad`: gradients of functions of arrays, against differences that SciPy takes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import opsmith
import pytest
from opsmith import ops
from opsmith.graph import Output
from scipy.optimize import approx_fprime

W = np.random.default_rng(1).normal(size=(3, 2))

FUNCTIONS: list[Callable[[Any], Any]] = [
    lambda x: (x * x * x).sum(),
    lambda x: (ops.tanh(x @ W) ** 2).mean(),
    lambda x: ops.log_softmax(x * 2.0).sum(axis=1)[0],
    lambda x: (x[1:] / (ops.square(x[:-1]) + 1.0)).sum(),
    lambda x: ops.gather(x, [2, 0, 2], axis=0).reshape(-1).T.mean(),
    lambda x: sum(ops.exp(row).mean() * at for at, row in enumerate(x)),
    lambda x: (x @ x.T).sum() if x[0, 0] > 0.0 else -(x.sum()),
    lambda x: x.sum() * float(x.sum().eval()),
]
"""The last one's second factor is no part of what is differentiated."""


def _differences(function: Callable[[Any], Any], x: Any) -> Any:
    """The gradient by differences of values."""
    values = opsmith.value_and_grad(function)
    return approx_fprime(x.ravel(), lambda flat: float(values(flat.reshape(x.shape))[0])).reshape(x.shape)


@pytest.mark.parametrize("function", FUNCTIONS[:-1])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_gradients_are_differences(function: Callable[[Any], Any], sign: float) -> None:
    x = sign * np.abs(np.random.default_rng(0).normal(size=(3, 3)))
    gradient = opsmith.grad(function)(x)
    assert isinstance(gradient, np.ndarray) and gradient.dtype == np.float64
    np.testing.assert_allclose(gradient, _differences(function, x), rtol=1e-4, atol=1e-6)

    def slope(y: Any) -> Any:
        return (opsmith.grad(function)(y) * W[:, :1]).sum()

    np.testing.assert_allclose(opsmith.grad(slope)(x), _differences(slope, x), rtol=1e-4, atol=1e-6)


def test_what_is_taken_as_a_number_has_no_derivative() -> None:
    x = np.array([1.0, 2.0])
    np.testing.assert_array_equal(opsmith.grad(FUNCTIONS[-1])(x), [3.0, 3.0])


def test_arguments_and_results_have_their_forms() -> None:
    def f(x: Any, y: Any, scale: float = 1.0) -> Any:
        return (x * y).sum() * scale

    x, y = np.array([1.0, 2.0], np.float32), np.array([3.0, 5.0], np.float32)
    value, (dx, dy) = opsmith.value_and_grad(f, argnums=(0, -1))(x, y, scale=2.0)
    assert (value.dtype, value.shape, value.item()) == (np.float32, (), 26.0)
    np.testing.assert_array_equal(dx, 2 * y)
    np.testing.assert_array_equal(dy, 2 * x)
    assert dx.dtype == np.float32 and dx.flags.writeable
    assert opsmith.grad(f).__name__ == "f"
    np.testing.assert_array_equal(opsmith.grad(f, argnums=1)(x, y), x)
    # Lists and numbers of Python are float64; what does not reach the value has a gradient of zeros.
    np.testing.assert_array_equal(opsmith.grad(lambda x: 3.0)([1.0, 2.0]), [0.0, 0.0])
    np.testing.assert_array_equal(opsmith.grad(lambda x: x * x)(3.0), 6.0)
    half = opsmith.grad(lambda x: (x * x).sum())(x.astype(np.float16))
    assert half.dtype == np.float16 and half.tolist() == [2.0, 4.0]


def test_inner_gradients_tell_their_arguments_apart() -> None:
    # Of x * d/dy (x y y), at y = x and at y = 2.
    assert opsmith.grad(lambda x: x * opsmith.grad(lambda y: x * y * y)(x))(3.0) == 54.0
    assert opsmith.grad(lambda x: x * opsmith.grad(lambda y: x * y * y)(2.0))(3.0) == 24.0
    third = opsmith.grad(opsmith.grad(opsmith.grad(lambda x: ops.exp(x * 2.0))))
    np.testing.assert_allclose(third(0.5), 8 * np.exp(1.0), rtol=1e-12)


def test_an_inner_gradient_is_noted_where_nothing_has_been_yet() -> None:
    seen = []

    def f() -> Any:
        seen.append(opsmith.grad(lambda y: y * y)(2.0))
        return seen[0] * 3.0

    value, slopes = opsmith.value_and_grad(f, argnums=())()
    assert (value, slopes) == (12.0, ()) and isinstance(seen[0], Output)


def test_calls_are_made_at_once() -> None:
    seen = []

    def f(x: Any) -> Any:
        y = x * 2.0
        seen.append(y.eval().tolist())
        with pytest.raises(ValueError, match="read-only"):
            y.eval()[0] = 9.0
        with pytest.raises(opsmith.InvalidArgumentError, match="nothing can be fed to it"):
            y.eval({x: [3.0, 4.0]})
        with pytest.raises(opsmith.OutOfRangeError, match="positions along a dim of 2"):
            ops.gather(y, [5])
        return y.sum()

    given = np.array([1.0, 2.0])
    assert opsmith.grad(f)(given).tolist() == [2.0, 2.0]
    assert seen == [[2.0, 4.0]]

    def changes(x: Any) -> Any:
        y = x * x
        given[:] = 100.0
        return y.sum()

    assert opsmith.grad(changes)(given).tolist() == [2.0, 4.0]


def test_ops_of_libraries_are_differentiated(distances: opsmith.Library) -> None:
    x, y = np.random.default_rng(2).normal(size=(2, 4, 3))
    found = opsmith.grad(lambda x: distances.pairwise_manhattan_distance(x, y).sum())(x)
    np.testing.assert_allclose(found, np.sign(x[:, None] - y).sum(axis=1))


def test_registered_gradients_are_used() -> None:
    @opsmith.register_gradient(ops.gradient_descent_step)
    def step_gradient(inputs: Any, outputs: Any, attributes: Any, grads: Any) -> Any:
        return [grads[0], -attributes["learning_rate"] * grads[0]]

    def loss(x: Any) -> Any:
        slope = opsmith.grad(lambda x: (x * x * x).sum())(x)
        return ops.square(ops.gradient_descent_step(x, slope, learning_rate=0.1)).sum()

    x = np.array([0.5, 2.0])
    # Of (x - 0.3 x²)².
    expected = 2 * (x - 0.3 * x**2) * (1 - 0.6 * x)
    np.testing.assert_allclose(opsmith.grad(loss)(x), expected, rtol=1e-12)


def test_outputs_of_graphs_have_gradients_in_their_graph(graph: opsmith.Graph) -> None:
    x = graph.placeholder("float64", [None])
    slope = opsmith.grad(lambda x: (x * x * x).sum())(x)
    assert slope.graph is graph
    np.testing.assert_array_equal(opsmith.Session(graph).run(slope, {x: [1.0, 2.0]}), [3.0, 12.0])
    with pytest.raises(opsmith.InvalidArgumentError, match="different graphs"):
        opsmith.grad(lambda y: (y * x).sum())(np.ones(2))


def test_threads_have_tapes_of_their_own() -> None:
    def slope(n: int) -> float:
        return float(opsmith.grad(lambda x: opsmith.grad(lambda y: x * y * y)(x) * x)(float(n)))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(slope, range(64))) == [6.0 * n * n for n in range(64)]


@pytest.mark.parametrize(
    ("function", "arguments", "error", "message"),
    [
        (lambda x: x.sum(), ([1, 2],), ValueError, "argument 0 is int64; only floats .* write 1.0 for 1"),
        (lambda x: x.sum(), (["a"],), ValueError, "argument 0 is str.*; only floats have gradients"),
        (lambda x: x, ([1.0, 2.0],), ValueError, r"must give one number, got shape \[2\]; `.sum\(\)`"),
        (lambda x: (x, x), (1.0,), ValueError, "must give one number, got tuple"),
        (lambda x: None, (1.0,), ValueError, "must give one number, got NoneType"),
        (lambda x: ops.arg_max(x), ([1.0],), ValueError, "gave int64; only floats have gradients"),
        (lambda: 1.0, (), ValueError, "`argnums` has 0, got 0 positional arguments"),
        (lambda x: np.asarray(x).sum(), ([1.0],), TypeError, "a function of NumPy would lose"),
        (lambda x: np.sin(x), ([1.0],), TypeError, "ufuncs"),
        (lambda x: float(x), ([1.0, 2.0],), TypeError, "only 0-dim|only length-1"),
    ],
)
def test_bad_input_is_told(
    function: Callable[..., Any], arguments: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        opsmith.grad(function)(*arguments)


def test_bad_functions_are_told() -> None:
    with pytest.raises(opsmith.InvalidArgumentError, match="expected a function, got int"):
        opsmith.grad(3)  # type: ignore[arg-type]
    with pytest.raises(opsmith.InvalidArgumentError, match="`argnums` must be positions"):
        opsmith.grad(lambda x: x, argnums="x")  # type: ignore[arg-type]
    for position in (True, [0, False]):
        with pytest.raises(opsmith.InvalidArgumentError, match="`argnums` must be positions"):
            opsmith.grad(lambda x: x, argnums=position)
    with pytest.raises(opsmith.UnimplementedError, match="AdamCorrections: no gradient is declared"):
        opsmith.grad(lambda x: ops.adam_corrections(x, beta1=0.9, beta2=0.9)[0])(1.0)
