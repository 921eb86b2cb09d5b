"""Random bodies over named axes against PyTorch: values, gradients, and gradients of these."""

from __future__ import annotations

from typing import Any

import axes_bodies
import numpy as np
import opsmith
import pytest
import torch

BODIES = axes_bodies.bodies()


@pytest.fixture(scope="module")
def library() -> opsmith.Library:
    """All random bodies."""
    return axes_bodies.build()


def outputs(result: Any) -> list[torch.Tensor]:
    """One or several."""
    return list(result) if isinstance(result, tuple) else [result]


def close(actual: torch.Tensor | None, expected: torch.Tensor | None) -> None:
    """Equal but for rounding; what does not depend on an input has no gradient, or a zero one."""
    if expected is None or actual is None:
        given = actual if actual is not None else expected
        assert given is None or not given.any()
        return
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.name)
def test_a_body_is_pytorchs(body: axes_bodies.Body, library: opsmith.Library) -> None:
    """Of both orders, at sizes that fill a block and at sizes that do not."""
    op = getattr(library, body.name)
    for seed, sizes in enumerate([axes_bodies.SIZES, {"i": 3, "j": 131, "k": 2, "l": 3}]):
        arrays = axes_bodies.Torch(sizes, torch)
        inputs = [torch.from_numpy(array).requires_grad_() for array in body.numbers(sizes, seed)]
        actual = outputs(op(*inputs))
        expected = body.expected(arrays, inputs)
        generator = np.random.default_rng(seed)
        given = [torch.from_numpy(np.asarray(generator.uniform(-1, 1, tuple(z.shape)))) for z in expected]
        gradients = []
        for results in (actual, expected):
            own = [z if z.requires_grad else z + 0 * inputs[0].sum() for z in results]
            gradients.append(torch.autograd.grad(own, inputs, given, create_graph=True, allow_unused=True))
        for one, other in zip([*actual, *gradients[0]], [*expected, *gradients[1]], strict=True):
            close(one, other)
        if seed:
            continue
        second = []
        for own in gradients:
            terms = [(g * (1 + torch.arange(g.numel()).reshape(g.shape))).sum() for g in own if g is not None]
            whole = sum(terms, 0 * sum((x * x).sum() for x in inputs))
            second.append(torch.autograd.grad(whole, inputs, allow_unused=True))
        for one, other in zip(*second, strict=True):
            close(one, other)
