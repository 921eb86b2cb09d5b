"""An LLTM on NumPy's arrays: values, the gradient op, and what is refused."""

from __future__ import annotations

import numpy as np
import opsmith
import opsmith.testing
import pytest
from conftest import library_path
from lltm_reference import RANDOM_STEPS, gradients, losses, mistakes, numbers, sizes, step, upstream
from scipy.special import expit

ORDER = (3, 0, 1, 2, 4)
"""The inputs in the order in which the gradient op gives their gradients."""


@pytest.fixture(scope="module")
def lltm() -> opsmith.Library:
    """The example library."""
    return opsmith.load(library_path("lltm"))


def saved(inputs: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """What the forward op saves for the gradient op, by SciPy."""
    input, weights, bias, old_h, old_cell = inputs
    x = np.concatenate([old_h, input], 1)
    gates = x @ weights.T + bias
    g0, g1, g2 = np.split(gates, 3, 1)
    candidate = np.where(g2 >= 0, g2, np.expm1(np.minimum(g2, 0)))
    return old_cell + candidate * expit(g0), expit(g0), expit(g1), candidate, x, gates


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values(lltm: opsmith.Library, dtype: str) -> None:
    count = 0
    for shape in sizes():
        inputs = numbers(*shape, dtype)
        expected = step(*(x.astype(np.float64) for x in inputs))
        for ours, theirs in zip(lltm.lltm(*inputs), expected, strict=True):
            assert ours.dtype == dtype and ours.shape == theirs.shape
            tolerance = 100 * np.finfo(dtype).eps
            np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
        count += 1
    assert count == RANDOM_STEPS + 5
    print(f"{count} steps in {dtype}")


def test_gradients(lltm: opsmith.Library) -> None:
    count = 0
    for batch, features, size in sizes():
        inputs = numbers(batch, features, size)
        incoming = upstream(batch, size)
        expected = gradients(inputs, incoming)
        found = lltm.lltm_grad(*incoming, *saved(inputs), inputs[1])
        for ours, position in zip(found, ORDER, strict=True):
            assert ours.shape == inputs[position].shape
            np.testing.assert_allclose(ours, expected[position], rtol=1e-11, atol=1e-12)
            count += ours.size
    print(f"{count} derivatives by complex steps")
    assert count > 2000


def test_strides(lltm: opsmith.Library) -> None:
    inputs = numbers(5, 3, 4)
    expected = step(*inputs)
    for layout in [
        np.asfortranarray,
        lambda x: np.repeat(x, 2, -1)[..., ::2],
        lambda x: np.ascontiguousarray(x[::-1])[::-1],
    ]:
        for ours, theirs in zip(lltm.lltm(*map(layout, inputs)), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-13, atol=1e-13)


def test_numbers_that_are_none(lltm: opsmith.Library) -> None:
    """NaN stays in its row; infinite gates are shut or open."""
    input, weights, bias, old_h, old_cell = numbers(4, 3, 5)
    old_h[1, 2] = np.nan
    h, cell = lltm.lltm(input, weights, bias, old_h, old_cell)
    assert np.isnan(h[1]).all() and np.isnan(cell[1]).all()
    rest = [0, 2, 3]
    expected = step(input[rest], weights, bias, old_h[rest], old_cell[rest])
    np.testing.assert_allclose(h[rest], expected[0], rtol=1e-13)
    bias[:5], bias[5:10], bias[10:] = -np.inf, np.inf, 700
    h, cell = lltm.lltm(input, weights, bias, np.nan_to_num(old_h), old_cell)
    np.testing.assert_array_equal(cell, old_cell)
    np.testing.assert_allclose(h, np.tanh(old_cell), rtol=1e-15)


@pytest.mark.parametrize(("inputs", "said"), [pytest.param(*rest, id=case) for case, *rest in mistakes()])
def test_bad_input(lltm: opsmith.Library, inputs: tuple[np.ndarray, ...], said: str) -> None:
    with pytest.raises(opsmith.InvalidArgumentError, match=said):
        lltm.lltm(*inputs)


def test_dtypes_that_do_not_fit(lltm: opsmith.Library) -> None:
    inputs = numbers(4, 2, 3)
    with pytest.raises(
        opsmith.InvalidArgumentError, match="Lltm: inputs `input` and `weights` must have one dtype"
    ):
        lltm.lltm(inputs[0], inputs[1].astype(np.float32), *inputs[2:])
    with pytest.raises(
        opsmith.InvalidArgumentError, match="Lltm: input `input` is int64, but must be one of"
    ):
        lltm.lltm(*(x.astype(np.int64) for x in inputs))


def test_sizes_without_end(lltm: opsmith.Library) -> None:
    """Arrays that claim more elements than there is memory for, and sizes that no number holds."""
    zero = np.zeros((), np.float64)
    batch = 2**44
    tall = np.broadcast_to(zero, (batch, 1))
    with pytest.raises(opsmith.ResourceExhaustedError, match="Lltm"):
        lltm.lltm(tall, np.zeros((3, 2)), np.zeros(3), tall, tall)
    wide = np.zeros((0, 2**59))
    with pytest.raises(opsmith.InvalidArgumentError, match="Lltm"):
        lltm.lltm(wide, np.zeros((3, 2)), np.zeros(3), wide, wide)


def test_the_gradient_refuses_what_does_not_fit(lltm: opsmith.Library) -> None:
    inputs = numbers(4, 2, 3)
    arguments = [*upstream(4, 3), *saved(inputs), inputs[1]]
    arguments[6] = arguments[6][:, :2]
    arguments[8] = arguments[8][:, :2]
    with pytest.raises(opsmith.InvalidArgumentError, match=r"LltmGrad: .*must not be negative"):
        lltm.lltm_grad(*arguments)
    arguments[7] = arguments[7][:, :8]
    with pytest.raises(
        opsmith.InvalidArgumentError, match=r"LltmGrad: dim 1 of input `gate_weights` must be 3 \* s"
    ):
        lltm.lltm_grad(*arguments)


def test_it_passes_every_check(lltm: opsmith.Library) -> None:
    print(opsmith.testing.check(lltm))


def test_the_reference_learns() -> None:
    curve = losses(40)
    assert curve[0] == pytest.approx(np.log(10), abs=0.1)
    assert np.mean(curve[-5:]) < 0.9 * curve[0]
