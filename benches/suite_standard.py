"""Standard operators whose time no other suite has: float32, small, as long as a row, and large.

Large ones are measured with fresh outputs and with memory that is there. On PyTorch's tensors the peers are
PyTorch's own functions. On NumPy's arrays they are NumPy's, where it has such: sorting returns
values and positions, in stable order, as ours does. Random numbers are ours from a counter, and theirs
from generators: other numbers of the same distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from harness import OURS, Case, Options, Target

if TYPE_CHECKING:
    import torch

TITLE = "Standard operators"

SIZES = (64, 4096, 1 << 20)
LARGE = 1 << 20
PYTORCH, NUMPY = "PyTorch", "NumPy"
ARRAYS = " of arrays"

Calls = dict[str, Callable[[], object]]


def cases(options: Options) -> Iterator[Case]:
    """Each operator at each size."""
    import opsmith
    import torch

    torch.manual_seed(0)
    ops = opsmith.load(options.library("opsmith_ops"))
    for size in SIZES:
        suites = (random, along, positions, windows)
        for name, calls in (case for suite in suites for case in suite(ops, size)):
            peers = tuple(peer for peer in calls if peer != OURS)
            yield Case(f"{name}, {size}", calls, [Target(1.0, peers)], twice=size == LARGE)


def random(ops: Any, size: int) -> Iterator[tuple[str, Calls]]:
    """Random numbers, and what they leave of a tensor."""
    import numpy as np
    import torch

    generator, x = np.random.default_rng(0), torch.randn(size)
    shape, seed, offset = torch.tensor([size]), torch.tensor(1), torch.tensor(0)
    yield (
        "random_uniform",
        {OURS: lambda: ops.random_uniform(shape, seed, offset), PYTORCH: lambda: torch.rand(size)},
    )
    yield (
        f"random_uniform{ARRAYS}",
        {
            OURS: lambda: ops.random_uniform([size], 1, 0),
            NUMPY: lambda: generator.random(size, np.float32),
        },
    )
    yield (
        "random_normal",
        {OURS: lambda: ops.random_normal(shape, seed, offset), PYTORCH: lambda: torch.randn(size)},
    )
    yield (
        f"random_normal{ARRAYS}",
        {
            OURS: lambda: ops.random_normal([size], 1, 0),
            NUMPY: lambda: generator.standard_normal(size, np.float32),
        },
    )
    yield (
        "dropout",
        {OURS: lambda: ops.dropout(x, seed, offset, p=0.1), PYTORCH: lambda: torch.dropout(x, 0.1, True)},
    )


def along(ops: Any, size: int) -> Iterator[tuple[str, Calls]]:
    """Rows of 64, or fewer: sums up to each number, order, the largest."""
    import numpy as np
    import torch

    x = torch.randn(-(-size // 64), 64)
    array = x.numpy()
    same(ops.cum_sum(x), x.cumsum(-1))
    yield "cum_sum, rows of 64", {OURS: lambda: ops.cum_sum(x), PYTORCH: lambda: x.cumsum(-1)}
    same(torch.from_numpy(ops.cum_sum(array)), x.cumsum(-1))
    yield (
        f"cum_sum, rows of 64{ARRAYS}",
        {OURS: lambda: ops.cum_sum(array), NUMPY: lambda: array.cumsum(-1)},
    )
    same(ops.sort(x)[0], x.sort().values)
    yield "sort, rows of 64", {OURS: lambda: ops.sort(x), PYTORCH: lambda: x.sort(stable=True)}
    same(torch.from_numpy(ops.sort(array)[1]), torch.from_numpy(np.argsort(array, kind="stable")))
    yield (
        f"sort, rows of 64{ARRAYS}",
        {
            OURS: lambda: ops.sort(array),
            NUMPY: lambda: (np.sort(array), np.argsort(array, kind="stable")),
        },
    )
    same(ops.top_k(x, k=8)[0], x.topk(8).values)
    yield "top_k, 8 of 64", {OURS: lambda: ops.top_k(x, k=8), PYTORCH: lambda: x.topk(8)}
    same(ops.arg_max(x, axes=[-1]), x.argmax(-1))
    yield (
        "arg_max, rows of 64",
        {OURS: lambda: ops.arg_max(x, axes=[-1]), PYTORCH: lambda: x.argmax(-1)},
    )
    same(torch.from_numpy(ops.arg_max(array, axes=[-1])), x.argmax(-1))
    yield (
        f"arg_max, rows of 64{ARRAYS}",
        {OURS: lambda: ops.arg_max(array, axes=[-1]), NUMPY: lambda: array.argmax(-1)},
    )
    same(ops.arg_max(x), x.argmax())
    yield "arg_max, all", {OURS: lambda: ops.arg_max(x), PYTORCH: lambda: x.argmax()}
    yield f"arg_max, all{ARRAYS}", {OURS: lambda: ops.arg_max(array), NUMPY: lambda: array.argmax()}
    same(ops.concat([x, x], axis=0), torch.cat([x, x]))
    yield (
        "concat, two halves",
        {OURS: lambda: ops.concat([x, x], axis=0), PYTORCH: lambda: torch.cat([x, x])},
    )
    same(torch.from_numpy(ops.concat([array, array], axis=0)), torch.cat([x, x]))
    yield (
        f"concat, two halves{ARRAYS}",
        {
            OURS: lambda: ops.concat([array, array], axis=0),
            NUMPY: lambda: np.concatenate([array, array]),
        },
    )


def positions(ops: Any, size: int) -> Iterator[tuple[str, Calls]]:
    """Rows of 64 from positions, and ones there."""
    import torch

    rows = max(1, size // 64)
    x, indices = torch.randn(1000, 64), torch.randint(1000, (rows,))
    array, places = x.numpy(), indices.numpy()
    same(ops.gather(x, indices), x[indices])
    yield (
        "gather, rows of 64",
        {
            OURS: lambda: ops.gather(x, indices),
            PYTORCH: lambda: torch.nn.functional.embedding(indices, x),
        },
    )
    same(torch.from_numpy(ops.gather(array, places)), x[indices])
    yield (
        f"gather, rows of 64{ARRAYS}",
        {OURS: lambda: ops.gather(array, places), NUMPY: lambda: array.take(places, 0)},
    )
    classes = indices % 64
    one_hot = torch.nn.functional.one_hot
    same(ops.one_hot(classes, depth=64, dtype="int64"), one_hot(classes, 64))
    yield (
        "one_hot, depth 64",
        {
            OURS: lambda: ops.one_hot(classes, depth=64, dtype="int64"),
            PYTORCH: lambda: one_hot(classes, 64),
        },
    )


def windows(ops: Any, size: int) -> Iterator[tuple[str, Calls]]:
    """Images of 8 channels, and products along named dims."""
    import torch
    from torch.nn import functional

    side = round((size / 8) ** 0.5)
    image, filters = torch.randn(1, 8, side, side), torch.randn(8, 8, 3, 3)
    same(ops.conv(image, filters, strides=[1, 1]), functional.conv2d(image, filters))
    if side >= 3:
        yield (
            "conv, 8 channels, 3 x 3",
            {
                OURS: lambda: ops.conv(image, filters, strides=[1, 1]),
                PYTORCH: lambda: functional.conv2d(image, filters),
            },
        )
        same(ops.max_pool(image, ksize=[2, 2], strides=[2, 2]), functional.max_pool2d(image, 2))
        yield (
            "max_pool, 2 x 2",
            {
                OURS: lambda: ops.max_pool(image, ksize=[2, 2], strides=[2, 2]),
                PYTORCH: lambda: functional.max_pool2d(image, 2),
            },
        )
    batch = max(1, size // 256)
    a, b = torch.randn(batch, 16, 16), torch.randn(batch, 16, 16)
    same(ops.einsum([a, b], equation="bij,bjk->bik"), a @ b)
    yield (
        "einsum, 16 x 16 x 16",
        {
            OURS: lambda: ops.einsum([a, b], equation="bij,bjk->bik"),
            PYTORCH: lambda: torch.einsum("bij,bjk->bik", a, b),
        },
    )


def same(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Both have to be the same work."""
    import torch

    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4, check_dtype=False)
