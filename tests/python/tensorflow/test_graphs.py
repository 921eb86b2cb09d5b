"""`tf.function`: shapes, retracing, control flow; models, pipelines, saved models."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import keras
import numpy as np
import opsmith
import pytest
import tensorflow as tf
from conftest import library_path


def test_one_trace_serves_all_sizes(distances: opsmith.Library) -> None:
    traces = []

    @tf.function(input_signature=[tf.TensorSpec([None, None]), tf.TensorSpec([None, None])])
    def graph(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        z = distances.pairwise_manhattan_distance(x, y)
        traces.append(z.shape.as_list())
        return z

    for n, m, p in [(3, 5, 4), (7, 2, 6), (1, 1, 1), (0, 8, 3), (4, 4, 4)]:
        x, y = np.random.rand(n, p).astype(np.float32), np.random.rand(m, p).astype(np.float32)
        np.testing.assert_allclose(graph(x, y), np.abs(x[:, None] - y).sum(-1), rtol=1e-5)
    assert traces == [[None, None]]


def test_calls_are_traced_as_often_as_those_of_a_builtin(distances: opsmith.Library) -> None:
    def traces_of(op: Any) -> int:
        traces = []

        @tf.function(reduce_retracing=True)
        def graph(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            traces.append(1)
            return op(x, y)

        for n in range(1, 9):
            graph(tf.ones([n, 4]), tf.ones([2, 4]))
        return len(traces)

    assert (
        traces_of(distances.pairwise_manhattan_distance) == traces_of(lambda x, y: x @ tf.transpose(y)) == 2
    )


def test_shapes_that_attributes_decide(zero_out: opsmith.Library, testops: opsmith.Library) -> None:
    def shapes(function: Any, *specs: tf.TensorSpec) -> list[Any]:
        outputs = tf.function(function).get_concrete_function(*specs).structured_outputs
        return [None if x.shape.rank is None else x.shape.as_list() for x in tf.nest.flatten(outputs)]

    ints = tf.TensorSpec([None], tf.int32)
    assert shapes(lambda x: zero_out.repeat(x, times=3), tf.TensorSpec([4], tf.int32)) == [[12]]
    assert shapes(lambda x: zero_out.repeat(x, times=3), ints) == [[None]]
    assert shapes(lambda x: testops.add_optional(x, x), tf.TensorSpec([3], tf.float64)) == [[3]]
    pair = tf.TensorSpec([2, 3]), tf.TensorSpec([4, 3])
    from conftest import load

    grads = load("distances").pairwise_manhattan_distance_grad
    assert shapes(lambda x, y: grads(x, y, tf.ones([2, 4])), *pair) == [[2, 3], [4, 3]]
    second = load("distances").pairwise_manhattan_distance_grad_grad
    assert shapes(lambda x, y: second(x, y, None, y), *pair) == [[2, 4]]


def test_control_flow(distances: opsmith.Library) -> None:
    centres = tf.constant([[0.0, 0.0], [4.0, 4.0]])

    @tf.function
    def nearest(points: tf.Tensor) -> tf.Tensor:
        found = tf.TensorArray(tf.int64, size=tf.shape(points)[0])
        for i in tf.range(tf.shape(points)[0]):
            z = distances.pairwise_manhattan_distance(points[i : i + 1], centres)
            cell = tf.constant(0, tf.int64)
            if z[0, 0] > z[0, 1]:
                cell += 1
            found = found.write(i, cell)
        return found.stack()

    assert nearest(tf.constant([[1.0, 0.0], [3.0, 5.0], [0.0, 1.0]])).numpy().tolist() == [0, 1, 0]
    mapped = tf.map_fn(lambda row: distances.pairwise_manhattan_distance(row[None], centres)[0], centres)
    assert mapped.numpy().tolist() == [[0, 8], [8, 0]]


def test_a_failure_leaves_the_graph_usable(distances: opsmith.Library) -> None:
    graph = tf.function(
        lambda x, y: distances.pairwise_manhattan_distance(x, y),
        input_signature=[tf.TensorSpec(None), tf.TensorSpec(None)],
    )
    for _ in range(3):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="PairwiseManhattanDistance: input `x` must have"
        ):
            graph(tf.ones(3), tf.ones([2, 3]))
        assert graph(tf.ones([1, 3]), tf.ones([2, 3])).numpy().tolist() == [[0, 0]]


def test_pipelines(distances: opsmith.Library, zero_out: opsmith.Library) -> None:
    origin = tf.zeros([1, 3])
    rows = tf.data.Dataset.from_tensor_slices(tf.reshape(tf.range(12.0), [4, 1, 3]))
    lengths = rows.map(
        lambda row: distances.pairwise_manhattan_distance(row, origin)[0, 0], num_parallel_calls=2
    )
    assert [float(x) for x in lengths] == [3, 12, 21, 30]
    batches = tf.data.Dataset.range(1, 5).map(
        lambda i: zero_out.zero_out_preserve(tf.range(3), preserve_index=1) * tf.cast(i, tf.int32)
    )
    assert [x.numpy().tolist() for x in batches.batch(2)] == [[[0, 1, 0], [0, 2, 0]], [[0, 3, 0], [0, 4, 0]]]


class Centres(keras.layers.Layer):
    """Distances from a number of learnt points."""

    def __init__(self, library: opsmith.Library, count: int) -> None:
        super().__init__()
        self.library = library
        self.count = count

    def build(self, shape: tuple[int | None, ...]) -> None:
        self.centres = self.add_weight(shape=(self.count, shape[-1]), initializer="random_normal")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.library.pairwise_manhattan_distance(x, self.centres)

    def compute_output_shape(self, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (shape[0], self.count)


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_a_keras_layer_learns(distances: opsmith.Library, run_eagerly: bool) -> None:
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    points = (np.array([[0, 0], [5, 0], [0, 5]])[labels] + rng.normal(size=(300, 2))).astype(np.float32)
    inputs = keras.Input((2,))
    model = keras.Model(inputs, -Centres(distances, 3)(inputs))
    model.compile(
        keras.optimizers.Adam(0.1),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        run_eagerly=run_eagerly,
    )
    history = model.fit(points, labels, epochs=8 if run_eagerly else 15, batch_size=50, verbose=0).history
    assert history["loss"][-1] < 0.3 * history["loss"][0] and history["accuracy"][-1] > 0.9
    np.testing.assert_allclose(
        model.predict(points[:4], verbose=0),
        -np.abs(points[:4, None] - model.layers[1].centres.numpy()).sum(-1) if len(model.layers) > 1 else 0,
        rtol=1e-5,
    )


class Model(tf.Module):
    """Everything of the example that a saved model may have, attributes and lists among it."""

    def __init__(self, distances: opsmith.Library, zero_out: opsmith.Library) -> None:
        super().__init__()
        self.distances, self.zero_out = distances, zero_out
        self.centres = tf.Variable([[0.0, 0.0], [4.0, 4.0]])

    @tf.function(input_signature=[tf.TensorSpec([None, 2])])
    def __call__(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            z = self.distances.pairwise_manhattan_distance(x, self.centres)
        return {
            "distances": z,
            "gradient": tape.gradient(z, x),
            "kept": self.zero_out.zero_out_real(x, preserve_index=1),
            "sum": self.zero_out.sum_all([x, x, 2 * x]),
            "number": self.zero_out.string_to_number(tf.constant(["7"])),
        }


def test_a_saved_model_runs_in_another_process(
    distances: opsmith.Library, zero_out: opsmith.Library, tmp_path: Path
) -> None:
    model = Model(distances, zero_out)
    x = tf.constant([[1.0, 0.5], [3.0, 5.0]])
    before = model(x)
    tf.saved_model.save(model, str(tmp_path / "model"))
    script = """
        import sys
        import numpy as np
        import tensorflow as tf
        for path in sys.argv[2:]:
            tf.load_op_library(path)
        model = tf.saved_model.load(sys.argv[1])
        outputs = model(tf.constant([[1.0, 0.5], [3.0, 5.0]]))
        np.savez(sys.argv[1] + ".npz", **{name: value.numpy() for name, value in outputs.items()})
        print("opsmith" in sys.modules, model(tf.zeros([5, 2]))["distances"].shape)
    """
    paths = [str(library_path(name)) for name in ("distances", "zero_out")]
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "model"), *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "False (5, 2)"
    after = np.load(tmp_path / "model.npz")
    assert set(after) == set(before)
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value)


def test_a_saved_model_learns_on(
    distances: opsmith.Library, zero_out: opsmith.Library, tmp_path: Path
) -> None:
    tf.saved_model.save(Model(distances, zero_out), str(tmp_path / "model"))
    model = tf.saved_model.load(str(tmp_path / "model"))
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(model(tf.constant([[1.0, 0.5]]))["distances"])
    np.testing.assert_array_equal(tape.gradient(total, model.centres), [[-1, -1], [1, 1]])


def test_graphs_of_the_first_kind(distances: opsmith.Library) -> None:
    """Placeholders and sessions, as programs for TensorFlow 1 have them."""
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float64, [None, 4])
        z = distances.pairwise_manhattan_distance(x, x)
        gradient = tf.compat.v1.gradients(z[0, 1], x)[0]
        assert z.shape.as_list() == [None, None] and gradient.shape.as_list() == [None, 4]
        value = np.random.default_rng(0).random((3, 4))
        with tf.compat.v1.Session() as session:
            got, slope = session.run([z, gradient], {x: value})
    np.testing.assert_allclose(got, np.abs(value[:, None] - value).sum(-1))
    np.testing.assert_array_equal(slope[0], np.sign(value[0] - value[1]))
