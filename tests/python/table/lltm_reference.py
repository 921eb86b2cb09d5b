"""An LLTM in NumPy, for the tests of all frameworks: values, gradients, random steps, mistakes, a run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

EXAMPLE = Path(__file__).parents[3] / "examples" / "lltm"
sys.path.append(str(EXAMPLE))

NAMES = ("input", "weights", "bias", "old_h", "old_cell")
RANDOM_STEPS = 24

Arrays = tuple[np.ndarray, ...]


def step(*inputs: np.ndarray) -> Arrays:
    """`new_h` and `new_cell`, of real numbers or complex ones."""
    g0, g1, g2 = np.split(_gates(*inputs), 3, 1)
    with np.errstate(over="ignore"):
        candidate = np.where(g2.real >= 0, g2, np.expm1(np.where(g2.real >= 0, 0, g2)))
        new_cell = inputs[4] + candidate / (1 + np.exp(-g0))
        return np.tanh(new_cell) / (1 + np.exp(-g1)), new_cell


def _gates(input: np.ndarray, weights: np.ndarray, bias: np.ndarray, old_h: np.ndarray, _: Any) -> np.ndarray:
    return np.concatenate([old_h, input], 1) @ weights.T + bias


def gradients(inputs: Arrays, upstream: Arrays) -> Arrays:
    """The gradient of Σ output · upstream with respect to each input, by complex steps: no formula of a
    derivative, and no loss of digits."""
    found = []
    for position, array in enumerate(inputs):
        gradient = np.empty(array.shape)
        for place in np.ndindex(array.shape):
            moved = array.astype(complex)
            moved[place] += 1e-40j
            outputs = step(*inputs[:position], moved, *inputs[position + 1 :])
            gradient[place] = sum((o * u).sum().imag for o, u in zip(outputs, upstream, strict=True)) / 1e-40
        found.append(gradient)
    return tuple(found)


def numbers(batch: int, features: int, size: int, dtype: str = "float64", seed: int = 0) -> Arrays:
    """The inputs of a step."""
    rng = np.random.default_rng([seed, batch, features, size])
    shapes = [(batch, features), (3 * size, size + features), (3 * size,), (batch, size), (batch, size)]
    return tuple(rng.normal(size=shape).astype(dtype) for shape in shapes)


def upstream(batch: int, size: int, dtype: str = "float64") -> Arrays:
    """Gradients that arrive for the two outputs."""
    rng = np.random.default_rng([99, batch, size])
    return tuple(rng.normal(size=(batch, size)).astype(dtype) for _ in range(2))


def sizes() -> Iterator[tuple[int, int, int]]:
    """Batch, features and size of the state of `RANDOM_STEPS` random steps, and of some that are empty."""
    rng = np.random.default_rng(3)
    for _ in range(RANDOM_STEPS):
        batch, features, size = (int(n) for n in rng.integers(1, [6, 7, 8]))
        yield batch, features, size
    yield from [(0, 3, 4), (3, 0, 4), (3, 2, 0), (3, 0, 0), (0, 0, 0)]


def mistakes() -> Iterator[tuple[str, Arrays, str]]:
    """Calls that every framework must refuse: what is wrong, the inputs, and what is said of it."""
    good = dict(zip(NAMES, numbers(4, 2, 3), strict=True))
    wrong: list[tuple[str, str, tuple[int, ...], str]] = [
        ("too few rows of weights", "weights", (8, 5), r"dim 0 of input `weights` must be 3 \* s"),
        ("too many columns of weights", "weights", (9, 6), r"dim 1 of input `weights` must be s \+ f"),
        ("a short bias", "bias", (3,), r"dim 0 of input `bias` must be 3 \* s"),
        ("a bias with two dims", "bias", (9, 1), r"input `bias` must have rank 1"),
        (
            "an h of another batch",
            "old_h",
            (5, 3),
            "dim 0 of input `old_h` must equal dim 0 of input `input`",
        ),
        (
            "a cell of another size",
            "old_cell",
            (4, 2),
            "dim 1 of input `old_cell` must equal dim 1 of input `old_h`",
        ),
        ("a cell that would broadcast", "old_cell", (1, 3), "dim 0 of input `old_cell` must equal"),
        ("an input with three dims", "input", (4, 2, 1), "input `input` must have rank 2"),
    ]
    for case, name, shape, said in wrong:
        yield case, tuple({**good, name: np.zeros(shape)}.values()), f"(Lltm|lltm::lltm): .*{said}"


def losses(steps: int) -> list[float]:
    """The loss of each step of `examples/lltm/train.py` in float64, by hand."""
    import digits
    from train import LEARNING_RATE, MOMENTUM

    learnt, _ = digits.read("float64")
    parameters = digits.start("float64")
    velocities = [np.zeros_like(parameter) for parameter in parameters]
    found = []
    for images, labels in digits.batches(learnt, steps):
        loss, slopes = _loss(parameters, images, labels)
        found.append(loss)
        for parameter, velocity, slope in zip(parameters, velocities, slopes, strict=True):
            velocity *= MOMENTUM
            velocity += slope
            parameter -= LEARNING_RATE * velocity
    return found


def _loss(
    parameters: list[np.ndarray], images: np.ndarray, labels: np.ndarray
) -> tuple[float, list[np.ndarray]]:
    weights, bias, output_weights, output_bias = parameters
    size, rows = len(bias) // 3, range(len(labels))
    h = cell = np.zeros((len(labels), size))
    tape = []
    for row in images.transpose(1, 0, 2):
        x = np.concatenate([h, row], 1)
        g0, g1, g2 = np.split(x @ weights.T + bias, 3, 1)
        i, o = 1 / (1 + np.exp(-g0)), 1 / (1 + np.exp(-g1))
        candidate = np.where(g2 >= 0, g2, np.expm1(g2))
        cell = cell + candidate * i
        h = np.tanh(cell) * o
        tape.append((x, i, o, candidate, g2, cell))
    logits = h @ output_weights.T + output_bias
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    loss = -np.log(shares[rows, labels]).mean()
    shares[rows, labels] -= 1
    shares /= len(labels)
    slopes = [np.zeros_like(weights), np.zeros_like(bias), shares.T @ h, shares.sum(0)]
    of_h, of_cell = shares @ output_weights, np.zeros_like(cell)
    for x, i, o, candidate, g2, cell in reversed(tape):
        tanh = np.tanh(cell)
        of_cell = of_cell + of_h * o * (1 - tanh**2)
        parts = [
            of_cell * candidate * i * (1 - i),
            of_h * tanh * o * (1 - o),
            of_cell * i * np.where(g2 >= 0, 1, np.exp(g2)),
        ]
        of_gates = np.concatenate(parts, 1)
        slopes[0] += of_gates.T @ x
        slopes[1] += of_gates.sum(0)
        of_h = (of_gates @ weights)[:, :size]
    return float(loss), slopes
