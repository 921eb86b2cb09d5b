"""`torch.vmap` of the standard operators and of their gradients against a loop."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import opsmith
import pytest
import torch
from conftest import count
from table import Op
from test_gradients import DIFFERENTIATED, LARGEST, call, problems, size

SIZE = 3
MOST = 12
"""The cases that are tried of one operator."""


def loop(f: Callable[..., Any], tensors: list[torch.Tensor], dims: tuple[int | None, ...]) -> Any:
    """What `vmap` stands for."""
    elements = [
        [x if dim is None else x.select(dim, index) for x, dim in zip(tensors, dims, strict=True)]
        for index in range(SIZE)
    ]
    answers = [f(*element) for element in elements]
    if isinstance(answers[0], tuple):
        return tuple(torch.stack(column) for column in zip(*answers, strict=True))
    return torch.stack(answers)


@pytest.mark.parametrize("op", DIFFERENTIATED, ids=lambda op: op.name)
def test_batches_are_loops(ops: opsmith.Library, op: Op) -> None:
    rng = np.random.default_rng(zlib.crc32(op.name.encode()))
    small = [problem for problem in problems(op) if size(problem) <= LARGEST]
    for at in rng.permutation(len(small))[:MOST]:
        problem = small[at]
        function = call(getattr(ops, op.name), op, problem, wrap=True)
        dims, tensors = [], []
        sure = rng.integers(len(problem[1]))
        for position, x in enumerate(problem[1]):
            dim = int(rng.integers(x.dim() + 1)) if position == sure or rng.random() < 0.6 else None
            dims.append(dim)
            # Close to what is known to be all right, and not the same.
            batch = [x * (1 + index / 64) for index in range(SIZE)]
            tensors.append(x if dim is None else torch.stack(batch, dim))

        def weighted(*given: torch.Tensor, function: Callable[..., Any] = function) -> torch.Tensor:
            outputs = function(*given)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            return sum((output * output).sum() for output in outputs)

        told = f"{[tuple(x.shape) for x in tensors]} {dims} {problem[2]}"
        slope = torch.func.grad(weighted, argnums=tuple(range(len(tensors))))
        for f in (function, slope):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
                warnings.filterwarnings(
                    "ignore", "(Reshape|BroadcastTo|SumTo|Slice|Pad|Einsum|Conv)", RuntimeWarning
                )
                ours = torch.vmap(f, tuple(dims))(*tensors)
            torch.testing.assert_close(
                ours, loop(f, tensors, tuple(dims)), rtol=1e-10, atol=1e-10, msg=lambda m, t=told: f"{t}: {m}"
            )
        count("a loop, as batches", 2)
