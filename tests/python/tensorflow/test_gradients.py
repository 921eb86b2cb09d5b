"""Gradients: every op that declares one, tapes, graphs, second order, and what is not declared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import opsmith
import pytest
import tensorflow as tf
from opsmith._library import definition_of

X = tf.constant(np.random.default_rng(0).random((3, 4)))
Y = tf.constant(np.random.default_rng(1).random((5, 4)))


def reference(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.abs(x[:, None] - y[None]), -1)


def floats(*shape: int, seed: int = 0) -> tf.Tensor:
    """Numbers that are all different, so that no kink or tie is near."""
    rng = np.random.default_rng([seed, *shape])
    count = int(np.prod(shape))
    return tf.constant((rng.permutation(count) / max(count, 1) + rng.random() / (4 * count)).reshape(shape))


CASES: dict[str, tuple[str, Callable[[Any], Callable[..., tf.Tensor]], list[tf.Tensor], int]] = {
    "pairwise": ("distances", lambda d: d.pairwise_manhattan_distance, [X, Y], 2),
    "pairwise_grad": (
        "distances",
        lambda d: lambda g: d.pairwise_manhattan_distance_grad(X, Y, g)[0],
        [floats(3, 5)],
        1,
    ),
    "zero_out_real": (
        "zero_out",
        lambda z: lambda x: z.zero_out_real(x, preserve_index=4),
        [floats(2, 3)],
        2,
    ),
    "zero_out_default_type": (
        "zero_out",
        lambda z: lambda x: z.zero_out_default_type(x, preserve_index=1),
        [floats(4)],
        2,
    ),
    "zero_out_rows": (
        "zero_out",
        lambda z: lambda x: z.zero_out_rows(x, preserve_index=2),
        [floats(2, 3)],
        2,
    ),
    "sum_all": (
        "zero_out",
        lambda z: lambda *terms: z.sum_all(list(terms)),
        [floats(2, 3), floats(2, 3, seed=1)],
        2,
    ),
    "max_with_index": ("zero_out", lambda z: lambda x: z.max_with_index(x)[0], [floats(7)], 2),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_gradients_are_those_of_finite_differences(
    request: pytest.FixtureRequest, case: str, graph: bool
) -> None:
    library, function, inputs, order = CASES[case]
    op = function(request.getfixturevalue(library))
    first: Callable[..., Any] = tf.function(op, autograph=False) if graph else op
    theoretical, numerical = tf.test.compute_gradient(first, inputs, delta=1e-4)
    for ours, theirs in zip(theoretical, numerical, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-7)

    def second(*inputs: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            total = tf.reduce_sum(tf.sin(3 * op(*inputs)))
        return tape.gradient(total, list(inputs))

    if order == 2:
        for i in range(len(inputs)):
            of_one = lambda *inputs, i=i: second(*inputs)[i]  # noqa: E731
            of_one = tf.function(of_one, autograph=False) if graph else of_one
            theoretical, numerical = tf.test.compute_gradient(of_one, inputs, delta=1e-4)
            for ours, theirs in zip(theoretical, numerical, strict=True):
                np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_every_op_with_a_gradient_is_in_the_cases(
    distances: opsmith.Library, zero_out: opsmith.Library
) -> None:
    ops = [op for library in (distances, zero_out) for op in definition_of(library).ops]
    forward = {op.snake_name for op in ops if op.gradient is not None and "Grad" not in op.name}
    # One is for float32 alone, whose differences say little: it has a test of its own.
    assert forward - {"zero_out_float_int"} == {
        "pairwise_manhattan_distance",
        "zero_out_real",
        "zero_out_default_type",
        "zero_out_rows",
        "sum_all",
        "max_with_index",
    }


def test_float32(zero_out: opsmith.Library, distances: opsmith.Library) -> None:
    x = tf.constant([1.0, 2.0, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(zero_out.zero_out_float_int(x) ** 2)
    assert tape.gradient(y, x).numpy().tolist() == [2, 0, 0]
    a, b = tf.cast(X, tf.float32), tf.cast(Y, tf.float32)
    grads = []
    for f in (distances.pairwise_manhattan_distance, reference):
        with tf.GradientTape() as tape:
            tape.watch([a, b])
            y = tf.reduce_sum(f(a, b) ** 2)
        grads.append(tape.gradient(y, [a, b]))
    for ours, theirs in zip(*grads, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_only_gradients_that_are_asked_for_are_computed(
    distances: opsmith.Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opsmith.tensorflow._op import TfOp

    masks: list[int | None] = []
    call = TfOp.call
    monkeypatch.setattr(
        TfOp,
        "call",
        lambda self, inputs, attrs, wanted, name: (
            masks.append(wanted) or call(self, inputs, attrs, wanted, name)
        ),
    )
    for watched, mask in (([X], 1), ([Y], 2), ([X, Y], 3)):
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(watched)
            z = distances.pairwise_manhattan_distance(X, Y)
        assert all(grad is not None for grad in tape.gradient(z, watched))
        assert masks.pop() == mask and not masks


def test_a_variable_and_a_constant(distances: opsmith.Library) -> None:
    weight = tf.Variable(Y)
    with tf.GradientTape() as tape:
        z = distances.pairwise_manhattan_distance(X, weight)
    ours = tape.gradient(z, weight)
    with tf.GradientTape() as tape:
        z = reference(X, weight)
    np.testing.assert_allclose(ours, tape.gradient(z, weight))


def test_an_undeclared_gradient_is_an_error_that_names_the_op(testops: opsmith.Library) -> None:
    with tf.GradientTape() as tape:
        tape.watch(X)
        z = testops.pairwise(X, Y)
    with pytest.raises(LookupError, match="Pairwise: has no gradient"):
        tape.gradient(z, X)

    @tf.function(autograph=False)
    def graph(x: tf.Tensor) -> tf.Tensor:
        return tf.gradients(testops.pairwise(x, Y), x)[0]

    with pytest.raises(LookupError, match="Pairwise: has no gradient"):
        graph(X)
    assert testops.pairwise(X, Y).shape == (3, 5)


def test_a_third_order_is_an_error(distances: opsmith.Library) -> None:
    def grad(f: Callable[[tf.Tensor], tf.Tensor]) -> Callable[[tf.Tensor], tf.Tensor]:
        def gradient(x: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.reduce_sum(f(x) ** 3)
            return tape.gradient(y, x)

        return gradient

    f = lambda x: distances.pairwise_manhattan_distance(x, Y)  # noqa: E731
    g = lambda x: reference(x, Y)  # noqa: E731
    np.testing.assert_allclose(grad(grad(f))(X), grad(grad(g))(X))
    with pytest.raises(LookupError, match="PairwiseManhattanDistanceGradGrad: has no gradient"):
        grad(grad(grad(f)))(X)


def test_zeros_flow_back_through_what_is_not_differentiable(zero_out: opsmith.Library) -> None:
    x = tf.constant([0.0, 2.0, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        count = tf.reduce_sum(tf.cast(zero_out.non_zero(x), tf.float32)) + 0 * x[0]
    assert tape.gradient(count, x).numpy().tolist() == [0, 0, 0]


def test_lists_have_a_gradient_for_each_tensor(zero_out: opsmith.Library) -> None:
    a, b, c = (tf.constant([float(i), 1.0]) for i in range(3))
    with tf.GradientTape() as tape:
        tape.watch([a, c])
        total = tf.reduce_sum(zero_out.sum_all([a, b, 2 * c]) * [1.0, 3.0])
    left, right = tape.gradient(total, [a, c])
    assert left.numpy().tolist() == [1, 3] and right.numpy().tolist() == [2, 6]


def test_graphs_differentiate_in_every_way(distances: opsmith.Library) -> None:
    f = distances.pairwise_manhattan_distance
    specs = [tf.TensorSpec([None, 4], tf.float64)] * 2

    @tf.function(input_signature=specs)
    def inside(x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            total = tf.reduce_sum(f(x, y) ** 2)
        gradients = tape.gradient(total, [x, y])
        assert [g.shape.as_list() for g in gradients] == [[None, 4], [None, 4]]
        return gradients

    @tf.function(input_signature=specs)
    def with_symbols(x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        return tf.gradients(tf.reduce_sum(f(x, y) ** 2), [x, y])

    total = tf.function(lambda x, y: tf.reduce_sum(f(x, y) ** 2), input_signature=specs)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([X, Y])
        outside, plain = total(X, Y), tf.reduce_sum(reference(X, Y) ** 2)
    expected = tape.gradient(plain, [X, Y])
    for gradients in (inside(X, Y), with_symbols(X, Y), tape.gradient(outside, [X, Y])):
        for ours, theirs in zip(gradients, expected, strict=True):
            np.testing.assert_allclose(ours, theirs)


@pytest.mark.parametrize("vectorised", [False, True])
def test_jacobians(distances: opsmith.Library, vectorised: bool) -> None:
    answers = []
    for f in (distances.pairwise_manhattan_distance, reference):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(X)
            z = f(X, Y)
        answers.append(tape.jacobian(z, X, experimental_use_pfor=vectorised))
    np.testing.assert_allclose(*answers)


def test_forward_mode_is_reverse_mode_twice(distances: opsmith.Library, testops: opsmith.Library) -> None:
    """So TensorFlow computes it for all that has no rule of its own: it takes a declared second order."""
    tangent = tf.constant(np.random.default_rng(2).random((3, 4)))

    def jvp(f: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        with tf.autodiff.ForwardAccumulator(X, tangent) as accumulator:
            z = f(X)
        return accumulator.jvp(z)

    np.testing.assert_allclose(
        jvp(lambda x: distances.pairwise_manhattan_distance(x, Y)), jvp(lambda x: reference(x, Y))
    )
    with pytest.raises(LookupError, match="Pairwise: has no gradient"):
        jvp(lambda x: testops.pairwise(x, Y))
    with pytest.raises(LookupError, match="PairwiseManhattanDistanceGradGrad: has no gradient"):
        jvp(lambda x: distances.pairwise_manhattan_distance_grad_grad(X, Y, x, None))


def test_recomputing(distances: opsmith.Library) -> None:
    f = tf.recompute_grad(lambda x: distances.pairwise_manhattan_distance(x, Y))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(X)
        z, w = tf.reduce_sum(f(X) ** 2), tf.reduce_sum(reference(X, Y) ** 2)
    np.testing.assert_allclose(tape.gradient(z, X), tape.gradient(w, X))
