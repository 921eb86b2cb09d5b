"""`torch.func`, forward mode, double backward: through `torch.ops` and through the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import opsmith
import pytest
import torch
import torch.autograd.forward_ad as fwad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

Op = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x.unsqueeze(-2) - y.unsqueeze(-3)).abs().sum(-1)


@pytest.fixture(params=["torch.ops", "package"])
def op(request: pytest.FixtureRequest, distances: opsmith.Library) -> Op:
    through_ops = torch.ops.distances.pairwise_manhattan_distance
    return through_ops if request.param == "torch.ops" else distances.pairwise_manhattan_distance


X = torch.rand(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
Y = torch.rand(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
BATCH = torch.rand(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
LAST = torch.rand(5, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(4))


def loss(f: Op, power: int = 2) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: (f(x, Y) ** power).sum()


def outer(f: Op) -> torch.Tensor:
    x = X.clone().requires_grad_()
    return torch.autograd.grad(grad(loss(f, 3))(x).sum(), x)[0]


def batched_gradients(f: Op) -> torch.Tensor:
    x = X.clone().requires_grad_()
    z = f(x, Y)
    return torch.autograd.grad(
        z, x, torch.eye(15, dtype=torch.float64).reshape(15, 3, 5), is_grads_batched=True
    )[0]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, fullgraph=True, backend="aot_eager")


USES: dict[str, Callable[[Op], Any]] = {
    "grad": lambda f: grad(loss(f))(X),
    "grad of grad": lambda f: grad(lambda x: (grad(loss(f))(x) ** 2).sum())(X),
    "jacrev": lambda f: jacrev(f, argnums=(0, 1))(X, Y),
    "jacrev of jacrev": lambda f: jacrev(jacrev(loss(f)))(X),
    "vjp": lambda f: vjp(f, X, Y)[1](torch.ones(3, 5, dtype=torch.float64)),
    "vmap": lambda f: vmap(f, (0, None))(BATCH, Y),
    "vmap of the second": lambda f: vmap(f, (None, -1))(X, LAST),
    "vmap of both, out dim": lambda f: vmap(f, (0, 2), out_dims=1)(BATCH, LAST),
    "vmap of vmap": lambda f: vmap(vmap(f, (None, -1)), (0, None))(BATCH, LAST),
    "vmap of nothing": lambda f: vmap(f, (0, None))(BATCH[:0], Y),
    "vmap of grad": lambda f: vmap(grad(loss(f)))(BATCH),
    "grad of vmap": lambda f: grad(lambda x: (vmap(f, (0, None))(x, Y) ** 2).sum())(BATCH),
    "vmap of vmap of grad": lambda f: vmap(vmap(grad(loss(f))))(BATCH[None]),
    "autograd of grad": outer,
    "batched gradients": batched_gradients,
    "compiled grad": lambda f: compiled(grad(loss(f)))(X),
    "compiled vmap": lambda f: torch.compile(vmap(f, (0, None)), fullgraph=True, backend="aot_eager")(
        BATCH, Y
    ),
    "compiled vmap of grad": lambda f: compiled(vmap(grad(loss(f))))(BATCH),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_as_plain_pytorch(op: Op, use: Callable[[Op], Any]) -> None:
    torch.testing.assert_close(use(op), use(reference))


def test_an_order_that_nothing_is_declared_for_is_an_error(op: Op) -> None:
    second = lambda x: grad(lambda x: grad(loss(op, 3))(x).sum())(x).sum()  # noqa: E731
    with pytest.raises(NotImplementedError, match="PairwiseManhattanDistanceGradGrad: has no gradient"):
        grad(second)(X)


def with_dual_inputs(op: Op, requires_grad: bool) -> torch.Tensor:
    with fwad.dual_level():
        x = fwad.make_dual(X.clone().requires_grad_(requires_grad), torch.ones_like(X))
        return fwad.unpack_dual(op(x, Y)).tangent


def forward_over_reverse(op: Op) -> torch.Tensor:
    with fwad.dual_level():
        x = fwad.make_dual(X.clone().requires_grad_(), torch.sin(X))
        (slope,) = torch.autograd.grad((op(x, Y) ** 2).sum(), x, create_graph=True)
        return fwad.unpack_dual(slope).tangent


FORWARD_MODES: dict[str, Callable[[Op], Any]] = {
    "dual": lambda f: with_dual_inputs(f, requires_grad=False),
    "dual with a gradient": lambda f: with_dual_inputs(f, requires_grad=True),
    "jvp": lambda f: jvp(lambda x: f(x, Y), (X,), (X,)),
    "jvp of both": lambda f: jvp(f, (X, Y), (torch.sin(X), torch.cos(Y))),
    "jacfwd": lambda f: jacfwd(f, argnums=(0, 1))(X, Y),
    "hessian": lambda f: hessian(loss(f))(X),
    "forward over reverse": forward_over_reverse,
    "vmap of jvp": lambda f: vmap(lambda x: jvp(lambda x: f(x, Y), (x,), (x,)))(BATCH),
    "jvp of vmap": lambda f: jvp(lambda x: vmap(f, (0, None))(x, Y), (BATCH,), (BATCH,)),
}


@pytest.mark.parametrize("use", FORWARD_MODES.values(), ids=FORWARD_MODES.keys())
def test_forward_mode_is_plain_pytorchs(op: Op, use: Callable[[Op], Any]) -> None:
    torch.testing.assert_close(use(op), use(reference))


def test_forward_mode_needs_the_gradient_of_the_gradient(op: Op) -> None:
    with pytest.raises(
        NotImplementedError, match=r"PairwiseManhattanDistance: its derivative has none in forward mode"
    ):
        jvp(grad(lambda x: (grad(loss(op))(x) ** 2).sum()), (X,), (X,))


def test_a_dual_level_without_tangents_is_no_forward_mode(op: Op) -> None:
    with fwad.dual_level():
        torch.testing.assert_close(op(X, Y), reference(X, Y))


def test_the_function_leaves_keys_as_they_were(distances: opsmith.Library) -> None:
    key = torch._C.DispatchKey.AutogradFunctionality
    x = X.clone().requires_grad_()
    with pytest.raises(RuntimeError):
        distances.pairwise_manhattan_distance(x, Y[:, :2])
    with pytest.raises(RuntimeError):
        distances.pairwise_manhattan_distance(X, Y[:, :2])
    assert not torch._C._dispatch_tls_is_dispatch_key_excluded(key)
    with torch._C._AutoDispatchBelowAutograd():
        assert not distances.pairwise_manhattan_distance(x, Y).requires_grad
        assert torch._C._dispatch_tls_is_dispatch_key_excluded(key)


def test_batch_dims_of_the_signature_are_used_in_one_call(zero_out: opsmith.Library) -> None:
    x = torch.rand(5, 2, 3)
    expected = torch.zeros_like(x)
    expected[..., 0] = x[..., 0]
    assert torch.equal(vmap(zero_out.zero_out_rows)(x), expected)
    assert torch.equal(vmap(zero_out.zero_out_rows, in_dims=2)(x), zero_out.zero_out_rows(x.movedim(2, 0)))


def test_vmap_changes_a_batch_in_place_but_nothing_shared(testops: opsmith.Library) -> None:
    sums, x = torch.zeros(2, 3), torch.ones(2, 3)
    totals = vmap(testops.add_into)(sums, x)
    assert torch.equal(sums, x) and torch.equal(totals, torch.tensor([3.0, 3.0]))
    with pytest.raises(RuntimeError, match="AddInto: vmap changes input `sum` in place"):
        vmap(testops.add_into, (None, 0))(sums[0], x)
