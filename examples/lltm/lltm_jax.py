"""The cell as a function of JAX."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from lltm_library import ops

State = tuple[jax.Array, jax.Array]


class Parameters(NamedTuple):
    """What is learnt."""

    weights: jax.Array
    bias: jax.Array


def init(key: jax.Array, input_features: int, state_size: int, dtype: jnp.dtype | None = None) -> Parameters:
    """Parameters drawn from ±1/√state_size."""
    limit = state_size**-0.5 if state_size else 0.0
    shapes = [(3 * state_size, state_size + input_features), (3 * state_size,)]
    keys = jax.random.split(key)
    draw = (
        jax.random.uniform(key, shape, dtype, -limit, limit) for key, shape in zip(keys, shapes, strict=True)
    )
    return Parameters(*draw)


def lltm(parameters: Parameters, state: State, input: jax.Array) -> State:
    """One step: from the state and an input of (batch, features) to the next state."""
    h, cell = state
    new_h, new_cell = ops.lltm(input, parameters.weights, parameters.bias, h, cell)
    return new_h, new_cell


def last(parameters: Parameters, inputs: jax.Array) -> jax.Array:
    """The output after the last step of sequences (batch, steps, features), beginning with zeros."""
    zeros = jnp.zeros((inputs.shape[0], parameters.weights.shape[0] // 3), inputs.dtype)

    def step(state: State, input: jax.Array) -> tuple[State, None]:
        return lltm(parameters, state, input), None

    (h, _), _ = jax.lax.scan(step, (zeros, zeros), jnp.swapaxes(inputs, 0, 1))
    return h
