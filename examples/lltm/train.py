"""Digits read row by row, learnt by an LLTM in PyTorch, TensorFlow or JAX: from the same start with the same
batches, so by the same loss curve.

    python train.py --framework torch [--epochs 25] [--dtype float32] [--losses FILE]

prints the loss of each epoch and the accuracy on digits that were held out; `--losses` writes the loss of
each step.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import digits
import numpy as np

LEARNING_RATE, MOMENTUM = 0.25, 0.75
"""Numbers that Keras, which keeps them in float32, does not round."""


@dataclass
class Trained:
    """The loss of each step, and the share of digits held out that are told."""

    losses: list[float]
    accuracy: float


def with_torch(steps: int, dtype: str) -> Trained:
    """By a module, and PyTorch's optimiser."""
    import torch
    from lltm_torch import LLTM

    learnt, held_out = digits.read(dtype)
    cell = LLTM(digits.FEATURES, digits.STATE, dtype=getattr(torch, dtype))
    output = torch.nn.Linear(digits.STATE, digits.CLASSES, dtype=getattr(torch, dtype))
    parameters = [*cell.parameters(), *output.parameters()]
    with torch.no_grad():
        for parameter, value in zip(parameters, digits.start(dtype), strict=True):
            parameter.copy_(torch.from_numpy(value))
    optimizer = torch.optim.SGD(parameters, LEARNING_RATE, MOMENTUM)

    def model(images: np.ndarray) -> torch.Tensor:
        inputs = torch.from_numpy(images)
        state = cell.start(len(inputs))
        for row in inputs.unbind(1):
            state = cell(row, state)
        logits: torch.Tensor = output(state[0])
        return logits

    losses = []
    for images, labels in digits.batches(learnt, steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), torch.from_numpy(labels).long())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        return Trained(losses, accuracy(model(held_out.images).numpy(), held_out))


def with_tensorflow(steps: int, dtype: str) -> Trained:
    """By a layer of Keras, and its optimiser."""
    import keras
    import tensorflow as tf
    from lltm_keras import LLTMCell

    learnt, held_out = digits.read(dtype)
    output = keras.layers.Dense(digits.CLASSES, dtype=dtype)
    reader = keras.layers.RNN(LLTMCell(digits.STATE, dtype=dtype), dtype=dtype)
    inputs = keras.Input((digits.STEPS, digits.FEATURES), dtype=dtype)
    model = keras.Model(inputs, output(reader(inputs)))
    weights, bias, output_weights, output_bias = digits.start(dtype)
    reader.set_weights([weights, bias])
    output.set_weights([output_weights.T, output_bias])
    optimizer = keras.optimizers.SGD(LEARNING_RATE, MOMENTUM)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images))
            loss = tf.reduce_mean(each)
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(loss, [variable.value for variable in variables]), variables)
        return loss

    losses = [float(step(tf.constant(i), tf.constant(n))) for i, n in digits.batches(learnt, steps)]
    return Trained(losses, accuracy(np.asarray(model(held_out.images)), held_out))


def with_jax(steps: int, dtype: str) -> Trained:
    """By a function, and an optimiser that is written out."""
    import jax
    import jax.numpy as jnp
    import lltm_jax

    if dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    learnt, held_out = digits.read(dtype)
    parameters = [jnp.asarray(value) for value in digits.start(dtype)]

    def model(parameters: list[jax.Array], images: jax.Array) -> jax.Array:
        weights, bias, output_weights, output_bias = parameters
        h = lltm_jax.last(lltm_jax.Parameters(weights, bias), images)
        return h @ output_weights.T + output_bias

    def loss_of(parameters: list[jax.Array], images: jax.Array, labels: jax.Array) -> jax.Array:
        logs = jax.nn.log_softmax(model(parameters, images))
        return -jnp.take_along_axis(logs, labels[:, None], 1).mean()

    @jax.jit
    def step(
        parameters: list[jax.Array], velocities: list[jax.Array], images: jax.Array, labels: jax.Array
    ) -> tuple[list[jax.Array], list[jax.Array], jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(parameters, images, labels)
        velocities = [MOMENTUM * v + g for v, g in zip(velocities, gradients, strict=True)]
        moved = [p - LEARNING_RATE * v for p, v in zip(parameters, velocities, strict=True)]
        return moved, velocities, loss

    velocities = [jnp.zeros_like(parameter) for parameter in parameters]
    losses = []
    for images, labels in digits.batches(learnt, steps):
        parameters, velocities, loss = step(parameters, velocities, images, labels)
        losses.append(float(loss))
    return Trained(losses, accuracy(np.asarray(model(parameters, held_out.images)), held_out))


def accuracy(logits: np.ndarray, held_out: digits.Digits) -> float:
    """The share of digits whose number is the largest."""
    return float((logits.argmax(1) == held_out.labels).mean())


FRAMEWORKS = {"torch": with_torch, "tensorflow": with_tensorflow, "jax": with_jax}


def main() -> None:
    """Train as the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--framework", choices=FRAMEWORKS, required=True)
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--losses", type=Path, help="a file for the loss of each step")
    arguments = parser.parse_args()
    per_epoch = digits.per_epoch(digits.read(arguments.dtype)[0])
    trained = FRAMEWORKS[arguments.framework](arguments.epochs * per_epoch, arguments.dtype)
    for epoch in range(arguments.epochs):
        losses = trained.losses[epoch * per_epoch : (epoch + 1) * per_epoch]
        print(f"epoch {epoch + 1:3}  loss {np.mean(losses):.6f}")
    print(f"told right of {digits.HELD_OUT} digits that were held out: {trained.accuracy:.1%}")
    if arguments.losses:
        arguments.losses.write_text("".join(f"{loss:.17g}\n" for loss in trained.losses))


if __name__ == "__main__":
    main()
