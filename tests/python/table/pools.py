"""Medians of windows in plain NumPy, as the definition says, and the cases that frameworks' tests share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Pool:
    """A call: the images' shape, and the attributes."""

    shape: tuple[int, int, int, int]
    ksize: tuple[int, int]
    strides: tuple[int, int]
    padding: str

    @property
    def attrs(self) -> dict[str, object]:
        """The attributes as keywords."""
        return {"ksize": list(self.ksize), "strides": list(self.strides), "padding": self.padding}


CASES = [
    Pool((2, 9, 11, 3), (3, 3), (1, 1), "SAME"),
    Pool((2, 9, 11, 3), (3, 3), (1, 1), "VALID"),
    Pool((1, 12, 60, 4), (5, 5), (1, 1), "SAME"),
    Pool((1, 8, 8, 1), (2, 2), (2, 2), "VALID"),
    Pool((1, 7, 50, 2), (3, 4), (2, 3), "SAME"),
    Pool((1, 3, 4, 150), (3, 2), (1, 1), "SAME"),
    Pool((2, 30, 28, 1), (23, 25), (3, 1), "SAME"),
    Pool((1, 4, 5, 2), (1, 1), (3, 4), "VALID"),
    Pool((0, 5, 5, 3), (3, 3), (1, 1), "SAME"),
    Pool((2, 5, 5, 0), (3, 3), (1, 1), "VALID"),
]


def random_cases(count: int, seed: int) -> list[Pool]:
    """Calls of random sizes."""
    rng = np.random.default_rng(seed)
    found: list[Pool] = []
    while len(found) < count:
        batch, height, width, channels = (int(n) for n in rng.integers(1, [4, 20, 40, 6]))
        ksize = (int(rng.integers(1, 8)), int(rng.integers(1, 8)))
        strides = (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
        padding = "SAME" if rng.random() < 0.5 else "VALID"
        if padding == "SAME" or (ksize[0] <= height and ksize[1] <= width):
            found.append(Pool((batch, height, width, channels), ksize, strides, padding))
    return found


def images(pool: Pool, dtype: npt.DTypeLike, seed: int = 0, *, distinct: bool = False) -> np.ndarray:
    """Images of small whole numbers, of which many are equal, or none where they are to be distinct."""
    rng = np.random.default_rng([seed, *pool.shape])
    if distinct:
        return rng.permutation(int(np.prod(pool.shape))).reshape(pool.shape).astype(dtype)
    return rng.integers(0, 40, pool.shape).astype(dtype)


def _along(dim: int, size: int, stride: int, padding: str) -> tuple[np.ndarray, np.ndarray]:
    """For each window the places that it has along a dim, and which of them are inside."""
    if padding == "VALID":
        count, before = (dim - size) // stride + 1, 0
    else:
        count = -(-dim // stride)
        before = max((count - 1) * stride + size - dim, 0) // 2
    places = np.arange(count)[:, None] * stride + np.arange(size) - before
    inside = (places >= 0) & (places < dim)
    return np.where(inside, places, 0), inside


def medians(x: np.ndarray, pool: Pool) -> tuple[np.ndarray, np.ndarray]:
    """The medians, and for each the number of the element of `x` that it is."""
    _, height, width, _ = x.shape
    ys, y_inside = _along(height, pool.ksize[0], pool.strides[0], pool.padding)
    xs, x_inside = _along(width, pool.ksize[1], pool.strides[1], pool.padding)
    shape = (x.shape[0], len(ys), len(xs), x.shape[3], pool.ksize[0] * pool.ksize[1])

    def windows(of: np.ndarray) -> np.ndarray:
        return of[:, ys][:, :, :, xs].transpose(0, 1, 3, 5, 2, 4).reshape(shape)

    inside = (y_inside[:, None, :, None] & x_inside[None, :, None, :]).reshape(len(ys), len(xs), 1, -1)
    elements, numbers = windows(x.astype(np.float64)), windows(np.arange(x.size).reshape(x.shape))
    ordered = np.sort(np.where(inside, elements, np.inf), axis=-1)
    middle = np.broadcast_to((inside.sum(-1, keepdims=True) // 2), (*shape[:-1], 1))
    median = np.take_along_axis(ordered, middle, -1)
    nan = np.isnan(elements) & inside
    median = np.where(nan.any(-1, keepdims=True), np.nan, median)
    found = ((elements == median) | nan) & inside
    first = found.argmax(-1)[..., None]
    return median[..., 0].astype(x.dtype), np.take_along_axis(numbers, first, -1)[..., 0]


def gradient(x: np.ndarray, pool: Pool, upstream: np.ndarray) -> np.ndarray:
    """What the gradient of the medians is for the images, in double precision."""
    sums = np.zeros(x.size)
    np.add.at(sums, medians(x, pool)[1].ravel(), upstream.astype(np.float64).ravel())
    return sums.reshape(x.shape)
