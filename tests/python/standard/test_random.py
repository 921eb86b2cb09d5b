"""Random numbers against the generator as its authors define it, and the same ones everywhere."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import opsmith
import pytest
import scipy.special
import scipy.stats
import torch
from conftest import count

SEEDS = [(0, 0), (1, 0), (-1, 7), (1 << 40, (1 << 32) - 3), (12345, -1)]
SIZES = [0, 1, 3, 4, 63, 64, 65, 1000, 100_000]


def philox(seed: int, offset: int, count: int) -> np.ndarray:
    """The first words from a block on, by Philox 4x32-10."""
    mask = np.uint64(0xFFFFFFFF)
    blocks = np.arange(-(-count // 4), dtype="uint64") + np.uint64(offset & (2**64 - 1))
    a, b = blocks & mask, blocks >> np.uint64(32)
    c, d = np.zeros_like(a), np.zeros_like(a)
    low, high = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
    for _ in range(10):
        left, right = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a = (right >> np.uint64(32)) ^ b ^ np.uint64(low)
        c = (left >> np.uint64(32)) ^ d ^ np.uint64(high)
        b, d = right & mask, left & mask
        low, high = (low + 0x9E3779B9) & 0xFFFFFFFF, (high + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([a, b, c, d], 1).reshape(-1)[:count].astype("uint32")


def pairs(words: np.ndarray) -> np.ndarray:
    """Each two words as one of 64 bits."""
    wide = words.astype("uint64")
    return wide[::2] | wide[1::2] << np.uint64(32)


@pytest.mark.parametrize(("seed", "offset"), SEEDS)
def test_bits_are_the_generators(ops: opsmith.Library, seed: int, offset: int) -> None:
    for size in SIZES:
        words = philox(seed, offset, 2 * size)
        np.testing.assert_array_equal(ops.random_bits([size], seed, offset), words[:size])
        np.testing.assert_array_equal(ops.random_bits([size], seed, offset, dtype="uint64"), pairs(words))
    count("the generator's definition", 2 * len(SIZES))


def test_the_first_block_is_the_published_one(ops: opsmith.Library) -> None:
    expected = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert ops.random_bits([2, 2], 0, 0).ravel().tolist() == expected
    count("the generator's definition")


@pytest.mark.parametrize(("seed", "offset"), SEEDS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_numbers_are_functions_of_bits(ops: opsmith.Library, dtype: str, seed: int, offset: int) -> None:
    for size in SIZES:
        words = philox(seed, offset, 2 * size)
        if dtype == "float64":
            unit = (pairs(words) >> np.uint64(11)) / 2.0**53
            middle = ((pairs(words) >> np.uint64(12)) + 0.5) / 2.0**52
        else:
            unit = (words[:size] >> np.uint32(8)) / 2.0**24
            middle = (words[:size] + 0.5) / 2.0**32
        found = ops.random_uniform([size], seed, offset, low=-1.0, high=2.0, dtype=dtype)
        expected = np.minimum(
            (3 * unit - 1).astype(dtype), np.nextafter(np.array(2, dtype), np.array(0, dtype))
        )
        np.testing.assert_array_equal(found, expected)
        found = ops.random_normal([size], seed, offset, mean=0.5, stddev=2.0, dtype=dtype)
        assert found.dtype == dtype
        tolerance = {"float16": 1e-3, "float32": 2e-7, "float64": 1e-14}[dtype]
        np.testing.assert_allclose(
            found, 0.5 + 2 * scipy.special.ndtri(middle), rtol=tolerance, atol=tolerance
        )
    count("functions of the generator's bits", 2 * len(SIZES))


def test_truth_values_and_what_is_dropped(ops: opsmith.Library) -> None:
    words = philox(3, 9, 1000)
    p = np.linspace(0, 1, 1000).reshape(10, 100)
    expected = words.reshape(p.shape) < np.round(p * 2.0**32)
    for dtype in ["bool", "float32", "int8", "uint64"]:
        np.testing.assert_array_equal(ops.random_bernoulli(p, 3, 9, dtype=dtype), expected.astype(dtype))
    x = np.random.default_rng(0).normal(size=(10, 100))
    kept = words.reshape(x.shape) >= round(0.3 * 2**32)
    np.testing.assert_allclose(ops.dropout(x, 3, 9, p=0.3), np.where(kept, x / 0.7, 0), rtol=1e-15)
    given = torch.from_numpy(x).requires_grad_()
    (slope,) = torch.autograd.grad(ops.dropout(given, 3, 9, p=0.3).sum(), given, create_graph=True)
    np.testing.assert_allclose(slope.detach(), kept / 0.7, rtol=1e-15)
    assert torch.autograd.gradgradcheck(lambda x: ops.dropout(x, 3, 9, p=0.3), given, fast_mode=True)
    count("functions of the generator's bits", 7)


def test_numbers_are_the_same_everywhere(ops: opsmith.Library) -> None:
    def of(wrap: Any) -> list[Any]:
        shape, seed, offset = wrap([300, 1001]), wrap(5), wrap(6)
        x = wrap(np.ones((300, 1001), "float32"))
        return [
            ops.random_uniform(shape, seed, offset),
            ops.random_normal(shape, seed, offset),
            ops.dropout(x, seed, offset),
        ]

    expected = of(np.asarray)
    threads = torch.get_num_threads()
    try:
        for number in (1, 2, 5):
            torch.set_num_threads(number)
            for a, b in zip(of(torch.as_tensor), expected, strict=True):
                np.testing.assert_array_equal(a, b)
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_array_equal(ops.dropout(jnp.ones((300, 1001)), 5, 6), expected[2])
    count("the same numbers on other threads and in other frameworks", 10)


def test_distributions(ops: opsmith.Library) -> None:
    size = 1_000_000
    assert scipy.stats.kstest(ops.random_uniform([size], 11, 0, dtype="float64"), "uniform").pvalue > 1e-3
    normal = ops.random_normal([size], 11, 0, dtype="float64")
    assert scipy.stats.kstest(normal, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(normal[:-1], normal[1:])[0, 1]) < 0.005
    assert abs(ops.dropout(np.ones(size), 11, 0, p=0.1).mean() - 1) < 0.002
    count("distributions", 4)


def test_a_seed_is_needed(ops: opsmith.Library) -> None:
    for call in [
        lambda: ops.random_uniform([2]),
        lambda: ops.random_normal([2], 1),
        lambda: ops.dropout(np.ones(2)),
        lambda: ops.random_bits([2], None, 1),
    ]:
        with pytest.raises((TypeError, opsmith.InvalidArgumentError), match=r"seed|offset"):
            call()
    with pytest.raises(opsmith.InvalidArgumentError, match="input `seed` must have one element"):
        ops.random_uniform([2], [1, 2], 1)
    with pytest.raises((TypeError, opsmith.InvalidArgumentError), match="seed"):
        ops.random_uniform([2], 0.5, 1)
