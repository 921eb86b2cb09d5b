"""Forward mode of graphs, against formulas, finite differences and reverse mode."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kernel_formulas
import numpy as np
import opsmith
import pytest
import registered
from opsmith import Graph, Library, Session

NUMPY = SimpleNamespace(**vars(np), numbers=np.asarray, plain=np.asarray)
FORMULAS = kernel_formulas.formulas(NUMPY)
LIBRARIES = Path(os.environ["OPSMITH_LIB_DIR"])
STEP = 1e-5
X = np.array([[0.1, -0.5, 0.3], [0.7, 0.2, -0.9]])
T = np.array([[1.0, 0.5, -2.0], [0.2, 0.4, 0.9]])


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What a test registers is gone after it."""
    with registered.forgotten():
        yield


@pytest.fixture
def testops() -> Library:
    """One op for each feature."""
    return opsmith.load(LIBRARIES / "libopsmith_testops.so")


def differences(function: Callable[..., Any], at: list[Any], along: list[Any]) -> Any:
    """The derivative of a function of arrays, by central differences."""
    up, down = (function(*[x + by * t for x, t in zip(at, along, strict=True)]) for by in (STEP, -STEP))
    return (up - down) / (2 * STEP)


def numbers(shapes: list[tuple[int, ...]]) -> list[Any]:
    """Tangents of these shapes."""
    generator = np.random.default_rng(11)
    return [generator.standard_normal(shape) for shape in shapes]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("op", FORMULAS)
def test_of_kernels(graph: Graph, op: str, known: bool) -> None:
    formula = FORMULAS[op]
    at, along = formula.numbers(6), numbers(formula.shapes)
    dims = [list(shape) if known else [None] * len(shape) for shape in formula.shapes]
    xs = [graph.placeholder("float64", each) for each in dims]
    ts = [graph.placeholder("float64", each) for each in dims]
    kernels = opsmith.load(LIBRARIES / "libkernels.so")
    others = [graph.constant(other) for other in formula.others]
    y = getattr(kernels, op)(*xs, *others, **formula.attrs)
    (tangent,) = opsmith.jvp(y, xs, ts)
    assert (tangent.dtype, tangent.shape) == (y.dtype, y.shape)
    # Over reverse mode: the product with a Hessian, once by forward mode and once by reverse mode.
    slopes = [slope for slope in opsmith.gradients((y * y).sum(), xs) if slope is not None]
    assert len(slopes) == len(xs)
    seconds = opsmith.jvp(slopes, xs, ts)
    products = [(slope * t).sum() for slope, t in zip(slopes, ts, strict=True)]
    expected = opsmith.gradients(products, xs)
    feeds = dict(zip([*xs, *ts], [*at, *along], strict=True))
    session = Session(graph)
    value, forward, reverse = session.run([tangent, seconds, expected], feeds)
    slope = differences(formula.value, at, along)
    np.testing.assert_allclose(value, slope, rtol=1e-6, atol=1e-7)
    for one, other in zip(forward, reverse, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_of_several_outputs_and_inputs_that_broadcast(graph: Graph) -> None:
    x = graph.placeholder("float64", [None, 3], name="x")
    row, scale = graph.placeholder("float64", [3]), graph.placeholder("float64", [])
    a, b = np.array([0.4, -1.0, 2.0]), np.array(1.5)
    ta, tb = np.array([1.0, -0.5, 0.25]), np.array(-2.0)
    ys = [x * row + scale, (x / row).sum(axis=0), opsmith.ops.exp(row) * scale, (x * x * x).mean()]
    found = opsmith.jvp(ys, (x, row, scale), (T, ta, tb))
    assert [y.shape for y in found] == [y.shape for y in ys]
    values = Session(graph).run(found, {x: X, row: a, scale: b})
    expected = [
        T * a + X * ta + tb,
        (T / a - X * ta / a**2).sum(0),
        np.exp(a) * (ta * b + tb),
        (3 * X * X * T).mean(),
    ]
    for value, correct in zip(values, expected, strict=True):
        np.testing.assert_allclose(value, correct, rtol=1e-12)


def test_of_folds_and_products(graph: Graph) -> None:
    x = graph.placeholder("float64", [2, 3])
    w = np.array([[1.0, 2.0], [0.5, -1.0], [3.0, 0.0]])
    softmax = opsmith.ops.softmax(x)
    ys = [x @ w, opsmith.ops.max(x, axes=[1]), softmax, x.T[1:, 0], opsmith.ops.concat([x, x * 2.0], axis=1)]
    values = Session(graph).run([softmax, opsmith.jvp(ys, x, T)], {x: X})
    p, found = values
    expected = [T @ w, T[[0, 1], [2, 0]], p * (T - (p * T).sum(1, keepdims=True)), T[0, 1:]]
    for value, correct in zip(found, [*expected, np.concatenate([T, 2 * T], 1)], strict=True):
        np.testing.assert_allclose(value, correct, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_a_tangent_has_the_dtype_of_its_output(graph: Graph, dtype: str) -> None:
    x = graph.placeholder("float64", [2, 3])
    y = opsmith.ops.square(x.astype(dtype))
    (tangent,) = opsmith.jvp(y, x, T)
    assert tangent.dtype == dtype
    value = Session(graph).run(tangent, {x: X})
    np.testing.assert_allclose(value.astype("float64"), 2 * X * T, rtol=2e-2)


def test_an_op_on_one_input_twice_and_by_a_librarys_hand(graph: Graph, distances: Library) -> None:
    x = graph.placeholder("float64", [None, 3])
    y = distances.pairwise_manhattan_distance(x, x)
    value = Session(graph).run(opsmith.jvp(y, [x], [T])[0], {x: X})
    np.testing.assert_allclose(
        value, (np.sign(X[:, None] - X[None]) * (T[:, None] - T[None])).sum(-1), rtol=1e-12
    )
    (slope,) = opsmith.gradients(y, x)
    assert slope is not None
    assert not Session(graph).run(opsmith.jvp(slope, x, T)[0], {x: X}).any()


def test_zeros_where_nothing_leads(graph: Graph) -> None:
    x, other = graph.placeholder("float64", [None, 3]), graph.placeholder("float32", [None])
    fixed = opsmith.ops.stop_gradient(x)
    found = opsmith.jvp([x * x, other, fixed, x, x * fixed], [x, graph.constant([1.0])], [T, [5.0]])
    values = Session(graph).run(found, {x: X, other: np.ones(4, "float32")})
    expected = [2 * X * T, np.zeros(4, "float32"), np.zeros((2, 3)), T, X * T]
    for value, correct in zip(values, expected, strict=True):
        assert value.dtype == correct.dtype
        np.testing.assert_allclose(value, correct, rtol=1e-12)
    assert opsmith.jvp([], x, T) == opsmith.jvp([], [], []) == []
    (alone,) = opsmith.jvp(x, [], [])
    assert not Session(graph).run(alone, {x: X}).any()


def test_an_input_that_leads_to_another(graph: Graph) -> None:
    x = graph.placeholder("float64", [2, 3])
    square = x * x
    (found,) = opsmith.jvp(opsmith.ops.exp(square), [x, square], [T, T])
    np.testing.assert_allclose(Session(graph).run(found, {x: X}), np.exp(X * X) * (2 * X * T + T), rtol=1e-12)


def test_of_a_variable(graph: Graph) -> None:
    w = graph.variable(X, name="w")
    step = w.assign(w * 2.0)
    (found,) = opsmith.jvp((w * w).sum(), w, T)
    session = Session(graph)
    session.initialize()
    session.run(step)
    np.testing.assert_allclose(session.run(found), (4 * X * T).sum(), rtol=1e-12)


def test_more_than_once(graph: Graph) -> None:
    x = graph.placeholder("float64", [2, 3])
    (first,) = opsmith.jvp(opsmith.ops.tanh(x), x, T)
    # The op has gradients of three orders.
    with pytest.raises(opsmith.UnimplementedError, match=r"TanhGradGradGrad: no gradient .* jvp needs"):
        opsmith.jvp(first, x, T)
    (slope,) = opsmith.gradients(opsmith.ops.tanh(x), x, T)
    (of_first,) = opsmith.gradients(first, x, T)
    assert slope is not None and of_first is not None
    (of_slope,) = opsmith.jvp(slope, x, T)
    y = np.tanh(X)
    for value in Session(graph).run([of_first, of_slope], {x: X}):
        np.testing.assert_allclose(value, -2 * y * (1 - y * y) * T * T, rtol=1e-9)


def test_gradients_that_are_registered(graph: Graph, testops: Library) -> None:
    x = graph.placeholder("float64", [3])
    at, along = np.array([1.0, 2.0, 3.0]), np.array([0.5, -1.0, 0.25])
    y = opsmith.ops.sin(testops.squares(x))
    with pytest.raises(opsmith.UnimplementedError, match=r"Squares: no gradient is declared.*Sin <- Squares"):
        opsmith.jvp(y, x, along)
    opsmith.register_gradient(testops.squares)(registered.of_squares)
    (found,) = opsmith.jvp(y, x, along)
    np.testing.assert_allclose(Session(graph).run(found, {x: at}), 2 * at * np.cos(at**2) * along, rtol=1e-12)


def test_a_registered_gradient_that_stops_what_arrives(graph: Graph, testops: Library) -> None:
    @opsmith.register_gradient(testops.squares)
    def gradient(
        inputs: list[Any], outputs: list[Any], attributes: dict[str, Any], grads: list[Any]
    ) -> list[Any]:
        return [2.0 * inputs[0] * opsmith.ops.stop_gradient(grads[0])]

    x = graph.placeholder("float64", [3])
    with pytest.raises(
        opsmith.UnimplementedError, match="StopGradient: is declared to be not differentiable"
    ):
        opsmith.jvp(testops.squares(x), x, np.ones(3))


def test_on_the_device_of_the_ops(graph: Graph) -> None:
    with graph.device("cuda:0"):
        x = graph.placeholder("float32", [None, 3])
        y = opsmith.ops.tanh(x)
    (found,) = opsmith.jvp(y, x, T.astype("float32"))
    assert found.device == "cuda:0"
    session = Session(graph, allow_soft_placement=True)
    expected = (1 - np.tanh(X) ** 2) * T
    np.testing.assert_allclose(session.run(found, {x: X.astype("float32")}), expected, rtol=1e-5)


def test_a_saved_graph_has_it(graph: Graph, tmp_path: Path) -> None:
    x = graph.placeholder("float64", [None, 3], name="x")
    (found,) = opsmith.jvp(opsmith.ops.tanh(x), x, T)
    graph.save(tmp_path / "graph.opsmith")
    loaded = Graph.load(tmp_path / "graph.opsmith")
    value = Session(loaded).run(loaded.output(found.name), {loaded.output("x"): X})
    np.testing.assert_array_equal(value, Session(graph).run(found, {x: X}))


def test_tangents_that_do_not_fit(graph: Graph) -> None:
    x = graph.placeholder("float64", [None, 3], name="x")
    i = graph.placeholder("int64", [3], name="i")
    y, elsewhere = x * 2.0, Graph().placeholder("float64", [2, 3], name="elsewhere")
    cases: list[tuple[Any, Any, Any, str]] = [
        (y, x, [T, T], r"jvp: 1 inputs need as many tangents, got 2"),
        (y, [x, x], T, r"jvp: 2 inputs need as many tangents, got 1"),
        (y, x, T[0], r"jvp: the tangent of `x` must be float64\[\?,3\], got float64\[3\]"),
        (y, x, T[:, :2], r"jvp: the tangent of `x` must be float64\[\?,3\], got float64\[2,2\]"),
        (y, x, T.astype("float32"), r"the tangent of `x` must be float64\[\?,3\], got float32\[2,3\]"),
        (y, x, None, "a constant must be float64, got None"),
        (y, i, np.ones(3, "int64"), r"jvp: the input `i` is int64; only floats have tangents"),
        (opsmith.ops.arg_max(x), x, T, r"jvp: the output `ArgMax` is int64; only floats have tangents"),
        (y, x, elsewhere, "jvp: `elsewhere` is of another graph"),
        (elsewhere, x, T, "belong to different graphs"),
        (X, x, T, "`outputs` must be outputs of a graph, got float64|got ndarray"),
        (y, X, T, "`inputs` must be outputs of a graph"),
    ]
    for outputs, inputs, tangents, message in cases:
        with pytest.raises(opsmith.InvalidArgumentError, match=message):
            opsmith.jvp(outputs, inputs, tangents)
    session = Session(graph)
    (found,) = opsmith.jvp(y, x, T)
    with pytest.raises(opsmith.InvalidArgumentError, match=r"must have shape \[1, 3\], got \[2, 3\]"):
        session.run(found, {x: X[:1]})
    with pytest.raises(opsmith.InvalidArgumentError, match="2 ys need as many grad_ys, got 1"):
        opsmith.gradients([y, x], x, T)


def test_what_an_op_without_a_second_gradient_says(graph: Graph, testops: Library) -> None:
    x = graph.placeholder("float64", [3])
    y = testops.scaled(np.array([2.0]), x)
    with pytest.raises(opsmith.UnimplementedError) as raised:
        opsmith.jvp(y, x, np.ones(3))
    assert "ScaledGrad: no gradient is declared for it (node `jvp/Scaled_grad`" in str(raised.value)
    assert "jvp needs the gradients of gradient ops" in str(raised.value)
    assert "test_forward.py" in str(raised.value)
