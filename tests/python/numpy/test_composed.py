"""Compositions of ops on NumPy's arrays: against the hand-written ops."""

from __future__ import annotations

import numpy as np
import opsmith
import pytest
from conftest import library_path
from lltm_reference import gradients, numbers, sizes, step, upstream


@pytest.fixture(scope="module")
def composed() -> opsmith.Library:
    """The example library."""
    return opsmith.load(library_path("composed"))


def test_the_lltm_of_ops_is_the_hand_written_one(composed: opsmith.Library) -> None:
    lltm = opsmith.load(library_path("lltm"))
    for shape in sizes():
        inputs, incoming = numbers(*shape), upstream(shape[0], shape[2])
        ours = composed.lltm_of_ops(*inputs)
        for left, hand_written, right in zip(ours, lltm.lltm(*inputs), step(*inputs), strict=True):
            np.testing.assert_allclose(left, hand_written, rtol=1e-13, atol=1e-13)
            np.testing.assert_allclose(left, right, rtol=1e-13, atol=1e-13)
        found = composed.lltm_of_ops_grad(*inputs, *incoming)
        for left, right in zip(found, gradients(inputs, incoming), strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-11, atol=1e-12)


def test_the_second_gradient_is_that_of_differences(composed: opsmith.Library) -> None:
    inputs, incoming = numbers(3, 2, 4), upstream(3, 4)
    arriving = numbers(3, 2, 4, seed=1)
    step = 1e-6

    def along(sign: int) -> tuple[np.ndarray, ...]:
        moved = [x + sign * step * v for x, v in zip(inputs, arriving, strict=True)]
        return composed.lltm_of_ops_grad(*moved, *incoming)

    found = composed.lltm_of_ops_grad_grad(*inputs, *incoming, *arriving)
    # The matrix of second derivatives is symmetric, so a product with it is a derivative along `arriving`.
    for left, up, down in zip(found[:5], along(1), along(-1), strict=True):
        np.testing.assert_allclose(left, (up - down) / (2 * step), rtol=1e-6, atol=1e-7)


def test_a_gradient_that_is_a_composition(composed: opsmith.Library) -> None:
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(composed.zero_out_grad(x, x + 5), [[5, 0, 0], [0, 0, 0]])
    gradient = opsmith.grad(lambda x: opsmith.ops.sum(composed.zero_out(x)))(x)
    np.testing.assert_array_equal(gradient, [[1, 0, 0], [0, 0, 0]])
    with pytest.raises(ValueError, match=r"^ZeroOutGrad: Slice: the part"):
        composed.zero_out_grad(np.ones(0), np.ones(0))
