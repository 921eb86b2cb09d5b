"""What holds for every op of the example libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from samples import SAMPLES, WITHOUT_TORCH, Case, cases, ops
from torch.utils import _pytree as pytree

ALL_CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def is_differentiable(tensor: object) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.is_floating_point()


def wanting_gradients(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The same inputs; those that a gradient can reach ask for it."""
    return pytree.tree_map(lambda x: x.requires_grad_() if is_differentiable(x) else x, tuple(inputs))


def flat(value: object) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if leaf is not None]


@pytest.mark.parametrize("library", ["distances", "zero_out"])
def test_no_op_is_left_out(library: str) -> None:
    names = {op.name for op in ops(library)}
    assert len(names) > 2
    assert names <= SAMPLES.keys() | WITHOUT_TORCH


def changes_nothing(case: Case) -> bool:
    return not any(arg.ref for arg in case.op.inputs)


def is_pure(case: Case) -> bool:
    return changes_nothing(case) and not case.op.stateful


def is_pure_of_tensors(case: Case) -> bool:
    return is_pure(case) and bool(case.op.inputs)


def wants_everything(case: Case) -> bool:
    """Generated functions have no mask of outputs."""
    return "wanted" not in case.sample.attrs


@pytest.mark.parametrize("case", cases(lambda case: not case.op.stateful))
def test_opcheck(case: Case) -> None:
    inputs = case.sample.inputs()
    tests = list(ALL_CHECKS)
    if any(attr.type == "type" and attr.is_list and attr.name in case.sample.attrs for attr in case.op.attrs):
        # PyTorch's check of aliasing cannot take a list of dtypes, whoever has defined the op.
        tests.remove("test_schema")
    outcome = torch.library.opcheck(case.overload, inputs, case.sample.attrs, test_utils=tests)
    assert outcome == dict.fromkeys(tests, "SUCCESS")


@pytest.mark.parametrize("case", cases(lambda case: case.op.gradient is not None))
def test_opcheck_with_gradients(case: Case) -> None:
    inputs = wanting_gradients(case.sample.inputs())
    outcome = torch.library.opcheck(case.overload, inputs, case.sample.attrs)
    assert set(outcome.values()) == {"SUCCESS"}


def linear_in_float32(case: Case) -> dict[str, float]:
    return {} if case.sample.precise else {"eps": 1e-2, "atol": 1e-2, "rtol": 1e-2}


def is_wired(case: Case) -> bool:
    return case.op.gradient is not None and any(map(is_differentiable, flat(case.sample.inputs())))


def of_tensors(case: Case) -> tuple[Any, tuple[torch.Tensor, ...]]:
    """The op as a function of its tensors alone, which PyTorch's checks take, and the tensors."""
    inputs = wanting_gradients(case.sample.inputs())
    leaves, spec = pytree.tree_flatten(inputs)

    def function(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs = flat(case.call(*pytree.tree_unflatten(list(tensors), spec)))
        return tuple(out for out in outputs if out.requires_grad)

    return function, tuple(leaves)


@pytest.mark.parametrize("case", cases(is_wired))
def test_gradcheck(case: Case) -> None:
    function, tensors = of_tensors(case)
    assert torch.autograd.gradcheck(function, tensors, **linear_in_float32(case))


@pytest.mark.parametrize("case", cases(lambda case: is_wired(case) and case.op.name.count("Grad") == 0))
def test_gradgradcheck(case: Case) -> None:
    function, tensors = of_tensors(case)
    assert torch.autograd.gradgradcheck(function, tensors, **linear_in_float32(case))


@pytest.mark.parametrize("case", cases(lambda case: is_wired(case) and wants_everything(case)))
def test_the_function_gives_the_gradients_that_torch_ops_gives(case: Case) -> None:
    inputs = wanting_gradients(case.sample.inputs())
    leaves = [x for x in flat(inputs) if x.requires_grad]
    answers = []
    for call in (case.overload, case.function):
        outputs = [out for out in flat(call(*inputs, **case.sample.attrs)) if out.requires_grad]
        upstream = [torch.linspace(1, 2, out.numel(), dtype=out.dtype).reshape(out.shape) for out in outputs]
        answers.append(torch.autograd.grad(outputs, leaves, upstream, allow_unused=True))
    for left, right in zip(*answers, strict=True):
        assert (left is None) == (right is None)
        assert left is None or torch.equal(left, right)


@pytest.mark.parametrize("case", cases(lambda case: is_pure_of_tensors(case) and wants_everything(case)))
def test_numpy_and_torch_agree(case: Case) -> None:
    inputs = case.sample.inputs()
    arrays = pytree.tree_map(lambda x: x.numpy() if isinstance(x, torch.Tensor) else x, inputs)
    ours = flat(case.function(*inputs, **case.sample.attrs))
    engine = pytree.tree_leaves(case.function(*arrays, **case.sample.attrs))
    assert len(ours) == len(engine) > 0
    for left, right in zip(ours, engine, strict=True):
        np.testing.assert_array_equal(left.numpy(), right)


@pytest.mark.parametrize("case", cases(is_pure))
def test_compiled_calls_agree(case: Case) -> None:
    inputs = case.sample.inputs()
    compiled = torch.compile(case.call, fullgraph=True, backend="aot_eager")
    expected, got = flat(case.call(*inputs)), flat(compiled(*inputs))
    assert len(expected) == len(got) > 0
    assert all(torch.equal(left, right) for left, right in zip(expected, got, strict=True))


@pytest.mark.parametrize("case", cases(lambda case: is_pure_of_tensors(case) and case.op.name != "NonZero"))
def test_vmap_is_a_loop(case: Case) -> None:
    batch = [case.sample.inputs() for _ in range(3)]
    stacked = pytree.tree_map(lambda *xs: None if xs[0] is None else torch.stack(xs, -1), *batch)
    in_dims = pytree.tree_map(lambda x: None if x is None else -1, stacked)
    got = flat(torch.vmap(case.call, in_dims=in_dims)(*stacked))
    expected = [flat(case.call(*inputs)) for inputs in batch]
    for position, tensor in enumerate(got):
        assert torch.equal(tensor, torch.stack([tensors[position] for tensors in expected]))


@pytest.mark.parametrize("case", cases(lambda case: any(arg.ref for arg in case.op.inputs)))
def test_in_place(case: Case) -> None:
    (x,) = case.sample.inputs()
    before, version = x.clone(), x._version
    assert case.function(x) is None
    assert x.flatten()[0] == before.flatten()[0] and not x.flatten()[1:].any()
    assert x._version > version
    with pytest.raises(RuntimeError, match=rf"{case.op.name}: changes `to_zero` in place"):
        case.overload(before.requires_grad_())


def test_an_op_without_a_torch_counterpart_says_so(zero_out: Any) -> None:
    with pytest.raises(RuntimeError, match="string"):
        zero_out.string_to_number(torch.tensor([1]))
