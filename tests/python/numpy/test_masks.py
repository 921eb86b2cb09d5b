"""Masked averages and losses: values against dense masks, bad input, and what holds of every op."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import opsmith
import opsmith.testing
import pytest
from conftest import library_path
from dense_masks import DELTAS, OPS, Case, Dense, bad_calls, random_cases, random_masks, tolerance

CASES = 60


@pytest.fixture(scope="module")
def masks() -> opsmith.Library:
    """The example library."""
    return opsmith.load(library_path("masks"))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("op", OPS)
def test_values_are_those_of_dense_masks(masks: opsmith.Library, op: str, dtype: Any) -> None:
    seen = 0
    for case in random_cases(CASES, dtype, seed=1):
        got = getattr(masks, op)(case.embedding, case.rle_mask, **OPS[op])
        wide = Case(case.embedding.astype(float), case.rle_mask)
        expected = getattr(Dense(wide), op)(wide.embedding, **OPS[op])
        assert got.dtype == (np.float32 if op == "average_embedding_mask" else dtype)
        np.testing.assert_allclose(got, expected, **tolerance(op, dtype))
        seen += 1
    assert seen == CASES


def test_strided_input(masks: opsmith.Library) -> None:
    rng = np.random.default_rng(2)
    embedding = rng.standard_normal((2, 6, 9, 4)).transpose(3, 1, 2, 0)[::-1, ::2]
    rle_mask = random_masks(rng, 4, 3, 6, 9)[:, :, ::2]
    for op, attrs in OPS.items():
        dense = getattr(masks, op)(np.ascontiguousarray(embedding), np.ascontiguousarray(rle_mask), **attrs)
        np.testing.assert_array_equal(getattr(masks, op)(embedding, rle_mask, **attrs), dense)


def test_a_mean_is_exact_to_rounding(masks: opsmith.Library) -> None:
    # A sum in float32 would be off by hundreds of roundings.
    embedding = np.random.default_rng(3).random((1, 512, 512, 3), np.float32) + 1000
    rle_mask = np.broadcast_to(np.array([0, 512], np.int32), (1, 1, 512, 2))
    mean = masks.masked_averages(embedding, rle_mask)
    np.testing.assert_allclose(mean[0, 0], embedding.astype(float).mean((0, 1, 2)), rtol=1e-7)


@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (2, 0, 3, 4), (2, 2, 0, 4), (2, 2, 3, 0)])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_no_elements(masks: opsmith.Library, shape: tuple[int, ...], number: int) -> None:
    batch, x, y, d = shape
    embedding, rle_mask = np.ones(shape), np.zeros((batch, number, x, 2), np.int64)
    assert masks.masked_averages(embedding, rle_mask).shape == (batch, number, d)
    np.testing.assert_array_equal(masks.average_embedding_mask(embedding, rle_mask), np.zeros((batch, x, y)))
    loss = masks.discriminative_loss(embedding, rle_mask, **DELTAS)
    np.testing.assert_array_equal(loss, np.zeros(batch))
    grad = masks.masked_averages_grad(embedding, rle_mask, np.ones((batch, number, d)))
    np.testing.assert_array_equal(grad, np.zeros(shape))


def test_sizes_whose_product_overflows(masks: opsmith.Library) -> None:
    many = np.empty((1, 2**40, 0, 2), np.int32)
    assert masks.masked_averages(np.empty((1, 0, 2**9, 0)), many).shape == (1, 2**40, 0)
    with pytest.raises((opsmith.ResourceExhaustedError, opsmith.InvalidArgumentError, MemoryError)):
        masks.masked_averages(np.empty((1, 0, 5, 2**30)), many)
    with pytest.raises((opsmith.ResourceExhaustedError, opsmith.InvalidArgumentError, MemoryError)):
        masks.average_embedding_mask(np.empty((1, 2, 2**58, 0)), np.zeros((1, 1, 2, 2), np.int64))


def test_few_masks(masks: opsmith.Library) -> None:
    embedding = np.array([1.0, 3.0, 100.0]).reshape(1, 1, 3, 1)
    attrs = {"delta_v": 0.5, "delta_d": 10.0, "gamma": 0.25}
    losses = {
        # Neither a reversed run nor an empty one has places.
        ((0, 0), (3, 1)): 0.0,
        ((0, 2), (0, 0)): 0.25 + 0.25 * 2,
        ((0, 1), (1, 2)): 18**2 + 0.25 * 2,
    }
    for runs, loss in losses.items():
        rle_mask = np.array(runs).reshape(1, 2, 1, 2)
        assert masks.discriminative_loss(embedding, rle_mask, **attrs).tolist() == [loss]


def test_nan_stays_where_it_is(masks: opsmith.Library) -> None:
    embedding = np.random.default_rng(5).standard_normal((2, 3, 10, 4))
    rle_mask = np.zeros((2, 3, 3, 2), np.int32)
    rle_mask[:, 0], rle_mask[:, 1], rle_mask[:, 2] = (0, 3), (3, 8), (7, 9)
    outside, inside = embedding.copy(), embedding.copy()
    outside[:, :, 9] = np.nan
    inside[0, 1, 4, 2] = np.nan
    for op, attrs in OPS.items():
        clean = getattr(masks, op)(embedding, rle_mask, **attrs)
        np.testing.assert_array_equal(getattr(masks, op)(outside, rle_mask, **attrs), clean)
        found = np.isnan(getattr(masks, op)(inside, rle_mask, **attrs))
        expected = np.zeros_like(found)
        if op == "masked_averages":
            expected[0, 1, 2] = True
        elif op == "average_embedding_mask":
            expected[0, :, 3:8] = True
        else:
            expected[0] = True
        np.testing.assert_array_equal(found, expected)
    grad = masks.average_embedding_mask_grad(inside, rle_mask, np.ones((2, 3, 10), np.float32))
    assert np.isnan(grad[0, :, 3:8, 2]).all() and np.isnan(grad).sum() == 15


def test_bad_input(masks: opsmith.Library) -> None:
    calls = list(bad_calls())
    for what, embedding, rle_mask, message in calls:
        for op, attrs in OPS.items():
            with pytest.raises((opsmith.InvalidArgumentError, opsmith.OutOfRangeError)) as caught:
                getattr(masks, op)(embedding, rle_mask, **attrs)
            name = "".join(part.title() for part in op.split("_"))
            assert name in str(caught.value) and message in str(caught.value), what
    assert len(calls) == 8
    embedding, rle_mask = calls[0][1], np.zeros((2, 2, 3, 2), np.int32)
    with pytest.raises(opsmith.InvalidArgumentError, match="int16"):
        masks.masked_averages(embedding, rle_mask.astype(np.int16))
    with pytest.raises(opsmith.InvalidArgumentError, match="float16"):
        masks.masked_averages(embedding.astype(np.float16), rle_mask)
    with pytest.raises(opsmith.InvalidArgumentError, match="delta_d"):
        masks.discriminative_loss(embedding, rle_mask, delta_v=1.0, delta_d=-1.0)
    with pytest.raises(TypeError, match="delta_d"):
        masks.discriminative_loss(embedding, rle_mask, delta_v=1.0)


def an_embedding_and_masks(rng: np.random.Generator, size: int) -> dict[str, np.ndarray]:
    """What the inputs of the ops may be, but for gradients."""
    batch, masks, x, y, d = rng.integers(0 if size == 0 else 1, size + 2, 5)
    embedding = rng.standard_normal((batch, x, y, d))
    saved = np.zeros((batch, masks, d))
    return {
        "embedding": embedding,
        "rle_mask": random_masks(rng, batch, masks, x, y).astype(np.int64),
        "mean_grad": rng.standard_normal(saved.shape),
        "embedding_grad_grad": rng.standard_normal(embedding.shape),
        "swarm_loss_grad": rng.standard_normal((batch, x, y)).astype(np.float32),
        "means": saved,
        "slopes": saved,
        "loss_grad": rng.standard_normal(batch),
    }


@pytest.mark.parametrize(
    "op",
    [
        *OPS,
        "masked_averages_grad",
        "masked_averages_grad_grad",
        "average_embedding_mask_grad",
        "average_embedding_mask_grad_grad",
        "discriminative_loss_grad",
    ],
)
def test_check(masks: opsmith.Library, op: str) -> None:
    function = getattr(masks, op)
    parameters = inspect.signature(function).parameters

    def inputs(rng: np.random.Generator, size: int) -> dict[str, np.ndarray]:
        made = an_embedding_and_masks(rng, size)
        return {name: made[name] for name in made if name in parameters}

    attrs = {"delta_v": [0.0, 0.3], "delta_d": [1.0], "alpha": [0.5]}
    attrs = {name: values for name, values in attrs.items() if name in parameters}
    report = opsmith.testing.check(function, inputs=inputs, attrs=attrs)
    assert sum(row.cases for row in report.rows) > 100
    print(report)
