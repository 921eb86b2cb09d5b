"""Reverse mode of every order that is declared, and errors beyond."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import opsmith
import pytest
from conftest import load
from jax.test_util import check_grads
from opsmith._definition import Op
from opsmith._library import definition_of

RNG = np.random.default_rng(0)


def floats(*shape: int) -> jax.Array:
    """Numbers that are all different, so that no kink or tie is near."""
    count = int(np.prod(shape))
    return jnp.asarray((RNG.permutation(count) + RNG.random()) / max(count, 1)).reshape(shape)


@dataclass(frozen=True)
class Sample:
    """A call that can be differentiated in `inputs`; `fixed` stand behind them."""

    inputs: tuple[Any, ...]
    fixed: tuple[Any, ...] = ()
    attrs: dict[str, Any] = field(default_factory=dict)


X, Y, Z = floats(3, 4), floats(5, 4), floats(3, 5)

SAMPLES: dict[str, Sample] = {
    "PairwiseManhattanDistance": Sample((X, Y)),
    "PairwiseManhattanDistanceGrad": Sample((X, Y, Z)),
    "ZeroOutFloatInt": Sample((floats(5),)),
    "ZeroOutDefaultType": Sample((floats(2, 3),), attrs={"preserve_index": 4}),
    "ZeroOutReal": Sample((floats(2, 3),), attrs={"preserve_index": 4}),
    "ZeroOutGrad": Sample((floats(2, 3),), attrs={"preserve_index": 1}),
    "ZeroOutRows": Sample((floats(4, 2, 3),), attrs={"preserve_index": 2}),
    "ZeroOutRowsGrad": Sample((floats(4, 2, 3),), attrs={"preserve_index": 2}),
    "SumAll": Sample(([floats(2, 3), floats(2, 3), floats(2, 3)],)),
    "SumAllGrad": Sample(([floats(2, 3), floats(2, 3)], floats(2, 3))),
    "MaxWithIndex": Sample((floats(7),)),
    "MaxWithIndexGrad": Sample((floats(7),), (jnp.asarray(3), floats())),
}
FLOAT32 = {"ZeroOutFloatInt"}
"""Ops that take no float64."""


def all_ops() -> dict[str, tuple[str, Op]]:
    """Every op of both examples, with the name of its library."""
    return {
        op.name: (library, op)
        for library in ("distances", "zero_out")
        for op in definition_of(load(library)).ops
    }


OPS = all_ops()


def test_every_differentiable_op_has_a_sample() -> None:
    assert {name for name, (_, op) in OPS.items() if op.gradient is not None} == SAMPLES.keys()


def declared_orders(op: Op) -> int:
    """How often the op can be differentiated."""
    return 0 if op.gradient is None else 1 + declared_orders(OPS[op.gradient.op][1])


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("name", SAMPLES)
def test_gradients_are_those_of_finite_differences(name: str, jit: bool) -> None:
    library, op = OPS[name]
    sample = SAMPLES[name]
    function = getattr(load(library), op.snake_name)
    inputs, fixed = sample.inputs, sample.fixed
    if name in FLOAT32:
        inputs = jax.tree.map(lambda x: x.astype(np.float32), inputs)

    def smooth(*inputs: Any) -> Any:
        outputs = function(*jax.tree.map(jnp.asarray, inputs), *fixed, **sample.attrs)
        return [x**2 for x in jax.tree.leaves(outputs) if jnp.issubdtype(x.dtype, jnp.floating)]

    order = min(declared_orders(op), 2)
    tolerance = 1e-2 if name in FLOAT32 else None
    program = jax.jit(smooth) if jit else smooth
    check_grads(program, inputs, order=order, modes=["rev"], atol=tolerance, rtol=tolerance)


def reference(x: jax.Array, y: jax.Array) -> jax.Array:
    """The distances as JAX computes them."""
    return jnp.abs(x[..., :, None, :] - y[..., None, :, :]).sum(-1)


BATCH, LAST = floats(2, 3, 4), floats(5, 4, 2)
F = Callable[[jax.Array, jax.Array], jax.Array]


def loss(f: F, power: int = 2) -> Callable[[jax.Array], jax.Array]:
    """A number that depends on everything."""
    return lambda x: (f(x, Y) ** power).sum()


def scanned(f: F) -> Any:
    def step(x: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        return x * 0.9, f(x, Y).sum()

    return jax.grad(lambda x: jax.lax.scan(step, x, None, length=3)[1].prod())(X)


def exact_zero_gradients(f: F) -> Any:
    return jax.grad(lambda x, y: f(x, jax.lax.stop_gradient(y)).sum(), argnums=(0, 1))(X, Y)


USES: dict[str, Callable[[F], Any]] = {
    "grad": lambda f: jax.grad(loss(f))(X),
    "value and grad": lambda f: jax.value_and_grad(loss(f))(X),
    "grad of grad": lambda f: jax.grad(lambda x: (jax.grad(loss(f))(x) ** 2).sum())(X),
    "both arguments": lambda f: jax.grad(lambda x, y: (f(x, y) ** 2).sum(), argnums=(0, 1))(X, Y),
    "the second twice": lambda f: jax.grad(
        lambda y: (jax.grad(lambda y: (f(X, y) ** 3).sum())(y) ** 2).sum()
    )(Y),
    "jacrev": lambda f: jax.jacrev(f, argnums=(0, 1))(X, Y),
    "jacrev of jacrev": lambda f: jax.jacrev(jax.jacrev(loss(f)))(X),
    "vjp": lambda f: jax.vjp(f, X, Y)[1](jnp.ones((3, 5))),
    "vmap": lambda f: jax.vmap(f, (0, None))(BATCH, Y),
    "vmap of vmap": lambda f: jax.vmap(jax.vmap(f, (None, -1)), (0, None))(BATCH, LAST),
    "vmap of grad": lambda f: jax.vmap(jax.grad(loss(f)))(BATCH),
    "grad of vmap": lambda f: jax.grad(lambda x: (jax.vmap(f, (0, None))(x, Y) ** 2).sum())(BATCH),
    "vmap of grad of grad": lambda f: jax.vmap(jax.grad(lambda x: (jax.grad(loss(f))(x) ** 2).sum()))(BATCH),
    "jit of vmap of grad": lambda f: jax.jit(jax.vmap(jax.jit(jax.grad(loss(f)))))(BATCH),
    "checkpoint": lambda f: jax.grad(lambda x: (jax.checkpoint(f)(x, Y) ** 2).sum())(X),
    "checkpoint of grad": lambda f: jax.grad(lambda x: (jax.checkpoint(jax.grad(loss(f)))(x) ** 2).sum())(X),
    "scan": scanned,
    "cond": lambda f: jax.grad(lambda x: jax.lax.cond(x[0, 0] > 9, loss(f), loss(f, 3), x))(X),
    "a gradient that nothing flows back by": exact_zero_gradients,
    "map": lambda f: jax.grad(lambda x: jax.lax.map(loss(f), x).sum())(BATCH),
}


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_as_plain_jax(distances: opsmith.Library, use: Callable[[F], Any], jit: bool) -> None:
    f = distances.pairwise_manhattan_distance
    answers, expected = use(jax.jit(f) if jit else f), use(reference)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), answers, expected)


def test_only_gradients_that_are_wanted_are_computed(distances: opsmith.Library) -> None:
    f = distances.pairwise_manhattan_distance
    for argument, wanted in ((0, 1), (1, 2), ((0, 1), 3)):
        jaxpr = str(jax.make_jaxpr(jax.grad(lambda x, y: f(x, y).sum(), argnums=argument))(X, Y))
        assert jaxpr.count(f"distances.pairwise_manhattan_distance_grad(wanted={wanted})") == 1
        assert jaxpr.count("opsmith_call[") == 2 and "opsmith_derivative" not in jaxpr


@pytest.mark.skipif(jax.__version_info__ < (0, 6), reason="JAX 0.5 keeps more, whatever the op asks for")
def test_what_backward_does_not_need_is_not_kept(zero_out: opsmith.Library) -> None:
    _, pullback = jax.vjp(lambda x: zero_out.zero_out_real(x), floats(1000))
    assert sum(x.size for x in jax.tree.leaves(pullback)) < 1000


def test_an_integer_output_has_no_gradient(zero_out: opsmith.Library) -> None:
    x = jnp.array([1.0, 3.0, 2.0])
    assert jax.grad(lambda x: zero_out.max_with_index(x)[0])(x).tolist() == [0, 1, 0]
    assert jax.grad(lambda x: zero_out.max_with_index(x)[1].astype(float))(x).tolist() == [0, 0, 0]
    with pytest.raises(TypeError, match="int"):
        jax.grad(lambda x: zero_out.max_with_index(x)[1])(x)


def test_an_integer_input_has_no_gradient(zero_out: opsmith.Library) -> None:
    values, at, upstream = floats(4), jnp.asarray(2), floats()
    grads = jax.grad(
        lambda *args: zero_out.max_with_index_grad(*args).sum(), argnums=(0, 1, 2), allow_int=True
    )(values, at, upstream)
    assert grads[0].tolist() == [0] * 4 and grads[1].dtype == jax.dtypes.float0 and grads[2] == 1
    integers = jnp.arange(6).reshape(2, 3)
    grad = jax.grad(lambda x: zero_out.sum_all([x, x]).sum().astype(float), allow_int=True)(integers)
    assert grad.dtype == jax.dtypes.float0


def test_zeros_flow_back_through_what_is_not_differentiable(zero_out: opsmith.Library) -> None:
    x = jnp.arange(6)

    def through(x: jax.Array) -> jax.Array:
        return zero_out.zero_out(x.astype(np.int32)).sum().astype(float) + x.sum()

    assert jax.grad(through)(x.astype(float)).tolist() == [1] * 6


def test_undeclared_gradients_are_an_error(testops: opsmith.Library, distances: opsmith.Library) -> None:
    for program in (
        jax.grad,
        lambda f: jax.jit(jax.grad(f)),
        lambda f: jax.vmap(jax.grad(f), (None,), axis_size=2),
    ):
        with pytest.raises(opsmith.UnimplementedError, match=r"^Pairwise: has no gradient"):
            program(lambda x: testops.pairwise(x, Y).sum())(X)
    assert (
        jax.grad(lambda x: jax.lax.stop_gradient(testops.pairwise(x, Y)).sum() + x.sum())(X).tolist()
        == [[1] * 4] * 3
    )

    def third(f: F) -> Any:
        second = lambda x: jax.grad(lambda x: (jax.grad(loss(f, 4))(x) ** 2).sum())(x).sum()  # noqa: E731
        return jax.grad(second)(X)

    with pytest.raises(
        opsmith.UnimplementedError, match="PairwiseManhattanDistanceGradGrad: has no gradient"
    ):
        third(distances.pairwise_manhattan_distance)


def test_in_place_ops_have_no_gradient(testops: opsmith.Library) -> None:
    with pytest.raises(opsmith.UnimplementedError, match="Increment: has no gradient"):
        jax.grad(lambda x: testops.increment(x).sum())(jnp.ones(3, np.float32))


def test_an_attribute_reaches_the_gradient(zero_out: opsmith.Library) -> None:
    for index in (0, 2):
        grad = jax.grad(lambda x, index=index: zero_out.zero_out_real(x, preserve_index=index).sum())(
            jnp.ones(4)
        )
        assert grad.tolist() == np.eye(4)[index].tolist()


def test_lists_have_a_gradient_for_each_tensor(zero_out: opsmith.Library) -> None:
    x = floats(3)
    assert jax.grad(lambda x: zero_out.sum_all([x, 2 * x, jnp.ones(3)]).sum())(x).tolist() == [3] * 3
    grads = jax.grad(lambda terms: zero_out.sum_all(terms).sum())([x, x])
    assert [grad.tolist() for grad in grads] == [[1] * 3] * 2


def test_special_values(distances: opsmith.Library) -> None:
    x = jnp.array([[np.nan, 0.0], [np.inf, 0.0], [1.0, 2.0]])
    ours = jax.grad(lambda x: distances.pairwise_manhattan_distance(x, jnp.zeros((1, 2))).sum())(x)
    assert np.isnan(ours[0, 0]) and ours[1].tolist() == [1, 0] and ours[2].tolist() == [1, 1]
    empty = jax.grad(lambda x: distances.pairwise_manhattan_distance(x, Y).sum())(jnp.zeros((0, 4)))
    assert empty.shape == (0, 4)
