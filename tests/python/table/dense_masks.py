"""The masks' ops with dense masks, in plain array code of any framework, and random cases for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

DELTAS = {"delta_v": 0.4, "delta_d": 0.9}


@dataclass(frozen=True)
class Case:
    """An embedding with run-length-encoded masks on it."""

    embedding: np.ndarray
    rle_mask: np.ndarray

    @property
    def inside(self) -> np.ndarray:
        """Whether a place is in a mask: batch, mask, x, y."""
        places = np.arange(self.embedding.shape[2])
        return (places >= self.rle_mask[..., :1]) & (places < self.rle_mask[..., 1:])


def random_masks(rng: np.random.Generator, batch: int, masks: int, x: int, y: int) -> np.ndarray:
    """Runs that overlap, half of them empty; now and then a mask is empty altogether."""
    rle_mask = rng.integers(0, y + 1, (batch, masks, x, 2))
    return rle_mask * (rng.random((batch, masks, 1, 1)) < 0.8)


def random_cases(count: int, dtype: Any = np.float64, seed: int = 0, most: int = 40) -> Iterator[Case]:
    """Cases of all kinds of sizes: vectors of 1 to 40 numbers, columns of less than a block and more."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        batch, masks, x = rng.integers(1, 4), rng.integers(1, 6), rng.integers(1, 8)
        y = rng.integers(1, 8) if number % 3 else rng.integers(60, 140)
        d = (1 + number % 8) if number % 2 else rng.integers(1, most)
        embedding = rng.standard_normal((batch, x, y, d)).astype(dtype)
        places = np.int32 if number % 4 < 2 else np.int64
        yield Case(embedding, random_masks(rng, batch, masks, x, y).astype(places))


class Dense:
    """The ops on dense masks. `xp` is the framework's namespace, `to_host` makes its arrays of NumPy's."""

    def __init__(self, case: Case, xp: Any = np, to_host: Callable[[np.ndarray], Any] = lambda x: x) -> None:
        inside = case.inside.astype(case.embedding.dtype)
        counts = inside.sum((2, 3))
        present = np.asarray(counts > 0, inside.dtype)
        pairs = present[:, :, None] * present[:, None] * (1 - np.eye(present.shape[1], dtype=inside.dtype))
        number = np.maximum(present.sum(1), 1)
        self.xp, self.inside, self.pairs = xp, to_host(inside), to_host(pairs)
        self.counts = to_host(np.maximum(counts, 1))
        self.number, self.number_of_pairs = to_host(number), to_host(np.maximum(number * (number - 1), 1))

    def masked_averages(self, embedding: Any) -> Any:
        """The mean over each mask."""
        return self.xp.einsum("bmxy,bxyd->bmd", self.inside, embedding) / self.counts[:, :, None]

    def squares(self, embedding: Any) -> Any:
        """Squared distances of all places from all means: batch, mask, x, y."""
        means = self.masked_averages(embedding)
        return self.xp.sum((embedding[:, None] - means[:, :, None, None]) ** 2, -1)

    def average_embedding_mask(self, embedding: Any) -> Any:
        """Half the squared distances from the means of the masks that a place is in."""
        return self.xp.sum(0.5 * self.squares(embedding) * self.inside, 1)

    def discriminative_loss(
        self,
        embedding: Any,
        delta_v: float,
        delta_d: float,
        alpha: float = 1,
        beta: float = 1,
        gamma: float = 0.001,
    ) -> Any:
        """The loss of each element of the batch."""
        total, means = self.xp.sum, self.masked_averages(embedding)
        hinges = self.positive(self.norm(self.squares(embedding)) - delta_v) ** 2 * self.inside
        variance = total(total(hinges, (2, 3)) / self.counts, 1) / self.number
        distances = self.norm(total((means[:, :, None] - means[:, None]) ** 2, -1))
        pushes = self.positive(2 * delta_d - distances) ** 2 * self.pairs
        distance = total(pushes, (1, 2)) / self.number_of_pairs
        regularisation = total(self.norm(total(means**2, -1)), 1) / self.number
        return alpha * variance + beta * distance + gamma * regularisation

    def positive(self, x: Any) -> Any:
        """The larger of a number and 0."""
        return self.xp.where(x > 0, x, self.xp.zeros_like(x))

    def norm(self, squares: Any) -> Any:
        """Square roots, whose derivative at 0 is 0."""
        positive, one = squares > 0, self.xp.ones_like(squares)
        roots = self.xp.sqrt(self.xp.where(positive, squares, one))
        return self.xp.where(positive, roots, self.xp.zeros_like(squares))


OPS: dict[str, dict[str, float]] = {
    "masked_averages": {},
    "average_embedding_mask": {},
    "discriminative_loss": {**DELTAS, "alpha": 0.7, "beta": 1.3, "gamma": 0.1},
}
"""The ops and the attributes that they are tested with."""


def tolerance(op: str, dtype: Any) -> dict[str, float]:
    """How far from the exact result an op may be: the loss of places is float32 whatever the embedding."""
    exact = op != "average_embedding_mask" and dtype == np.float64
    # Attributes are float32 in TensorFlow.
    return {"rtol": 2e-7, "atol": 1e-8} if exact else {"rtol": 2e-5, "atol": 2e-5}


def bad_calls() -> Iterator[tuple[str, np.ndarray, np.ndarray, str]]:
    """Calls that are wrong: what is wrong, the embedding, the masks, and what the message says."""
    embedding = np.ones((2, 3, 5, 4), np.float32)
    good = np.zeros((2, 2, 3, 2), np.int32)
    for start, end in [(2, 6), (-1, 2), (9, 0)]:
        rle_mask = good.copy()
        rle_mask[1, 0, 2] = start, end
        yield f"run {start} to {end}", embedding, rle_mask, "batch 1, mask 0, x 2"
    yield "rank of the embedding", embedding[0], good, "rank 4"
    yield "rank of the masks", embedding, good[0], "rank 4"
    yield "last dim", embedding, np.zeros((2, 2, 3, 3), np.int32), "2"
    yield "batch", embedding, np.zeros((3, 2, 3, 2), np.int32), "batch"
    yield "columns", embedding, np.zeros((2, 2, 4, 2), np.int32), "x"
