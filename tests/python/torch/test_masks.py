"""Masked averages and losses under PyTorch: gradients, the compiler, learning."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import opsmith
import pytest
import torch
from conftest import load
from dense_masks import DELTAS, OPS, Case, Dense, bad_calls, random_cases, tolerance

CASES = 40


@pytest.fixture(scope="module")
def masks() -> opsmith.Library:
    """The example library."""
    return load("masks")


def tensors(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """The inputs, the embedding wanting a gradient."""
    return torch.from_numpy(case.embedding).requires_grad_(), torch.from_numpy(case.rle_mask)


def bound(masks: opsmith.Library, op: str, rle_mask: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """The op as a function of the embedding."""
    return lambda embedding: getattr(masks, op)(embedding, rle_mask, **OPS[op])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("op", OPS)
def test_values_and_gradients_are_those_of_dense_masks(masks: opsmith.Library, op: str, dtype: Any) -> None:
    seen = 0
    for case in random_cases(CASES, dtype, seed=2):
        embedding, rle_mask = tensors(case)
        wide = embedding.detach().double().requires_grad_()
        dense = Dense(Case(wide.detach().numpy(), case.rle_mask), torch, torch.from_numpy)
        got, expected = bound(masks, op, rle_mask)(embedding), getattr(dense, op)(wide, **OPS[op])
        close = tolerance(op, dtype)
        torch.testing.assert_close(got.double(), expected, **close)
        upstream = torch.randn_like(got)
        (grad,) = torch.autograd.grad(got, embedding, upstream)
        (expected_grad,) = torch.autograd.grad(expected, wide, upstream.double())
        assert grad.dtype == embedding.dtype
        torch.testing.assert_close(grad.double(), expected_grad, **close)
        seen += 1
    assert seen == CASES


@pytest.mark.parametrize("op", OPS)
def test_gradcheck(masks: opsmith.Library, op: str) -> None:
    # The loss of places is float32, but a square: differences are exact at any distance.
    steps = {"eps": 0.5, "atol": 1e-4, "rtol": 1e-4} if op == "average_embedding_mask" else {}
    for case in random_cases(6, seed=3, most=9):
        embedding, rle_mask = tensors(Case(case.embedding[:, :3, :20], case.rle_mask[:, :, :3].clip(0, 20)))
        embedding = embedding.detach()[:, :, : max(1, 40 // embedding.shape[-1])].clone().requires_grad_()
        function = bound(masks, op, rle_mask.clamp(max=embedding.shape[2]))
        assert torch.autograd.gradcheck(function, embedding, **steps)
        if op != "discriminative_loss":
            assert torch.autograd.gradgradcheck(function, embedding, **steps)


def test_what_has_no_second_derivative_says_so(masks: opsmith.Library) -> None:
    embedding, rle_mask = tensors(next(random_cases(1)))
    loss = masks.discriminative_loss(embedding, rle_mask, **DELTAS).sum()
    (grad,) = torch.autograd.grad(loss, embedding, create_graph=True)
    with pytest.raises(RuntimeError, match="DiscriminativeLossGrad"):
        grad.sum().backward()


@pytest.mark.parametrize("op", OPS)
def test_opcheck(masks: opsmith.Library, op: str) -> None:
    overload = getattr(torch.ops.masks, op).default
    for case in random_cases(2, seed=4):
        outcome = torch.library.opcheck(overload, tensors(case), OPS[op])
        assert set(outcome.values()) == {"SUCCESS"}
    assert masks is not None


def test_compiled_with_dynamic_shapes(masks: opsmith.Library) -> None:
    def step(embedding: torch.Tensor, rle_mask: torch.Tensor) -> torch.Tensor:
        loss = masks.discriminative_loss(embedding * 2, rle_mask, **DELTAS)
        return loss.sum() + masks.masked_averages(embedding, rle_mask).sum()

    compiled = torch.compile(step, dynamic=True, fullgraph=True, backend="aot_eager")
    for case in random_cases(2, seed=5):
        embedding, rle_mask = tensors(case)
        torch.testing.assert_close(compiled(embedding, rle_mask), step(embedding, rle_mask))
        (grad,) = torch.autograd.grad(compiled(embedding, rle_mask), embedding)
        torch.testing.assert_close(grad, torch.autograd.grad(step(embedding, rle_mask), embedding)[0])


@pytest.mark.parametrize("op", OPS)
def test_strided_and_empty_input(masks: opsmith.Library, op: str) -> None:
    embedding = torch.randn(2, 3, 4, 6).permute(0, 2, 3, 1)
    rle_mask = torch.tensor([[1, 5], [4, 4], [0, 6]]).expand(2, 4, 3, 2).transpose(1, 2)
    function = bound(masks, op, rle_mask)
    torch.testing.assert_close(function(embedding), function(embedding.contiguous()), rtol=0, atol=0)
    for shape in [(0, 4, 6, 3), (2, 0, 6, 3), (2, 4, 0, 3), (2, 4, 6, 0)]:
        embedding = torch.ones(shape, requires_grad=True)
        rle_mask = torch.zeros(shape[0], 2, shape[1], 2, dtype=torch.int32)
        answer = bound(masks, op, rle_mask)(embedding)
        assert not answer.any()
        assert torch.equal(torch.autograd.grad(answer.sum(), embedding)[0], torch.zeros(shape))


def test_gradients_stay_within_the_masks(masks: opsmith.Library) -> None:
    embedding = torch.randn(2, 1, 9, 3)
    embedding[0, 0, 0] = torch.nan
    embedding[1, 0, 8] = torch.nan  # outside
    embedding.requires_grad_()
    rle_mask = torch.tensor([[[0, 3]], [[3, 7]]]).expand(2, 2, 1, 2)
    loss = masks.discriminative_loss(embedding, rle_mask, **DELTAS)
    (grad,) = torch.autograd.grad(loss.sum(), embedding)
    assert loss.isnan().tolist() == [True, False]
    assert not grad[1].isnan().any() and grad[0, 0, :3].isnan().all() and not grad[:, 0, 7:].any()


def test_threads_change_no_bit(masks: opsmith.Library) -> None:
    embedding = torch.randn(2, 200, 60, 5).requires_grad_()
    rle_mask = torch.randint(0, 61, (2, 7, 200, 2))
    before, results = torch.get_num_threads(), []
    try:
        for threads in [1, 2, 16]:
            torch.set_num_threads(threads)
            answers = [bound(masks, op, rle_mask)(embedding) for op in OPS]
            results.append(answers + [torch.autograd.grad(a.sum(), embedding)[0] for a in answers])
    finally:
        torch.set_num_threads(before)
    for result in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(result, results[0], strict=True))


def test_bad_input(masks: opsmith.Library) -> None:
    seen = 0
    for what, embedding, rle_mask, message in bad_calls():
        for op, attrs in OPS.items():
            with pytest.raises(RuntimeError) as caught:
                getattr(torch.ops.masks, op)(torch.from_numpy(embedding), torch.from_numpy(rle_mask), **attrs)
            assert f"masks::{op}" in str(caught.value) and message in str(caught.value), what
            seen += 1
    assert seen == 24


def test_cells_are_learned(masks: opsmith.Library, capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "masks" / "learn.py"))
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # the pictures are too small for more
    try:
        learned = example["learn"](masks, steps=15, size=32, batch=2)
    finally:
        torch.set_num_threads(before)
    assert sum(learned.losses[-3:]) < 0.7 * sum(learned.losses[:3])
    assert learned.after > learned.before
    assert "step    0" in capsys.readouterr().out
