"""Medians of windows in TensorFlow: against patches and sorting, gradients, graphs, what does not fit."""

from __future__ import annotations

import numpy as np
import opsmith
import pytest
import tensorflow as tf
from conftest import load
from pools import CASES, Pool, gradient, images, random_cases


@pytest.fixture(scope="session")
def library() -> opsmith.Library:
    """The example library."""
    return load("median_pool")


def of_patches(x: tf.Tensor, pool: Pool) -> tf.Tensor:
    """The medians of windows inside of images, in TensorFlow's own ops."""
    sizes, strides = [1, *pool.ksize, 1], [1, *pool.strides, 1]
    patches = tf.image.extract_patches(x, sizes, strides, [1, 1, 1, 1], "VALID")
    windows = tf.reshape(patches, [*patches.shape[:3], -1, x.shape[3]])
    return tf.sort(windows, axis=3)[:, :, :, windows.shape[3] // 2]


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.uint8, tf.int64])
def test_values_are_those_of_patches(library: opsmith.Library, dtype: tf.DType) -> None:
    for pool in CASES:
        x = tf.cast(images(pool, "int64"), dtype)
        y = library.median_pool(x, **pool.attrs)
        assert y.dtype == dtype
        if pool.padding == "VALID" and 0 not in pool.shape:
            expected = of_patches(tf.cast(x, tf.float64), pool)
            np.testing.assert_array_equal(tf.cast(y, tf.float64), expected)


def test_gradients_are_those_of_patches(library: opsmith.Library) -> None:
    count = 0
    for pool in random_cases(24, 3):
        x = tf.constant(images(pool, "float64", distinct=True))
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = library.median_pool(x, **pool.attrs)
        upstream = np.random.default_rng(0).normal(size=y.shape)
        ours = tape.gradient(y, x, upstream)
        np.testing.assert_allclose(ours, gradient(x.numpy(), pool, upstream), rtol=1e-12, atol=1e-12)
        if pool.padding == "VALID":
            with tf.GradientTape() as tape:
                tape.watch(x)
                theirs = of_patches(x, pool)
            np.testing.assert_allclose(ours, tape.gradient(theirs, x, upstream), rtol=1e-12, atol=1e-12)
            count += 1
    print(f"median_pool: {count} gradients against TensorFlow's")
    assert count >= 6


def test_gradients_of_two_orders(library: opsmith.Library) -> None:
    pool = Pool((1, 4, 5, 2), (3, 2), (1, 2), "SAME")
    x = tf.constant(images(pool, "float64", distinct=True))

    def op(x: tf.Tensor) -> tf.Tensor:
        return library.median_pool(x, **pool.attrs)

    (theoretical,), (numerical,) = tf.test.compute_gradient(op, [x])
    np.testing.assert_allclose(theoretical, numerical, atol=1e-6)

    def first(upstream: tf.Tensor) -> tf.Tensor:
        return library.median_pool_grad(x, upstream, **pool.attrs)

    (theoretical,), (numerical,) = tf.test.compute_gradient(first, [tf.ones_like(op(x))])
    np.testing.assert_allclose(theoretical, numerical, atol=1e-6)


def test_shapes_in_graphs(library: opsmith.Library) -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, None, 20, 3], tf.float32)])
    def pooled(x: tf.Tensor) -> tf.Tensor:
        y = library.median_pool(x, ksize=[3, 3], strides=[2, 2], padding="SAME")
        assert y.shape.as_list() == [None, None, 10, 3]
        return y

    pool = Pool((2, 9, 20, 3), (3, 3), (2, 2), "SAME")
    x = images(pool, "float32")
    np.testing.assert_array_equal(pooled(x), library.median_pool(x, **pool.attrs))
    assert pooled(x).shape == (2, 5, 10, 3)


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"ksize": [6, 3]}, "at least 6 rows, the height of a window"),
        ({"ksize": [3, 3], "strides": [1, 0]}, "`strides` must be of numbers from 1"),
        ({"ksize": [3, 3, 3]}, "`ksize` must be two numbers"),
    ],
)
def test_what_does_not_fit_is_told(library: opsmith.Library, attrs: dict[str, object], message: str) -> None:
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=message):
        library.median_pool(tf.ones([1, 5, 5, 1]), **attrs)
