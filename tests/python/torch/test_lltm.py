"""An LLTM in PyTorch: values, gradients and what is refused, the module, and a training run."""

from __future__ import annotations

import numpy as np
import opsmith
import pytest
import torch
from conftest import load
from lltm_reference import RANDOM_STEPS, gradients, losses, mistakes, numbers, sizes, step, upstream


@pytest.fixture(scope="module")
def lltm() -> opsmith.Library:
    """The example library."""
    return load("lltm")


def tensors(*shape: int, dtype: str = "float64") -> list[torch.Tensor]:
    """The inputs of a step, which want gradients."""
    return [torch.from_numpy(x).requires_grad_() for x in numbers(*shape, dtype)]


def plain(
    input: torch.Tensor,
    weights: torch.Tensor,
    bias: torch.Tensor,
    old_h: torch.Tensor,
    old_cell: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The step in PyTorch's own ops."""
    gates = torch.nn.functional.linear(torch.cat([old_h, input], 1), weights, bias)
    g0, g1, g2 = gates.chunk(3, 1)
    new_cell = old_cell + torch.nn.functional.elu(g2) * torch.sigmoid(g0)
    return torch.tanh(new_cell) * torch.sigmoid(g1), new_cell


def test_values_and_gradients_of_random_steps(lltm: opsmith.Library) -> None:
    count = 0
    for shape in sizes():
        inputs, incoming = tensors(*shape), upstream(shape[0], shape[2])
        outputs = lltm.lltm(*inputs)
        arrays = tuple(x.detach().numpy() for x in inputs)
        for ours, theirs in zip(outputs, step(*arrays), strict=True):
            np.testing.assert_allclose(ours.detach(), theirs, rtol=1e-13, atol=1e-13)
        found = torch.autograd.grad(outputs, inputs, [torch.from_numpy(x) for x in incoming])
        for ours, theirs in zip(found, gradients(arrays, incoming), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-12)
        count += 1
    print(f"{count} steps")
    assert count == RANDOM_STEPS + 5


def test_large_steps_in_float32_are_those_of_pytorch(lltm: opsmith.Library) -> None:
    for shape in [(16, 32, 128), (64, 100, 300), (1, 20, 200), (130, 1, 7)]:
        inputs = tensors(*shape, dtype="float32")
        scale = (shape[1] + shape[2]) ** -0.5
        inputs[1] = (inputs[1] * scale).detach().requires_grad_()
        wide = [x.detach().double().requires_grad_() for x in inputs]
        incoming = [torch.from_numpy(x) for x in upstream(shape[0], shape[2], "float32")]
        ours, theirs = lltm.lltm(*inputs), plain(*wide)
        found = torch.autograd.grad(ours, inputs, incoming)
        expected = torch.autograd.grad(theirs, wide, [x.double() for x in incoming])
        for left, right in zip((*ours, *found), (*theirs, *expected), strict=True):
            assert left.dtype == torch.float32
            torch.testing.assert_close(left.double(), right, rtol=2e-5, atol=2e-5)


def test_gradcheck(lltm: opsmith.Library) -> None:
    for call in (lltm.lltm, lambda *x: torch.ops.lltm.lltm(*x)[:2]):
        assert torch.autograd.gradcheck(call, tensors(3, 2, 4))


def test_only_what_is_asked_for(lltm: opsmith.Library) -> None:
    names = ["input", "weights", "bias", "old_h", "old_cell"]
    for wanted in [["weights"], ["bias"], ["input", "old_cell"], ["old_h"], ["old_cell"]]:
        values = [x.detach() for x in tensors(5, 3, 4)]
        asked = [x.requires_grad_() for x, name in zip(values, names, strict=True) if name in wanted]
        theirs = torch.autograd.grad(plain(*values)[0].sum(), asked)
        for call in (lltm.lltm, torch.ops.lltm.lltm):
            ours = torch.autograd.grad(call(*values)[0].sum(), asked)
            for left, right in zip(ours, theirs, strict=True):
                torch.testing.assert_close(left, right)


def test_a_loss_of_one_output(lltm: opsmith.Library) -> None:
    inputs = tensors(5, 3, 4)
    for output in (0, 1):
        theirs = torch.autograd.grad(plain(*inputs)[output].square().sum(), inputs, materialize_grads=True)
        for call in (lltm.lltm, torch.ops.lltm.lltm):
            ours = torch.autograd.grad(call(*inputs)[output].square().sum(), inputs)
            for left, right in zip(ours, theirs, strict=True):
                torch.testing.assert_close(left, right)


def test_nothing_flows_through_what_is_only_saved(lltm: opsmith.Library) -> None:
    assert lltm is not None
    outputs = torch.ops.lltm.lltm(*tensors(5, 3, 4))
    assert [output.requires_grad for output in outputs] == [True, True, *[False] * 5]


def test_opcheck(lltm: opsmith.Library) -> None:
    inputs = tuple(tensors(4, 3, 5))
    assert set(torch.library.opcheck(torch.ops.lltm.lltm.default, inputs).values()) == {"SUCCESS"}
    made = torch.ops.lltm.lltm(*inputs)
    grads = [torch.from_numpy(x) for x in upstream(4, 5)]
    saved = [x.detach() for x in (*grads, *made[1:], inputs[1])]
    assert set(torch.library.opcheck(torch.ops.lltm.lltm_grad.default, saved).values()) == {"SUCCESS"}
    assert lltm is not None


def test_strided_and_repeated_inputs(lltm: opsmith.Library) -> None:
    input, weights, bias, old_h, old_cell = (x.detach() for x in tensors(6, 3, 4))
    turned = [
        input.t().contiguous().t(),
        weights[:, ::2].repeat_interleave(2, 1)[:, :7],
        bias,
        old_h[:1],
        old_cell,
    ]
    turned[3] = turned[3].expand(6, 4)
    turned = [x.requires_grad_() for x in turned]
    ours, theirs = lltm.lltm(*turned), plain(*turned)
    for left, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(left, right)
    upstream = torch.randn(6, 4, dtype=torch.float64).t().contiguous().t()
    for left, right in zip(
        torch.autograd.grad(ours, turned, [upstream, upstream.flip(0)]),
        torch.autograd.grad(theirs, turned, [upstream, upstream.flip(0)]),
        strict=True,
    ):
        torch.testing.assert_close(left, right)


def test_nan_reaches_what_depends_on_it(lltm: opsmith.Library) -> None:
    inputs = [x.detach() for x in tensors(4, 3, 5)]
    inputs[0][1, 0] = torch.nan
    inputs = [x.requires_grad_() for x in inputs]
    ours, theirs = lltm.lltm(*inputs), plain(*inputs)
    for left, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(left, right, equal_nan=True)
    grads = (torch.autograd.grad([o.sum() for o in outputs], inputs) for outputs in (ours, theirs))
    for left, right in zip(*grads, strict=True):
        torch.testing.assert_close(left, right, equal_nan=True)


@pytest.mark.parametrize(("inputs", "said"), [pytest.param(*rest, id=case) for case, *rest in mistakes()])
def test_bad_input(lltm: opsmith.Library, inputs: tuple[np.ndarray, ...], said: str) -> None:
    for wants in (False, True):
        tensors = [torch.from_numpy(x).requires_grad_(wants) for x in inputs]
        with pytest.raises(RuntimeError, match=said):
            lltm.lltm(*tensors)


def test_a_second_order_is_refused_by_name(lltm: opsmith.Library) -> None:
    inputs = tensors(3, 2, 4)
    h, _ = lltm.lltm(*inputs)
    (grad,) = torch.autograd.grad(h.sum(), inputs[1], create_graph=True)
    with pytest.raises(RuntimeError, match="LltmGrad: has no gradient"):
        grad.sum().backward()


def test_compiled_with_symbolic_sizes(lltm: opsmith.Library) -> None:
    compiled = torch.compile(
        lambda *x: lltm.lltm(*x)[0] * 2, dynamic=True, fullgraph=True, backend="aot_eager"
    )
    for shape in [(3, 4, 5), (6, 2, 7)]:
        inputs = tensors(*shape)
        h = compiled(*inputs)
        torch.testing.assert_close(h, plain(*inputs)[0] * 2)
        for left, right in zip(
            torch.autograd.grad(h.sum(), inputs),
            torch.autograd.grad(plain(*inputs)[0].sum() * 2, inputs),
            strict=True,
        ):
            torch.testing.assert_close(left, right)


def test_the_module(lltm: opsmith.Library) -> None:
    from lltm_torch import LLTM

    assert lltm is not None
    cell = LLTM(3, 50, dtype=torch.float64)
    assert cell.weights.shape == (150, 53) and cell.bias.shape == (150,)
    largest = max(parameter.abs().max().item() for parameter in cell.parameters())
    assert 0.9 * 50**-0.5 < largest <= 50**-0.5
    input, state = torch.randn(4, 3, dtype=torch.float64), cell.start(4)
    for _ in range(3):
        expected = plain(input, cell.weights, cell.bias, *state)
        state = cell(input, state)
        torch.testing.assert_close(state, expected)
    state[0].sum().backward()
    assert all(parameter.grad is not None for parameter in cell.parameters())
    again = LLTM(3, 50, dtype=torch.float64)
    again.load_state_dict(cell.state_dict())
    torch.testing.assert_close(again(input, cell.start(4)), cell(input, cell.start(4)))


def test_training_takes_the_curve_of_numpy(lltm: opsmith.Library) -> None:
    from train import with_torch

    assert lltm is not None
    np.testing.assert_allclose(with_torch(30, "float64").losses, losses(30), rtol=1e-9)


def test_the_cell_as_one_body_gives_the_same(lltm: opsmith.Library) -> None:
    for shape in [(3, 2, 4), (2, 0, 3), (0, 2, 3), (1, 20, 40), (70, 30, 80)]:
        inputs = tensors(*shape)
        incoming = [torch.from_numpy(x) for x in upstream(shape[0], shape[2])]
        ours, theirs = lltm.lltm_cell(*inputs), lltm.lltm(*inputs)
        found, expected = (torch.autograd.grad(outputs, inputs, incoming) for outputs in (ours, theirs))
        for left, right in zip((*ours, *found), (*theirs, *expected), strict=True):
            torch.testing.assert_close(left, right, rtol=1e-11, atol=1e-12)


def test_the_cell_as_one_body_has_a_second_order(lltm: opsmith.Library) -> None:
    inputs = tensors(3, 2, 4)
    assert torch.autograd.gradcheck(lltm.lltm_cell, inputs)
    assert torch.autograd.gradgradcheck(lltm.lltm_cell, inputs)
    ours, theirs = (step(*inputs)[0].sin().sum() for step in (lltm.lltm_cell, plain))
    for wanted in range(5):
        first = [torch.autograd.grad(h, inputs, create_graph=True)[wanted] for h in (ours, theirs)]
        left, right = (
            torch.autograd.grad(own.square().sum(), inputs, materialize_grads=True, retain_graph=True)
            for own in first
        )
        for one, other in zip(left, right, strict=True):
            torch.testing.assert_close(one, other)


def test_the_cell_as_one_body_says_what_does_not_fit(lltm: opsmith.Library) -> None:
    input, weights, bias, old_h, old_cell = (x.detach() for x in tensors(3, 2, 4))
    said = r"(LltmCell|lltm_cell): dim 0 of `weights` .* must be 3 \* s with s = 4: 11 ≠ 12"
    with pytest.raises(RuntimeError, match=said):
        lltm.lltm_cell(input, weights[:11], bias, old_h, old_cell)
    said = r"axis `r`, dim 1 of `old_h` \(shape .*\), must be as long as axis `s`, dim 1 of `\w+` .*: 3 ≠ 4"
    with pytest.raises(RuntimeError, match=said):
        lltm.lltm_cell(input, weights[:, :5], bias, old_h[:, :3], old_cell)
