"""The cell as a layer of Keras, on TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from lltm_library import ops


@keras.saving.register_keras_serializable(package="opsmith_lltm")
class LLTMCell(keras.layers.Layer):
    """A cell with a long-term memory; `keras.layers.RNN(LLTMCell(units))` is a layer for sequences."""

    def __init__(self, units: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.state_size = [units, units]
        self.output_size = units

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Make the parameters, drawn from ±1/√units."""
        limit = self.units**-0.5 if self.units else 0.0
        columns = self.units + input_shape[-1]
        for name, shape in [("kernel", (3 * self.units, columns)), ("bias", (3 * self.units,))]:
            # An initialiser of its own for each: one draws the same numbers every time.
            draw = keras.initializers.RandomUniform(-limit, limit)
            setattr(self, name, self.add_weight(name=name, shape=shape, initializer=draw))
        self.built = True

    def call(self, inputs: tf.Tensor, states: Sequence[tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """The output of the step, and the next state."""
        h, cell = states
        new_h, new_cell = ops.lltm(inputs, self.kernel.value, self.bias.value, h, cell)
        return new_h, [new_h, new_cell]

    def get_config(self) -> dict[str, Any]:
        """What a saved model keeps of it."""
        return {**super().get_config(), "units": self.units}
