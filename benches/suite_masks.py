"""Masks on embeddings, float32: a batch of 4, 512 x 512 places of 16 numbers, 64 elliptic cells.

- *Averages*: the peers use dense masks, prepared before the clock starts and already divided by their
  numbers of places.
- *The loss of each place* (`average_embedding_mask`): the peers are plain PyTorch with `index_select` and
  `index_add`, eager and compiled by `torch.compile` for these very shapes. The places in masks and the
  mask of each are prepared before the clock starts.
- *The discriminative loss*, forward and backward: the same peers, and products with dense masks.

Memory is the peak beyond the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from harness import OURS, Case, Options, Target

if TYPE_CHECKING:
    import numpy as np
    import torch

TITLE = "Masks on embeddings"

BATCH, SIZE, DIMS, GRID = 4, 512, 16, 8
MASKS = GRID * GRID
DELTA_V, DELTA_D, GAMMA = 0.5, 1.5, 0.001
MEMORY_SLACK = 1.1
"""Pages, and what the allocator keeps, over the gradient's own 64 MiB, or the 5 MiB of each place's loss and
the runs, which are sorted by columns."""
OUTPUT = "the output and the runs alone"


def cells() -> np.ndarray:
    """The runs of ellipses on a grid, which cover two thirds of the places."""
    import numpy as np

    pitch = SIZE // GRID
    rng = np.random.default_rng(0)
    rle_mask = np.zeros((BATCH, MASKS, SIZE, 2), np.int32)
    for masks in rle_mask:
        for mask, runs in enumerate(masks):
            centre_x, centre_y = (np.array(divmod(mask, GRID)) + 0.5) * pitch
            radius_x, radius_y = rng.uniform(0.42, 0.5, 2) * pitch
            inside = np.clip(1 - ((np.arange(SIZE) - centre_x) / radius_x) ** 2, 0, None)
            half = radius_y * np.sqrt(inside)
            runs[:] = np.stack([np.ceil(centre_y - half), np.floor(centre_y + half)], -1)
    return rle_mask


def hinges(distances: torch.Tensor, limit: float) -> torch.Tensor:
    """The squares of what distances have beyond a limit."""
    return (distances - limit).clamp(min=0) ** 2


def of_means(means: torch.Tensor) -> torch.Tensor:
    """The terms of the loss that only the means decide; every mask has places here."""
    import torch

    count = means.shape[1]
    squares = ((means[:, :, None] - means[:, None]) ** 2).sum(-1)
    eye = torch.eye(count)
    distances = (squares + eye).sqrt()
    pushes = ((2 * DELTA_D - distances).clamp(min=0) ** 2 * (1 - eye)).sum((1, 2))
    return pushes / (count * (count - 1)) + GAMMA * torch.linalg.vector_norm(means, dim=-1).mean(1)


def by_index(
    embedding: torch.Tensor, places: torch.Tensor, owners: torch.Tensor, counts: torch.Tensor
) -> torch.Tensor:
    """The loss with the places in masks and the mask of each, numbered through the batch."""
    flat = embedding.reshape(-1, DIMS).index_select(0, places)
    sums = flat.new_zeros(BATCH * MASKS, DIMS).index_add(0, owners, flat)
    means = sums / counts[:, None]
    difference = flat - means.index_select(0, owners)
    distances = (difference * difference).sum(-1).sqrt()
    pulls = flat.new_zeros(BATCH * MASKS).index_add(0, owners, hinges(distances, DELTA_V))
    variance = (pulls / counts).reshape(BATCH, MASKS).mean(1)
    return variance + of_means(means.reshape(BATCH, MASKS, DIMS))


def by_products(embedding: torch.Tensor, inside: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """The loss with products of dense masks: batch, mask, place."""
    import torch

    flat = embedding.reshape(BATCH, -1, DIMS)
    means = torch.bmm(inside, flat) / counts.reshape(BATCH, MASKS, 1)
    own = torch.bmm(inside.transpose(1, 2), means)
    difference = flat - own
    distances = (difference * difference).sum(-1).sqrt()
    pulls = torch.bmm(inside, hinges(distances, DELTA_V)[..., None])[..., 0]
    return (pulls / counts.reshape(BATCH, MASKS)).mean(1) + of_means(means)


def cases(options: Options) -> Iterator[Case]:
    """Averages, the loss with its gradient, and memory."""
    import opsmith
    import torch

    torch.manual_seed(0)
    library = opsmith.load(options.library("masks"))
    runs = torch.from_numpy(cells())
    embedding = torch.randn(BATCH, SIZE, SIZE, DIMS)
    places = torch.arange(SIZE)
    inside = ((places >= runs[..., :1]) & (places < runs[..., 1:])).float()
    counts = inside.sum((2, 3))
    yield from averages(library, embedding, runs, inside / counts[:, :, None, None])
    label = inside.argmax(1) + torch.arange(BATCH)[:, None, None] * MASKS
    places = inside.any(1).flatten().nonzero()[:, 0]
    owners = label.flatten().index_select(0, places)
    yield from of_places(library, embedding, runs, places, owners, counts.flatten())
    yield from losses(library, embedding, runs, inside, places, owners, counts)


def averages(
    library: Any, embedding: torch.Tensor, runs: torch.Tensor, weights: torch.Tensor
) -> Iterator[Case]:
    """Masked averages, their time and memory."""
    import torch

    def dense() -> torch.Tensor:
        return torch.einsum("bmxy,bxyd->bmd", weights, embedding)

    matrices = weights.reshape(BATCH, MASKS, -1), embedding.reshape(BATCH, -1, DIMS)
    torch.testing.assert_close(library.masked_averages(embedding, runs), dense(), rtol=1e-4, atol=1e-5)
    contenders: dict[str, Callable[[], object]] = {
        OURS: lambda: library.masked_averages(embedding, runs),
        "einsum": dense,
        "bmm": lambda: torch.bmm(*matrices),
    }
    yield Case("masked averages", contenders, [Target(0.3, ("einsum", "bmm"))])
    contenders = {
        OURS: lambda: library.masked_averages(embedding, runs),
        "the runs alone": lambda: runs.clone(),
        "einsum": dense,
    }
    yield Case("masked averages, peak extra memory", contenders, memory=True)


def of_places(
    library: Any,
    embedding: torch.Tensor,
    runs: torch.Tensor,
    places: torch.Tensor,
    owners: torch.Tensor,
    counts: torch.Tensor,
) -> Iterator[Case]:
    """Half the square of what is between each place and the average of its mask, time and memory."""
    import torch

    def by_index() -> torch.Tensor:
        flat = embedding.reshape(-1, DIMS).index_select(0, places)
        means = flat.new_zeros(BATCH * MASKS, DIMS).index_add(0, owners, flat) / counts[:, None]
        halves = (flat - means.index_select(0, owners)).square().sum(-1) / 2
        return flat.new_zeros(embedding.shape[:3].numel()).index_copy(0, places, halves)

    compiled = torch.compile(by_index, dynamic=False)

    def ours() -> torch.Tensor:
        loss: torch.Tensor = library.average_embedding_mask(embedding, runs)
        return loss

    for function in (by_index, compiled):
        torch.testing.assert_close(ours().flatten(), function(), rtol=1e-4, atol=1e-5)
    contenders: dict[str, Callable[[], object]] = {
        OURS: ours,
        "index_add": by_index,
        "torch.compile": compiled,
    }
    yield Case("average embedding mask", contenders, [Target(0.3, ("index_add", "torch.compile"))])
    contenders = {
        OURS: ours,
        OUTPUT: lambda: (embedding.new_ones(embedding.shape[:3]), runs.clone()),
        "index_add": by_index,
    }
    targets = [Target(MEMORY_SLACK, (OUTPUT,))]
    yield Case("average embedding mask, peak extra memory", contenders, targets, memory=True)


def losses(
    library: Any,
    embedding: torch.Tensor,
    runs: torch.Tensor,
    inside: torch.Tensor,
    places: torch.Tensor,
    owners: torch.Tensor,
    counts: torch.Tensor,
) -> Iterator[Case]:
    """The discriminative loss with its gradient, time and memory."""
    import torch

    matrices = inside.reshape(BATCH, MASKS, -1)
    flat_counts = counts.flatten()
    compiled = torch.compile(by_index, dynamic=False)
    embedding.requires_grad_()
    functions: dict[str, Callable[[], torch.Tensor]] = {
        OURS: lambda: library.discriminative_loss(embedding, runs, delta_v=DELTA_V, delta_d=DELTA_D),
        "index_add": lambda: by_index(embedding, places, owners, flat_counts),
        "torch.compile": lambda: compiled(embedding, places, owners, flat_counts),
        "bmm": lambda: by_products(embedding, matrices, flat_counts),
    }

    def both(function: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        return lambda: torch.autograd.grad(function().sum(), embedding)[0]

    for function in functions.values():
        torch.testing.assert_close(function(), functions[OURS](), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(both(function)(), both(functions[OURS])(), rtol=1e-3, atol=1e-8)
    contenders: dict[str, Callable[[], object]] = {name: both(f) for name, f in functions.items()}
    peers = tuple(name for name in functions if name != OURS)
    yield Case("discriminative loss with gradient", contenders, [Target(0.3, peers)])
    contenders = {
        OURS: both(functions[OURS]),
        "the gradient alone": lambda: torch.ones_like(embedding),
        "index_add": both(functions["index_add"]),
        "torch.compile": both(functions["torch.compile"]),
    }
    targets = [Target(MEMORY_SLACK, ("the gradient alone",))]
    yield Case("discriminative loss with gradient, peak extra memory", contenders, targets, memory=True)
