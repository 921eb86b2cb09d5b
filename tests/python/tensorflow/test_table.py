"""The table of all frameworks, on TensorFlow's tensors: eagerly and in a graph of unknown dims."""

from __future__ import annotations

from typing import Any

import numpy as np
import opsmith
import opsmith.tensorflow
import pytest
import tensorflow as tf
from conftest import load
from framework import call, check_message
from table import Mistake, Row, mistakes, rows


def to_numpy(tensor: Any) -> np.ndarray:
    """Back again."""
    assert isinstance(tensor, tf.Tensor)
    return np.asarray(tensor.numpy())


def unknown(tensor: tf.Tensor) -> tf.TensorSpec:
    """The same dtype, with no dim known."""
    return tf.TensorSpec([None] * tensor.shape.rank, tensor.dtype)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.id)
def test_answers(row: Row) -> None:
    row.check(map(to_numpy, call(load(row.library), row, tf.constant, opsmith.tensorflow)))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.id)
def test_answers_in_a_graph(row: Row) -> None:
    inputs = tf.nest.map_structure(lambda x: None if x is None else tf.constant(x), list(row.inputs))
    tensors = [x for x in tf.nest.flatten(inputs) if x is not None]

    @tf.function(autograph=False, input_signature=[unknown(x) for x in tensors])
    def graph(*tensors: tf.Tensor) -> list[tf.Tensor]:
        rest = iter(tensors)
        symbols = tf.nest.map_structure(lambda x: None if x is None else next(rest), inputs)
        traced = Row(
            row.library, row.op, row.dtype, row.case, tuple(symbols), row.attrs, row.expected, row.exact
        )
        return call(load(row.library), traced, lambda x: x, opsmith.tensorflow)

    outputs = graph(*tensors)
    row.check(map(to_numpy, outputs))
    for symbol, output in zip(graph.get_concrete_function().outputs, outputs, strict=True):
        assert symbol.shape.rank == output.shape.rank and symbol.shape.is_compatible_with(output.shape)


@pytest.mark.parametrize("mistake", mistakes(), ids=lambda mistake: mistake.id)
def test_mistakes(mistake: Mistake) -> None:
    library = load(mistake.library)
    # Nothing says whose an empty list is: the embedded engine refuses it.
    with pytest.raises((tf.errors.InvalidArgumentError, opsmith.InvalidArgumentError)) as raised:
        call(library, mistake, tf.constant, opsmith.tensorflow)
    check_message(library, mistake, raised.value)


@pytest.mark.parametrize("mistake", mistakes(), ids=lambda mistake: mistake.id)
def test_mistakes_in_a_graph(mistake: Mistake) -> None:
    """They are found when the graph is built, or at the latest when it runs, time and again."""
    library = load(mistake.library)
    graph = tf.function(lambda: call(library, mistake, tf.constant, opsmith.tensorflow), autograph=False)
    for _ in range(2):
        with pytest.raises((tf.errors.InvalidArgumentError, ValueError)) as raised:
            graph()
        check_message(library, mistake, raised.value)
