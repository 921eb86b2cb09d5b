"""Masked averages and losses under TensorFlow: values and gradients of dense masks, graphs, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import opsmith
import pytest
import tensorflow as tf
from conftest import load
from dense_masks import DELTAS, OPS, Case, Dense, bad_calls, random_cases, tolerance

CASES = 12


@pytest.fixture(scope="module")
def masks() -> opsmith.Library:
    """The example library."""
    return load("masks")


class Namespace:
    """The functions that the reference is written with."""

    einsum, where, sqrt = staticmethod(tf.einsum), staticmethod(tf.where), staticmethod(tf.sqrt)
    zeros_like, ones_like = staticmethod(tf.zeros_like), staticmethod(tf.ones_like)
    sum = staticmethod(tf.reduce_sum)


def with_gradient(function: Any, embedding: tf.Tensor, upstream: Any = None) -> tuple[Any, Any]:
    """The value and the gradient of a function of the embedding."""
    with tf.GradientTape() as tape:
        tape.watch(embedding)
        value = function(embedding)
    upstream = None if upstream is None else tf.cast(upstream, value.dtype)
    return value, tape.gradient(value, embedding, upstream)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("op", OPS)
def test_values_and_gradients_are_those_of_dense_masks(masks: opsmith.Library, op: str, dtype: Any) -> None:
    seen = 0
    for case in random_cases(CASES, dtype, seed=3):
        wide = Case(case.embedding.astype(float), case.rle_mask)
        dense = getattr(Dense(wide, Namespace, tf.constant), op)
        embedding, rle_mask = tf.constant(case.embedding), tf.constant(case.rle_mask)
        shape = dense(tf.constant(wide.embedding), **OPS[op]).shape
        upstream = np.random.default_rng(seen).standard_normal(shape)
        got, grad = with_gradient(
            lambda e, rle_mask=rle_mask: getattr(masks, op)(e, rle_mask, **OPS[op]), embedding, upstream
        )
        expected, expected_grad = with_gradient(
            lambda e, dense=dense: dense(e, **OPS[op]), tf.constant(wide.embedding), upstream
        )
        np.testing.assert_allclose(got, expected, **tolerance(op, dtype))
        np.testing.assert_allclose(grad, expected_grad, **tolerance(op, dtype))
        seen += 1
    assert seen == CASES


@pytest.mark.parametrize("op", OPS)
def test_gradients_are_those_of_differences(masks: opsmith.Library, op: str) -> None:
    case = next(random_cases(1, seed=4, most=5))
    embedding = tf.constant(case.embedding[:1, :2, :8, :4])
    rle_mask = tf.constant(case.rle_mask[:1, :, :2].clip(0, embedding.shape[2]))
    delta, error = (0.5, 1e-5) if op == "average_embedding_mask" else (1e-6, 1e-7)
    theirs, ours = tf.test.compute_gradient(
        lambda e: getattr(masks, op)(e, rle_mask, **OPS[op]), [embedding], delta=delta
    )
    np.testing.assert_allclose(theirs, ours, atol=error)


def test_a_graph_of_unknown_shapes(masks: opsmith.Library) -> None:
    embedding_spec = tf.TensorSpec([None, None, None, None], tf.float32)

    @tf.function(input_signature=[embedding_spec, tf.TensorSpec(None, tf.int32)])
    def both(embedding: tf.Tensor, rle_mask: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return with_gradient(lambda e: masks.discriminative_loss(e, rle_mask, **DELTAS), embedding)

    for case in random_cases(3, np.float32, seed=5):
        rle_mask = case.rle_mask.astype(np.int32)
        loss, grad = both(case.embedding, rle_mask)
        expected = masks.discriminative_loss(case.embedding, rle_mask, **DELTAS)
        np.testing.assert_allclose(loss, expected, rtol=1e-6)
        assert grad.shape == case.embedding.shape
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"DiscriminativeLoss(.|\n)*rank 4"):
        both(case.embedding, rle_mask[0])
    with pytest.raises(tf.errors.OutOfRangeError, match="at batch 0, mask"):
        both(case.embedding, rle_mask - 1)


def test_bad_input(masks: opsmith.Library) -> None:
    seen = 0
    for what, embedding, rle_mask, message in bad_calls():
        for op, attrs in OPS.items():
            with pytest.raises((tf.errors.OpError, ValueError)) as caught:
                getattr(masks, op)(tf.constant(embedding), tf.constant(rle_mask), **attrs)
            assert message in str(caught.value), what
            seen += 1
    assert seen == 24


def test_no_elements_and_nan(masks: opsmith.Library) -> None:
    rle_mask = tf.zeros([2, 3, 0, 2], tf.int64)
    assert masks.masked_averages(tf.zeros([2, 0, 5, 4]), rle_mask).numpy().tolist() == [[[0] * 4] * 3] * 2
    embedding = tf.constant([[[[1.0], [3.0], [np.nan]]], [[[1.0], [np.nan], [np.nan]]]])
    rle_mask = tf.constant([[[[0, 2]]], [[[0, 2]]]])
    mean = masks.masked_averages(embedding, rle_mask).numpy().ravel()
    assert mean[0] == 2 and np.isnan(mean[1])
