"""A photograph with dead and hot pixels, and what windows of 3 x 3 make of it: their median, and their mean.

    python noise.py --library PATH [--draw FILE.png]

prints how far each is from the photograph; with `--draw`, the four of them side by side.
"""

from __future__ import annotations

import argparse
import struct
import zlib
from pathlib import Path

import numpy as np
import opsmith
from scipy.ndimage import uniform_filter
from sklearn.datasets import load_sample_image

SIDE = 120
SPOILT = 0.1
GAP = 4


def photograph() -> np.ndarray:
    """A part of a photograph that comes with scikit-learn, in grey."""
    colours = load_sample_image("china.jpg")[150 : 150 + 2 * SIDE, 200 : 200 + 2 * SIDE]
    grey = colours.mean(-1).reshape(SIDE, 2, SIDE, 2).mean((1, 3))
    return grey.round().astype(np.uint8)


def spoil(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Some pixels black, as many white."""
    spoilt = rng.random(image.shape) < SPOILT
    return np.where(spoilt, rng.integers(0, 2, image.shape, np.uint8) * 255, image).astype(np.uint8)


def write_png(path: Path, grey: np.ndarray) -> None:
    """Write a grey image."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = grey.shape
    rows = b"".join(b"\0" + row.tobytes() for row in grey)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + parts)


def main() -> None:
    """Spoil the photograph, mend it in two ways, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True, type=Path)
    parser.add_argument("--draw", type=Path)
    arguments = parser.parse_args()
    pool = opsmith.load(arguments.library)

    image = photograph()
    spoilt = spoil(image, np.random.default_rng(0))
    median = pool.median_pool(spoilt[None, :, :, None], ksize=[3, 3], padding="SAME")[0, :, :, 0]
    mean = uniform_filter(spoilt.astype(float), 3).round().astype(np.uint8)
    for name, other in (("spoilt", spoilt), ("median", median), ("mean", mean)):
        print(f"{name:7} {np.abs(other.astype(float) - image).mean():6.2f}")
    if arguments.draw:
        gap = np.full((SIDE, GAP), 255, np.uint8)
        panels = [image, gap, spoilt, gap, median, gap, mean]
        write_png(arguments.draw, np.repeat(np.repeat(np.hstack(panels), 2, 0), 2, 1))


if __name__ == "__main__":
    main()
