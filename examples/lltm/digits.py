"""Handwritten digits as sequences: 8 rows of 8 pixels, from the top.

The data are the test set of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak (UCI
Machine Learning Repository, 1998, https://doi.org/10.24432/C50P49, CC BY 4.0): 1,797 images, in the file that
scikit-learn has of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

PATH = Path(__file__).parent / "data" / "digits.csv.gz"

STEPS, FEATURES, CLASSES = 8, 8, 10
HELD_OUT = 397
STATE = 64
BATCH = 50


@dataclass(frozen=True)
class Digits:
    """Images (n, 8, 8) with pixels from 0 to 1, and which digits they are (n)."""

    images: np.ndarray
    labels: np.ndarray


def read(dtype: str) -> tuple[Digits, Digits]:
    """What is learnt from, and what is held out: the last images."""
    table = np.loadtxt(PATH, delimiter=",")
    images = (table[:, :-1] / 16).reshape(-1, STEPS, FEATURES).astype(dtype)
    labels = table[:, -1].astype(np.int32)
    return Digits(images[:-HELD_OUT], labels[:-HELD_OUT]), Digits(images[-HELD_OUT:], labels[-HELD_OUT:])


def per_epoch(digits: Digits) -> int:
    """How many batches go through all images once."""
    return len(digits.labels) // BATCH


def batches(digits: Digits, steps: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """As many batches, in the same order every time: each epoch goes through all images once."""
    rng = np.random.default_rng(1)
    count = per_epoch(digits)
    for step in range(steps):
        if step % count == 0:
            order = rng.permutation(len(digits.labels))
        chosen = order[step % count * BATCH :][:BATCH]
        yield digits.images[chosen], digits.labels[chosen]


def start(dtype: str) -> list[np.ndarray]:
    """The parameters to begin with: weights and bias of the cell, then of the layer behind it."""
    rng = np.random.default_rng(0)
    shapes = [(3 * STATE, STATE + FEATURES), (3 * STATE,), (CLASSES, STATE), (CLASSES,)]
    return [rng.uniform(-(STATE**-0.5), STATE**-0.5, shape).astype(dtype) for shape in shapes]
