"""Trains a small model with ops of a library under a strategy, in a process of its own, and prints what came
of it: `python strategies.py LIBRARY one|mirrored|worker`."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["OPSMITH_NUM_THREADS"] = "1"

import numpy as np
import opsmith
import tensorflow as tf

STEPS, BATCH, FEATURES = 4, 8, 5


class Model(tf.Module):
    """A layer norm and a linear layer, whose numbers are trained."""

    def __init__(self, reductions: opsmith.Library) -> None:
        super().__init__()
        self.reductions = reductions
        self.scale = tf.Variable(tf.linspace(0.5, 1.5, FEATURES))
        self.shift = tf.Variable(tf.zeros(FEATURES))
        self.weight = tf.Variable(tf.reshape(tf.linspace(-1.0, 1.0, 2 * FEATURES), (FEATURES, 2)))

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        """Logarithms of sums, which is an op too."""
        normed = self.reductions.layer_norm(x, self.scale, self.shift)
        return self.reductions.log_sum_exp(normed @ self.weight)


def data() -> tuple[np.ndarray, np.ndarray]:
    """The same in every process."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((BATCH, FEATURES)).astype(np.float32)
    return x, np.sin(x.sum(1))


def trained(strategy: Any, reductions: opsmith.Library) -> dict[str, Any]:
    """By a loop of our own. Each replica has an even share of the batch."""
    with strategy.scope():
        model = Model(reductions)
    x, y = data()
    # The same on each worker, of which each takes its share.
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH).repeat(STEPS).with_options(options)

    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(x) - y) ** 2) / BATCH
        gradients = tape.gradient(loss, model.trainable_variables)
        total = tf.distribute.get_replica_context().all_reduce("sum", gradients)
        for variable, gradient in zip(model.trainable_variables, total, strict=True):
            variable.assign_sub(0.1 * gradient)
        return loss

    @tf.function
    def run(batch: Any) -> tf.Tensor:
        return strategy.reduce("sum", strategy.run(step, args=batch), axis=None)

    losses = [float(run(batch)) for batch in strategy.experimental_distribute_dataset(batches)]
    weights = [variable.numpy().tolist() for variable in model.trainable_variables]
    return {"losses": losses, "weights": weights, "replicas": strategy.num_replicas_in_sync}


def fitted(strategy: Any, reductions: opsmith.Library) -> dict[str, Any]:
    """By Keras."""
    import keras

    class Norm(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")
            self.shift = self.add_weight(shape=(shape[-1],), initializer="zeros")

        def call(self, x: Any) -> Any:
            return reductions.layer_norm(x, self.scale, self.shift)

    with strategy.scope():
        dense = keras.layers.Dense(1, kernel_initializer=keras.initializers.Constant(0.3))
        model = keras.Sequential([keras.Input((FEATURES,)), Norm(), dense])
        model.compile(keras.optimizers.SGD(0.1), "mse")
    x, y = data()
    history = model.fit(x, y, batch_size=BATCH, epochs=STEPS, shuffle=False, verbose=0)
    weights = [np.asarray(weight).tolist() for weight in model.get_weights()]
    return {"losses": history.history["loss"], "weights": weights, "replicas": strategy.num_replicas_in_sync}


def main() -> None:
    """What the first argument's library gives under the strategy that the second one names."""
    library, kind = sys.argv[1:]
    cpus = tf.config.list_physical_devices("CPU")
    if kind == "mirrored":
        tf.config.set_logical_device_configuration(cpus[0], [tf.config.LogicalDeviceConfiguration()] * 2)
        strategy: Any = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    elif kind == "worker":
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    else:
        strategy = tf.distribute.get_strategy()
    reductions = opsmith.load(library)
    result = {"loop": trained(strategy, reductions)}
    if kind != "worker":
        result["keras"] = fitted(strategy, reductions)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
