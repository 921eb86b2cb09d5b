"""What backward does for each kind of op and output."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import opsmith
import pytest
import torch
import torch.utils.checkpoint
from opsmith._definition import Arg, Attr, Gradient, Op
from opsmith._forward import Chain
from opsmith.torch import _autograd
from opsmith.torch._forward import Derivative
from opsmith.torch._op import TorchOp
from torch.utils._python_dispatch import TorchDispatchMode


def test_only_gradients_that_are_wanted_are_computed(
    distances: opsmith.Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = torch.rand(3, 4, requires_grad=True), torch.rand(5, 4)
    z = torch.ops.distances.pairwise_manhattan_distance(x, y)
    z.sum().backward()
    assert x.grad is not None and y.grad is None
    first, second = torch.ops.distances.pairwise_manhattan_distance_grad(x, y, torch.ones(3, 5), wanted=2)
    assert first.shape == (0,) and second.shape == (5, 4)


def test_what_backward_does_not_need_is_not_kept(zero_out: opsmith.Library) -> None:
    # The gradient op takes the arriving gradient alone.
    x = torch.rand(3, requires_grad=True)
    hidden = x * 2
    gone = weakref.ref(hidden)
    z = zero_out.zero_out_real(hidden.exp() * 1)
    del hidden
    gc.collect()
    assert gone() is None
    z.sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("through_ops", [True, False])
def test_an_integer_output_has_no_gradient(zero_out: opsmith.Library, through_ops: bool) -> None:
    x = torch.tensor([1.0, 3.0, 2.0], requires_grad=True)
    op = torch.ops.zero_out.max_with_index if through_ops else zero_out.max_with_index
    value, position = op(x)
    assert value.requires_grad and not position.requires_grad
    value.backward()
    assert torch.equal(x.grad, torch.tensor([0.0, 1.0, 0.0]))


@pytest.mark.parametrize("through_ops", [True, False])
def test_undeclared_gradients_are_an_error(testops: opsmith.Library, through_ops: bool) -> None:
    x = torch.rand(3, 4, requires_grad=True)
    op = torch.ops.testops.pairwise if through_ops else testops.pairwise
    z = op(x, torch.rand(5, 4))
    with pytest.raises(NotImplementedError, match="Pairwise: has no gradient"):
        z.sum().backward()


def test_an_attribute_reaches_the_gradient(zero_out: opsmith.Library) -> None:
    for op in (zero_out.zero_out_real, torch.ops.zero_out.zero_out_real):
        x = torch.rand(4, requires_grad=True)
        op(x, preserve_index=2).sum().backward()
        assert torch.equal(x.grad, torch.tensor([0.0, 0.0, 1.0, 0.0]))


def test_lists_have_a_gradient_for_each_tensor(zero_out: opsmith.Library) -> None:
    for op in (zero_out.sum_all, torch.ops.zero_out.sum_all):
        terms = [torch.rand(2, requires_grad=True), torch.rand(2), torch.rand(2, requires_grad=True)]
        op(terms).sum().backward()
        assert torch.equal(terms[0].grad, torch.ones(2)) and terms[1].grad is None
        assert torch.equal(terms[2].grad, torch.ones(2))


def test_without_a_graph_nothing_is_recorded(distances: opsmith.Library) -> None:
    x, y = torch.rand(3, 4, requires_grad=True), torch.nn.Parameter(torch.rand(5, 4))
    with torch.no_grad():
        assert not distances.pairwise_manhattan_distance(x, y).requires_grad
    with torch.inference_mode():
        assert distances.pairwise_manhattan_distance(x, y).is_inference()
    assert distances.pairwise_manhattan_distance(x.detach(), y).requires_grad
    assert distances.pairwise_manhattan_distance(y, x.detach()).requires_grad


def test_backward_twice_and_retained(distances: opsmith.Library) -> None:
    x, y = torch.rand(3, 4, requires_grad=True), torch.rand(5, 4)
    z = distances.pairwise_manhattan_distance(x, y).sum()
    first = torch.autograd.grad(z, x, retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(z, x)[0])
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(z, x)


def test_changing_a_saved_tensor_is_noticed(distances: opsmith.Library, testops: opsmith.Library) -> None:
    x, y = torch.rand(3, 4, requires_grad=True), torch.rand(5, 4)
    z = distances.pairwise_manhattan_distance(x, y)
    testops.increment(y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_a_negative_view_is_read_as_what_it_stands_for(distances: opsmith.Library) -> None:
    x = torch.complex(torch.rand(3, 4), torch.rand(3, 4)).conj().imag
    y = torch.rand(5, 4)
    assert x.is_neg()
    expected = torch.cdist(x.clone(), y, p=1)
    for call in (distances.pairwise_manhattan_distance, torch.ops.distances.pairwise_manhattan_distance):
        torch.testing.assert_close(call(x, y), expected)
        torch.testing.assert_close(call(x, y.clone().requires_grad_()), expected)


def tensor(name: str, *, saved: bool = False) -> Arg:
    return Arg(name, "", False, False, saved, "float32", None, None, None)


@pytest.fixture
def rounded() -> Iterator[torch._ops.OpOverload]:
    """An op through which zeros flow back, wired as those of a library are."""
    with torch.library._scoped_library("opsmith_tests", "FRAGMENT") as library:
        library.define("rounded(Tensor x) -> Tensor")
        library.impl("rounded", torch.round, "CPU")
        overload = torch.ops.opsmith_tests.rounded.default
        op = Op(
            0, "Rounded", "rounded", "", False, (tensor("x"),), (tensor("y"),), (), None, False, None, None
        )
        library.impl(
            "rounded",
            _autograd.kernel(Derivative(TorchOp(op, overload), None, Chain(op, None, None, None, op), {})),
            "Autograd",
            with_keyset=True,
        )
        yield overload


def test_zeros_flow_back_through_what_is_not_differentiable(rounded: torch._ops.OpOverload) -> None:
    x = torch.rand(2, 3, requires_grad=True)
    (rounded(x).sum() * 2).backward()
    assert torch.equal(x.grad, torch.zeros(2, 3))
    assert torch.equal(torch.func.grad(lambda x: rounded(x).sum())(x.detach()), torch.zeros(2, 3))
    assert torch.equal(
        torch.func.vmap(torch.func.grad(lambda x: rounded(x).sum()))(x.detach()), torch.zeros(2, 3)
    )


def test_lists_under_transforms(zero_out: opsmith.Library) -> None:
    x = torch.rand(3)
    for op in (zero_out.sum_all, torch.ops.zero_out.sum_all):
        assert torch.equal(
            torch.func.grad(lambda x, op=op: op([x, 2 * x, x.detach()]).sum())(x), 3 * torch.ones(3)
        )


def test_saved_tensor_hooks_see_what_is_saved(distances: opsmith.Library) -> None:
    seen = []
    x, y = torch.rand(3, 4, requires_grad=True), torch.rand(5, 4)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t.shape) or t, lambda t: t):
        distances.pairwise_manhattan_distance(x, y)
    assert sorted(seen) == [(3, 4), (5, 4)]


def test_checkpointing(distances: opsmith.Library) -> None:
    x, y = torch.rand(3, 4, requires_grad=True), torch.rand(5, 4, requires_grad=True)
    z = torch.utils.checkpoint.checkpoint(distances.pairwise_manhattan_distance, x, y, use_reentrant=False)
    got = torch.autograd.grad(z.pow(2).sum(), (x, y))
    expected = torch.autograd.grad(distances.pairwise_manhattan_distance(x, y).pow(2).sum(), (x, y))
    torch.testing.assert_close(got, expected)


def test_tensors_without_memory(distances: opsmith.Library) -> None:
    x, y = torch.rand(3, 4), torch.rand(5, 4, requires_grad=True)
    zeros = torch._efficientzerotensor(5, 4)
    torch.testing.assert_close(
        distances.pairwise_manhattan_distance(x, zeros), torch.cdist(x, torch.zeros(5, 4), p=1)
    )
    emptied = torch.rand(3, 4, requires_grad=True)
    emptied.untyped_storage().resize_(0)
    for left, right in ((emptied, y), (y, emptied), (emptied.detach(), y.detach())):
        with pytest.raises(RuntimeError):
            distances.pairwise_manhattan_distance(left, right)


def test_modes_see_every_op(distances: opsmith.Library) -> None:
    class Seen(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # noqa: ANN001, ANN204
            self.names.append(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    x, y = torch.rand(3, 4, requires_grad=True), torch.rand(5, 4)
    with Seen() as seen:
        z = distances.pairwise_manhattan_distance(x, y).sum()
    assert seen.names == ["pairwise_manhattan_distance", "sum"]
    with Seen() as seen:
        torch.autograd.grad(z, x)
    assert "pairwise_manhattan_distance_grad" in seen.names


def test_an_unusual_gradient_arrives(distances: opsmith.Library) -> None:
    x, y = torch.rand(3, 4, requires_grad=True), torch.rand(5, 4)
    upstream = torch.complex(torch.rand(3, 5), torch.rand(3, 5)).conj().imag
    assert upstream.is_neg()
    z = distances.pairwise_manhattan_distance(x, y)
    got = torch.autograd.grad(z, x, upstream, retain_graph=True)[0]
    torch.testing.assert_close(got, torch.autograd.grad(z, x, upstream.clone())[0])


@pytest.fixture
def narrowed() -> Iterator[torch._ops.OpOverload]:
    """A cast whose gradient op cannot tell from its inputs what the input's dtype was."""
    with torch.library._scoped_library("opsmith_tests", "FRAGMENT") as library:
        library.define("narrowed(Tensor x) -> Tensor")
        library.define("narrowed_grad(Tensor y_grad, *, ScalarType S) -> Tensor")
        library.impl("narrowed", lambda x: x.half(), "CPU")
        library.impl("narrowed_grad", lambda y_grad, *, S: y_grad.to(S), "CPU")
        ops = torch.ops.opsmith_tests
        x, y = Arg("x", "", False, False, False, None, "S", None, None), tensor("y")
        attr = Attr("S", "type", False, None, None, None, None, None, None, True, False, None, "")
        wiring = Gradient("NarrowedGrad", (("output_gradient", 0),), (0,))
        forward = Op(0, "Narrowed", "narrowed", "", False, (x,), (y,), (attr,), wiring, True, None, None)
        given = replace(attr, inferred=False)
        backward = Op(
            1, "NarrowedGrad", "narrowed_grad", "", False, (y,), (x,), (given,), None, True, None, None
        )
        gradient = TorchOp(backward, ops.narrowed_grad.default)
        op = TorchOp(forward, ops.narrowed.default)
        kernel = _autograd.kernel(Derivative(op, gradient, Chain(forward, backward, None, None, forward), {}))
        library.impl("narrowed", kernel, "Autograd", with_keyset=True)
        yield ops.narrowed.default


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_inputs_decide_reaches_a_gradient_op_that_cannot_tell(
    narrowed: torch._ops.OpOverload, dtype: torch.dtype
) -> None:
    x = torch.rand(3, dtype=dtype, requires_grad=True)
    narrowed(x).sum().backward()
    assert x.grad.dtype == dtype and torch.equal(x.grad, torch.ones(3, dtype=dtype))


def test_a_gradient_is_of_the_array_as_it_was(distances: opsmith.Library) -> None:
    x, y = torch.rand(3, 4, requires_grad=True), np.random.default_rng(0).random((5, 4), np.float32)
    expected = (x.detach()[:, None] - torch.from_numpy(y.copy())).sign().sum(1)
    z = distances.pairwise_manhattan_distance(x, y)
    y[:] = 100
    z.sum().backward()
    torch.testing.assert_close(x.grad, expected)


def test_second_order_by_one_of_two(ops: opsmith.Library) -> None:
    """What arrives at the other's gradient is nothing, and the gradient's gradient must have it."""
    condition = torch.rand(3, 4) > 0.5
    x, y = torch.rand(3, 4, requires_grad=True), torch.rand(4)

    def second(select: Callable[..., torch.Tensor], by: bool) -> torch.Tensor:
        z = select(condition, x, y) if by else select(condition, y, x)
        (g,) = torch.autograd.grad((z**3).sum(), x, create_graph=True)
        (found,) = torch.autograd.grad((g**2).sum(), x)
        return found

    for by in (True, False):
        torch.testing.assert_close(second(ops.select, by), second(torch.where, by))


LISTS: dict[str, tuple[Callable[..., object], Callable[..., object]]] = {
    "concat": (lambda ops, xs: ops.concat(xs, axis=-1), lambda xs: torch.cat(tuple(xs), -1)),
    "stack": (lambda ops, xs: ops.stack(xs), lambda xs: torch.stack(tuple(xs))),
    "split": (lambda ops, xs: ops.split(xs[0], N=2, axis=1)[1], lambda xs: xs[0].split(2, 1)[1]),
    "einsum": (
        lambda ops, xs: ops.einsum(xs, equation="ij,ik,ij->jk"),
        lambda xs: torch.einsum("ij,ik,ij->jk", *xs),
    ),
}


@pytest.mark.parametrize("name", LISTS)
def test_gradients_of_lists_are_pytorchs(ops: opsmith.Library, name: str) -> None:
    ours, theirs = LISTS[name]
    for wanted in ((True, True, True), (False, True, False), (True, False, False)):
        xs = [torch.rand(3, 4, dtype=torch.float64, requires_grad=each) for each in wanted]
        wanting = [x for x in xs if x.requires_grad and (name != "split" or x is xs[0])]
        for given in (xs, tuple(xs)):
            result, expected = ours(ops, given), theirs(xs)
            torch.testing.assert_close(result, expected)
            assert result.requires_grad == bool(wanting)
            if not wanting:
                continue
            # The node of the long way has it.
            assert not hasattr(result.grad_fn, "recorded")
            weights = torch.rand_like(expected)
            gradients = torch.autograd.grad((result * result * weights).sum(), wanting, create_graph=True)
            theirs_of = torch.autograd.grad((expected**2 * weights).sum(), wanting, create_graph=True)
            torch.testing.assert_close(gradients, theirs_of)
            second = torch.autograd.grad(sum((g * g).sum() for g in gradients), wanting)
            torch.testing.assert_close(
                second, torch.autograd.grad(sum((g * g).sum() for g in theirs_of), wanting)
            )


def test_a_list_that_changes_afterwards_does_not_change_a_gradient(ops: opsmith.Library) -> None:
    x, axes = torch.rand(3, 4, requires_grad=True), [0]
    xs = [x, x * 2]
    y, z = ops.sum(x, axes=axes), ops.concat(xs, axis=0)
    axes[0] = 1
    xs.clear()
    (y.sum() + z.sum()).backward()
    assert torch.equal(x.grad, torch.full((3, 4), 4.0))
