"""Medians of windows in JAX: against slices and sorting, gradients of two orders, jit, symbolic sizes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import opsmith
import pytest
from conftest import load
from jax import export
from jax.test_util import check_grads
from opsmith.jax import export_checks
from pools import CASES, Pool, gradient, images, medians


@pytest.fixture(scope="session")
def library() -> opsmith.Library:
    """The example library."""
    return load("median_pool")


def of_slices(x: jax.Array, pool: Pool) -> jax.Array:
    """The medians of windows inside of images, in JAX's own ops."""
    rows, columns = ((d - k) // s + 1 for d, k, s in zip(x.shape[1:3], pool.ksize, pool.strides, strict=True))
    slices = [
        x[:, i :: pool.strides[0]][:, :rows, j :: pool.strides[1]][:, :, :columns]
        for i in range(pool.ksize[0])
        for j in range(pool.ksize[1])
    ]
    return jnp.sort(jnp.stack(slices), axis=0)[len(slices) // 2]


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64, jnp.uint8, jnp.int32])
def test_values_are_those_of_sorted_windows(library: opsmith.Library, dtype: type) -> None:
    for pool in CASES:
        x = jnp.asarray(images(pool, "int64")).astype(dtype)
        y = jax.jit(lambda x, pool=pool: library.median_pool(x, **pool.attrs))(x)
        assert y.dtype == x.dtype
        expected, _ = medians(np.asarray(x, np.float64), pool)
        np.testing.assert_array_equal(np.asarray(y, np.float64), expected)


def test_gradients_are_those_of_slices(library: opsmith.Library) -> None:
    cases = [
        Pool((2, 6, 9, 2), (3, 3), (1, 1), "VALID"),
        Pool((1, 8, 7, 1), (2, 3), (2, 1), "VALID"),
        CASES[4],
    ]
    for pool in cases:
        x = jnp.asarray(images(pool, "float64", distinct=True))
        y, back = jax.vjp(lambda x, pool=pool: library.median_pool(x, **pool.attrs), x)
        upstream = jnp.asarray(np.random.default_rng(0).normal(size=y.shape))
        (ours,) = back(upstream)
        np.testing.assert_allclose(ours, gradient(np.asarray(x), pool, np.asarray(upstream)), atol=1e-12)
        if pool.padding == "VALID":
            (theirs,) = jax.vjp(lambda x, pool=pool: of_slices(x, pool), x)[1](upstream)
            np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_gradients_of_two_orders(library: opsmith.Library) -> None:
    pool = Pool((1, 4, 5, 2), (3, 2), (1, 2), "SAME")
    x = jnp.asarray(images(pool, "float64", distinct=True))
    check_grads(lambda x: library.median_pool(x, **pool.attrs), (x,), order=2, modes=["rev"])
    upstream = jnp.ones((1, 4, 3, 2))
    check_grads(
        lambda g: library.median_pool_grad(x, jnp.asarray(g), **pool.attrs),
        (upstream,),
        order=1,
        modes=["rev"],
    )


def test_symbolic_sizes(library: opsmith.Library) -> None:
    pooled = jax.jit(lambda x: library.median_pool(x, ksize=[3, 3], strides=[2, 1], padding="SAME"))
    shape = export.symbolic_shape("b, h, w, 2")
    checks = export_checks(library)
    exported = export.export(pooled, disabled_checks=checks)(jax.ShapeDtypeStruct(shape, jnp.float32))
    for pool in (Pool((2, 6, 7, 2), (3, 3), (2, 1), "SAME"), Pool((1, 9, 4, 2), (3, 3), (2, 1), "SAME")):
        x = jnp.asarray(images(pool, "float32"))
        np.testing.assert_array_equal(exported.call(x), pooled(x))


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"ksize": [6, 3]}, "at least 6 rows, the height of a window"),
        ({"ksize": [3, 3], "strides": [1, 0]}, "`strides` must be of numbers from 1"),
        ({"ksize": [3, 3, 3]}, "`ksize` must be two numbers"),
    ],
)
def test_what_does_not_fit_is_told(library: opsmith.Library, attrs: dict[str, object], message: str) -> None:
    with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match=message):
        library.median_pool(jnp.ones((1, 5, 5, 1)), **attrs)
