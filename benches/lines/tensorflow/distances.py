"""Pairwise Manhattan distances, with their gradient, for TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

_ops = tf.load_op_library(str(Path(__file__).parent / "_distances.so"))


@tf.RegisterGradient("PairwiseDistance")
def _gradient(op: Any, z_grad: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return _ops.pairwise_distance_grad(*op.inputs, z_grad)


def pairwise_distance(x: Any, y: Any) -> tf.Tensor:
    """Pairwise Manhattan (L1) distances between the rows of `x` and the rows of `y`."""
    return _ops.pairwise_distance(x, y)
