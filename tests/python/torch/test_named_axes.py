"""Random bodies over named axes against PyTorch: values, gradients, and gradients of these."""

from __future__ import annotations

from collections.abc import Callable
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


def same(
    actual: Callable[..., torch.Tensor], expected: Callable[..., torch.Tensor], *inputs: torch.Tensor
) -> None:
    """Values, first and second gradients."""
    found = []
    for function in (actual, expected):
        own = [x.detach().clone().requires_grad_() for x in inputs]
        z = function(*own)
        weights = torch.sin(torch.arange(z.numel(), dtype=z.dtype)).reshape(z.shape)
        first = torch.autograd.grad(z, own, weights, create_graph=True)
        # A gradient may depend on nothing.
        whole = sum((g * g).sum() for g in first) + 0 * sum((x * x).sum() for x in own)
        second = torch.autograd.grad(whole, own)
        found.append([z, *first, *second])
    for one, other in zip(*found, strict=True):
        close(one, other)


def draw(*shape: int) -> torch.Tensor:
    """Numbers around 0."""
    return torch.randn(*shape, dtype=torch.float64)


def test_what_people_write(library: opsmith.Library) -> None:
    """With a batch, of sizes that are the same along some dims of it for some inputs."""
    functional = torch.nn.functional
    x, y, b = draw(2, 1, 9, 4), draw(3, 150, 4), draw(150, 5)
    same(
        library.cosine_distance,
        lambda x, y: 1 - functional.cosine_similarity(x[..., :, None, :], y[..., None, :, :], dim=-1),
        x,
        y,
    )
    same(
        lambda x, y: library.radial_basis(x, y, gamma=0.3),
        lambda x, y: torch.exp(-0.3 * ((x[..., :, None, :] - y[..., None, :, :]) ** 2).sum(-1)),
        x,
        y,
    )
    same(library.log_sum_exp, lambda x: torch.logsumexp(x, -1), draw(3, 200))
    for causal in (True, False):
        same(
            lambda q, k, v, causal=causal: library.attention(q, k, v, causal=causal),
            lambda q, k, v, causal=causal: functional.scaled_dot_product_attention(q, k, v, is_causal=causal),
            draw(2, 3, 7, 4),
            draw(2, 3, 7, 4),
            draw(2, 3, 7, 5),
        )
    same(
        lambda q, k, v: library.attention(q, k, v, causal=False),
        lambda q, k, v: functional.scaled_dot_product_attention(
            q, k.expand(2, 3, 150, 4), v.expand(2, 3, 150, 5)
        ),
        x.expand(2, 3, 9, 4),
        y,
        b,
    )


def test_positions(library: opsmith.Library) -> None:
    """The first of equals, and NaN before all."""
    x, y = draw(60, 3), draw(400, 3)
    assert library.nearest(x, y).dtype == torch.int64
    assert torch.equal(library.nearest(x, y), torch.cdist(x, y).argmin(1))
    ties = torch.tensor([[1.0, 5.0, 5.0, 2.0], [3.0, 3.0, 3.0, 3.0], [1.0, torch.nan, 9.0, torch.nan]])
    assert library.argmax(ties).tolist() == [1, 0, 1]
    infinite = torch.full((2, 300), -torch.inf)
    infinite[1, 280] = torch.inf
    assert library.argmax(infinite).tolist() == [0, 280]
    with pytest.raises(RuntimeError, match="the axis `j` is empty"):
        library.argmax(torch.zeros(3, 0))
    assert library.argmax(torch.zeros(0, 0)).shape == (0,)


def test_positions_and_masks_are_read(library: opsmith.Library) -> None:
    """Labels, lengths and masks have no gradient, and the numbers beside them have theirs."""
    functional = torch.nn.functional
    label = torch.tensor([[3, 0, 1], [199, 7, 0]])
    same(
        lambda x: library.cross_entropy(x, label),
        lambda x: functional.cross_entropy(x.transpose(1, 2), label, reduction="none"),
        draw(2, 3, 200),
    )
    length = torch.tensor([1, 150, 20])
    same(
        lambda x: library.mean_of_first(x, length),
        lambda x: torch.stack([row[:n].mean() for row, n in zip(x, length, strict=True)]),
        draw(3, 150),
    )
    keep = torch.rand(4, 30) < 0.7
    same(
        lambda x: library.masked_softmax(x, keep),
        lambda x: torch.softmax(x.masked_fill(~keep, -torch.inf), 1),
        draw(4, 30),
    )
    x, y = draw(5, 2), draw(140, 2)
    near = library.are_near(x, y, radius=0.8)
    assert near.dtype == torch.bool
    assert torch.equal(near, torch.cdist(x, y) < 0.8)


def test_ties_share_a_gradient(library: opsmith.Library) -> None:
    """Equally, as PyTorch's `amin` has it."""
    x = torch.tensor([[0.0, 0.0], [1.0, 3.0]], dtype=torch.float64)
    y = torch.tensor([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0], [1.0, 3.0]], dtype=torch.float64)

    def expected(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x[:, None] - y).abs().sum(-1).amin(1)

    found = []
    for function in (library.nearest_distance, expected):
        own = [x.clone().requires_grad_(), y.clone().requires_grad_()]
        found.append([function(*own), *torch.autograd.grad(function(*own).sum(), own)])
    for one, other in zip(*found, strict=True):
        close(one, other)


def test_a_product_is_pytorchs(library: opsmith.Library) -> None:
    """With rows of no zero, one, two and three; of no numbers, and of what is no number."""
    for function in (library.product, lambda x: library.product_of_rows(x, axes=[1])):
        for length in (4, 40, 300):
            x = 1 + draw(5, length) / length
            x[1, 2] = x[2, 0] = x[2, 3] = x[3, 1] = x[3, 2] = x[3, 3] = 0
            same(function, lambda x: x.prod(1), x)
            # PyTorch divides by the number, too, where no number of the tensor is 0.
            x = 1 + draw(5, length) / length
            x[0, 1], x[4, 2] = torch.nan, torch.inf
            found = []
            for product in (function, lambda x: x.prod(1)):
                own = x.clone().requires_grad_()
                z = product(own)
                found.append([z, *torch.autograd.grad(z.sum(), own)])
            for one, other in zip(*found, strict=True):
                torch.testing.assert_close(one, other, equal_nan=True)
        assert function(draw(3, 0)).tolist() == [1, 1, 1]
    x = draw(3, 4, 5)
    same(lambda x: library.product_of_rows(x, axes=[0, 2]), lambda x: x.prod(2).prod(0), x)


def test_what_is_no_number_goes_through_folds(library: opsmith.Library) -> None:
    """Infinities and NaN, in short rows and in long ones, and in their gradients."""
    for length in (3, 40, 300):
        x = draw(6, length)
        x[1, 2], x[2, 0], x[3, 1], x[4, :2] = (
            torch.nan,
            torch.inf,
            -torch.inf,
            torch.tensor([torch.inf, -torch.inf]),
        )
        own, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        actual = library.folds(own)
        expected = (other.sum(1), other.mean(1), other.amax(1), other.amin(1))
        for one, last in zip(actual, expected, strict=True):
            torch.testing.assert_close(one, last, equal_nan=True)
        # NaN is shared by the whole row here, and by the NaNs there.
        rows = [0, 2, 3, 4, 5]
        gradients = [
            torch.autograd.grad(sum(z[rows].sum() for z in zs), x)[0][rows]
            for zs, x in ((actual, own), (expected, other))
        ]
        torch.testing.assert_close(*gradients)
        torch.testing.assert_close(library.log_sum_exp(x), torch.logsumexp(x, 1), equal_nan=True)


def test_sums_are_as_exact_as_is_said(library: opsmith.Library) -> None:
    """Of a million float32 numbers, by 41 roundings of the sum of their magnitudes at most."""
    x = torch.rand(2, 1_000_003) + 0.1
    total = library.folds(x)[0]
    exact = x.double().sum(1)
    assert ((total.double() - exact).abs() <= 41 * 2**-24 * exact).all()


def test_threads_change_no_bit(library: opsmith.Library) -> None:
    """Whatever the number of threads."""
    inputs = draw(300, 8), draw(500, 8), draw(500, 3)
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(library.attention(*inputs, causal=False))
    torch.set_num_threads(2)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
