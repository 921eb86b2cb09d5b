"""Learns to tell cells apart: a small network is trained with the discriminative loss.

Pictures of ellipses are generated from a seed. Each step takes new ones, and the score is of others, never
trained on: the share of the cells' pixels whose nearest mean is that of their own cell. It needs PyTorch,
`opsmith` and the built library: `cargo build --release -p masks`.
"""

from __future__ import annotations

import argparse
import struct
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import opsmith
import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[2]
MOST_CELLS = 12
DIMS = 8
DELTAS = {"delta_v": 0.5, "delta_d": 1.5}
ZOOM = 4


def ellipse(rng: np.random.Generator, size: int) -> np.ndarray:
    """The runs of an ellipse somewhere in a picture: start and end along y for each x."""
    radius, other, angle = rng.uniform(5, 9), rng.uniform(5, 9), rng.uniform(0, np.pi)
    cosine, sine = np.cos(angle), np.sin(angle)
    centre_x, centre_y = rng.uniform(9, size - 9, 2)
    # Of the quadratic form of the ellipse: a x² + 2 b x y + c y² <= 1.
    a = (cosine / radius) ** 2 + (sine / other) ** 2
    b = cosine * sine * (1 / radius**2 - 1 / other**2)
    c = (sine / radius) ** 2 + (cosine / other) ** 2
    x = np.arange(size) - centre_x
    root = np.sqrt(np.maximum((b * x) ** 2 - c * (a * x**2 - 1), 0))
    ends = np.stack([np.ceil(centre_y + (-b * x - root) / c), np.floor(centre_y + (-b * x + root) / c) + 1])
    return (ends * (root > 0)).astype(np.int32).T


def filled(runs: np.ndarray, size: int) -> np.ndarray:
    """Whether each pixel is within the run of its column."""
    places = np.arange(size)
    return (places >= runs[:, :1]) & (places < runs[:, 1:])


def picture(rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
    """A grey picture of cells that do not overlap, with noise, and their masks."""
    image = np.zeros((size, size), np.float32)
    taken, rle_mask, count = np.zeros((size, size), bool), np.zeros((MOST_CELLS, size, 2), np.int32), 0
    for _ in range(4 * MOST_CELLS):
        runs = ellipse(rng, size)
        cell = filled(runs, size)
        if count < MOST_CELLS and not (taken & cell).any():
            # The next cell may touch this one but for a pixel.
            grown = np.pad(cell, 1)
            taken |= cell | grown[2:, 1:-1] | grown[:-2, 1:-1] | grown[1:-1, 2:] | grown[1:-1, :-2]
            image[cell] = rng.uniform(0.5, 1)
            rle_mask[count], count = runs, count + 1
    return image + rng.normal(0, 0.08, image.shape).astype(np.float32), rle_mask


def pictures(rng: np.random.Generator, count: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of pictures and their masks."""
    images, masks = zip(*(picture(rng, size) for _ in range(count)), strict=True)
    return torch.from_numpy(np.stack(images)), torch.from_numpy(np.stack(masks))


class Network(nn.Module):
    """Convolutions that see some 60 pixels around each; the pixel's place is an input too."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
        for dilation in [1, 2, 4, 8, 4, 2, 1]:
            layers += [nn.Conv2d(width, width, 3, padding=dilation, dilation=dilation), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Conv2d(width, DIMS, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Embeddings (batch, x, y, d) of images (batch, x, y)."""
        places = torch.linspace(-1, 1, images.shape[-1])
        x = places[:, None].expand_as(images)
        found: torch.Tensor = self.layers(torch.stack([images, x, places.expand_as(images)], 1))
        return found.permute(0, 2, 3, 1)


def score(library: opsmith.Library, embedding: torch.Tensor, rle_mask: torch.Tensor) -> float:
    """The share of the cells' pixels whose nearest mean is that of their own cell."""
    means = library.masked_averages(embedding, rle_mask)
    right = total = 0
    for places, of_cells, runs in zip(embedding, means, rle_mask.numpy(), strict=True):
        cells = torch.from_numpy(np.stack([filled(run, embedding.shape[1]) for run in runs]))
        present = cells.any(-1).any(-1)
        distances = torch.cdist(places.flatten(0, 1), of_cells[present])
        nearest = distances.argmin(1).reshape(cells.shape[1:])
        own, inside = cells[present].int().argmax(0), cells.any(0)
        right += int((nearest == own)[inside].sum())
        total += int(inside.sum())
    return right / total


@dataclass
class Learned:
    """What came of it."""

    losses: list[float]
    before: float
    after: float
    panels: list[np.ndarray]
    """A picture that was not trained on, and its embedding before and after."""


def learn(
    library: opsmith.Library, steps: int = 200, size: int = 64, batch: int = 4, seed: int = 0
) -> Learned:
    """Train on new pictures in each step; the score is of others."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    unseen, unseen_masks = pictures(np.random.default_rng(seed + 1), 8, size)
    network = Network()
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    with torch.no_grad():
        first = network(unseen)
    losses = []
    for step in range(steps):
        images, rle_mask = pictures(rng, batch, size)
        loss = library.discriminative_loss(network(images), rle_mask, **DELTAS).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % 50 == 0:
            print(f"step {step:4d}  loss {losses[-1]:.4f}", flush=True)
    with torch.no_grad():
        last = network(unseen)
    grey = unseen[0].clamp(0, 1).numpy()[..., None].repeat(3, -1)
    inside = np.any([filled(runs, size) for runs in unseen_masks[0].numpy()], 0)
    panels = [grey, *(coloured(embedding[0].numpy(), inside) for embedding in (first, last))]
    return Learned(losses, score(library, first, unseen_masks), score(library, last, unseen_masks), panels)


def coloured(embedding: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """The three directions in which the embeddings of the cells vary most, as red, green and blue."""
    of_cells = embedding[inside]
    centred = of_cells - of_cells.mean(0)
    directions = np.linalg.svd(centred, full_matrices=False)[2][:3]
    values = centred @ directions.T
    low, high = np.percentile(values, [2, 98], axis=0)
    colours = np.ones((*inside.shape, 3))
    colours[inside] = 0.1 + 0.8 * np.clip((values - low) / (high - low), 0, 1)
    return colours


def save_png(panels: list[np.ndarray], path: Path) -> None:
    """Write pictures of numbers from 0 to 1 side by side."""
    gap = np.ones((panels[0].shape[0], 2, 3))
    row = np.concatenate([part for panel in panels for part in (panel, gap)][:-1], 1)
    pixels = (row.repeat(ZOOM, 0).repeat(ZOOM, 1) * 31).round().astype(np.uint8) * 8
    height, width, _ = pixels.shape
    lines = np.pad(pixels.reshape(height, -1), ((0, 0), (1, 0))).tobytes()

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(lines, 9)), chunk(b"IEND", b"")]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))


def main() -> None:
    """Learn, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", type=Path, default=ROOT / "target" / "release" / "libmasks.so")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--picture", type=Path, help="a PNG to write")
    arguments = parser.parse_args()
    started = time.perf_counter()
    learned = learn(opsmith.load(arguments.library), arguments.steps)
    print(f"loss {np.mean(learned.losses[:10]):.4f} at first, {np.mean(learned.losses[-10:]):.4f} at last")
    print(f"pixels assigned to their cell: {learned.before:.1%} before, {learned.after:.1%} after")
    print(f"{time.perf_counter() - started:.0f} s")
    if arguments.picture:
        save_png(learned.panels, arguments.picture)


if __name__ == "__main__":
    main()
