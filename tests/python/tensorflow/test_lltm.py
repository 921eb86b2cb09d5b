"""An LLTM in TensorFlow: values, gradients and what is refused, the layer of Keras, and a training run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import opsmith
import pytest
import tensorflow as tf
from conftest import load
from lltm_reference import RANDOM_STEPS, gradients, losses, mistakes, numbers, sizes, step, upstream


@pytest.fixture(scope="module")
def lltm() -> opsmith.Library:
    """The example library."""
    return load("lltm")


def tensors(*shape: int, dtype: str = "float64") -> list[tf.Tensor]:
    """The inputs of a step."""
    return [tf.constant(x) for x in numbers(*shape, dtype)]


def plain(
    input: tf.Tensor, weights: tf.Tensor, bias: tf.Tensor, old_h: tf.Tensor, old_cell: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The step in TensorFlow's own ops."""
    gates = tf.matmul(tf.concat([old_h, input], 1), weights, transpose_b=True) + bias
    g0, g1, g2 = tf.split(gates, 3, 1)
    new_cell = old_cell + tf.nn.elu(g2) * tf.sigmoid(g0)
    return tf.tanh(new_cell) * tf.sigmoid(g1), new_cell


def test_values_and_gradients_of_random_steps(lltm: opsmith.Library) -> None:
    count = 0
    for shape in sizes():
        inputs, incoming = tensors(*shape), upstream(shape[0], shape[2])
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = lltm.lltm(*inputs)
        arrays = tuple(x.numpy() for x in inputs)
        for ours, theirs in zip(outputs, step(*arrays), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-13, atol=1e-13)
        found = tape.gradient(outputs, inputs, [tf.constant(x) for x in incoming])
        for ours, theirs in zip(found, gradients(arrays, incoming), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-12)
        count += 1
    print(f"{count} steps")
    assert count == RANDOM_STEPS + 5


def test_compute_gradient(lltm: opsmith.Library) -> None:
    for output in (0, 1):
        found = tf.test.compute_gradient(lambda *x, o=output: lltm.lltm(*x)[o], tensors(3, 2, 4))
        for theoretical, numerical in zip(*found, strict=True):
            np.testing.assert_allclose(theoretical, numerical, atol=1e-6)


def test_float32_in_a_graph(lltm: opsmith.Library) -> None:
    inputs = tensors(16, 32, 128, dtype="float32")
    inputs[1] = inputs[1] * 0.1

    def gradient(function: object, inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            loss = tf.reduce_sum(function(*inputs)[0] ** 2)
        return tape.gradient(loss, inputs)

    wide = [tf.cast(x, tf.float64) for x in inputs]
    for ours, theirs in zip(tf.function(lltm.lltm)(*inputs), plain(*wide), strict=True):
        assert ours.dtype == tf.float32
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)
    ours = tf.function(lambda inputs: gradient(lltm.lltm, inputs))(inputs)
    for left, right in zip(ours, gradient(plain, wide), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-4)


def test_shapes_in_graphs(lltm: opsmith.Library) -> None:
    specs = [tf.TensorSpec(shape, tf.float32) for shape in ([None, 3], [15, 8], [15], [None, 5], [None, 5])]

    @tf.function(input_signature=specs)
    def call(*inputs: tf.Tensor) -> tf.Tensor:
        h, cell = lltm.lltm(*inputs)
        assert h.shape.as_list() == cell.shape.as_list() == [None, 5]
        return h

    inputs = tensors(4, 3, 5, dtype="float32")
    np.testing.assert_allclose(call(*inputs), plain(*inputs)[0], rtol=1e-4, atol=1e-5)


def test_nan_reaches_what_depends_on_it(lltm: opsmith.Library) -> None:
    inputs = list(numbers(4, 3, 5))
    inputs[0][1, 0] = np.nan
    for ours, theirs in zip(lltm.lltm(*map(tf.constant, inputs)), plain(*inputs), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.parametrize(("inputs", "said"), [pytest.param(*rest, id=case) for case, *rest in mistakes()])
def test_bad_input(lltm: opsmith.Library, inputs: tuple[np.ndarray, ...], said: str) -> None:
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=said):
        lltm.lltm(*map(tf.constant, inputs))
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=said):
        tf.function(lltm.lltm)(*map(tf.constant, inputs))


def test_a_second_order_is_refused_by_name(lltm: opsmith.Library) -> None:
    inputs = tensors(3, 2, 4)
    with tf.GradientTape() as outer:
        outer.watch(inputs)
        with tf.GradientTape() as inner:
            inner.watch(inputs)
            h, _ = lltm.lltm(*inputs)
        first = inner.gradient(h, inputs[1])
    with pytest.raises(LookupError, match="LltmGrad"):
        outer.gradient(first, inputs[1])


def test_the_layer(lltm: opsmith.Library, tmp_path: Path) -> None:
    import keras
    from lltm_keras import LLTMCell

    assert lltm is not None
    inputs = keras.Input((6, 3), dtype="float64")
    reader = keras.layers.RNN(LLTMCell(5, dtype="float64"), dtype="float64")
    model = keras.Model(inputs, reader(inputs))
    weights, bias = (variable.value for variable in reader.trainable_variables)
    assert weights.shape == (15, 8) and 0.3 < float(tf.reduce_max(abs(weights))) <= 5**-0.5
    rows = tf.constant(np.random.default_rng(0).normal(size=(4, 6, 3)))

    def expected(weights: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        state = (tf.zeros((4, 5), tf.float64), tf.zeros((4, 5), tf.float64))
        for row in tf.unstack(rows, axis=1):
            state = plain(row, weights, bias, *state)
        return state[0]

    results = []
    for function in (lambda: model(rows), lambda: expected(weights, bias)):
        with tf.GradientTape() as tape:
            tape.watch([weights, bias])
            h = function()
        results.append([h, *tape.gradient(h, [weights, bias])])
    for left, right in zip(*results, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-10, atol=1e-12)
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(keras.models.load_model(tmp_path / "model.keras")(rows), model(rows))


def test_training_takes_the_curve_of_numpy(lltm: opsmith.Library) -> None:
    from train import with_tensorflow

    assert lltm is not None
    np.testing.assert_allclose(with_tensorflow(30, "float64").losses, losses(30), rtol=1e-9)


def test_a_cells_parameters_are_drawn_apart() -> None:
    from lltm_keras import LLTMCell

    cell = LLTMCell(4)
    cell.build((None, 3))
    kernel, bias = (np.ravel(variable.value) for variable in cell.trainable_variables)
    assert (abs(kernel) <= 0.5).all() and (abs(bias) <= 0.5).all()
    assert not np.isclose(kernel[: len(bias)], bias).any()
