"""Ops inside of `jax.shard_map`, against the same computation on whole arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import opsmith
import opsmith.jax
import pytest
import registered
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

pytestmark = pytest.mark.skipif(not hasattr(jax, "shard_map"), reason="JAX 0.5 has another one")

RNG = np.random.default_rng(0)
X, Y = jnp.asarray(RNG.random((8, 3))), jnp.asarray(RNG.random((4, 3)))
WEIGHTS = jnp.asarray(RNG.random((8, 4)))
# One for all tests: eager JAX takes one mesh for another of the same devices.
MESH = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("i", "j"))
F = Callable[..., Any]


def close(found: Any, expected: Any) -> None:
    """The trees have the same values."""
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12), found, expected)


LAYOUTS: dict[str, tuple[tuple[P, P], P]] = {
    "rows of x": ((P("i"), P()), P("i")),
    "rows of y": ((P(), P("j")), P(None, "j")),
    "rows of both": ((P("i"), P("j")), P("i", "j")),
    "two axes": ((P(("i", "j")), P()), P(("i", "j"))),
    "nothing": ((P(), P()), P()),
}


@pytest.fixture(params=LAYOUTS.values(), ids=LAYOUTS.keys())
def sharded(request: pytest.FixtureRequest) -> Callable[[F], F]:
    """Has a function of rows of x and of y computed in parts."""
    inputs, output = request.param
    return lambda f: jax.shard_map(f, mesh=MESH, in_specs=inputs, out_specs=output)


def test_forward(distances: opsmith.Library, sharded: Callable[[F], F]) -> None:
    f = distances.pairwise_manhattan_distance
    for program in (sharded(f), jax.jit(sharded(f)), jax.jit(sharded(jax.jit(f)))):
        close(program(X, Y), f(X, Y))


def loss(f: F) -> F:
    """A number of which every derivative up to the second depends on everything."""
    return lambda x, y: (f(x, y) ** 3 * WEIGHTS).sum()


def first(f: F) -> F:
    return jax.grad(loss(f), (0, 1))


def second(f: F) -> F:
    return jax.grad(lambda x, y: sum((g**2).sum() for g in first(f)(x, y)), (0, 1))


@pytest.mark.parametrize("derivative", [first, second])
def test_gradients_outside(
    distances: opsmith.Library, sharded: Callable[[F], F], derivative: Callable[[F], F]
) -> None:
    f = distances.pairwise_manhattan_distance
    close(jax.jit(derivative(sharded(f)))(X, Y), derivative(f)(X, Y))


def test_gradients_outside_without_jit(distances: opsmith.Library) -> None:
    f = distances.pairwise_manhattan_distance
    parts = jax.shard_map(f, mesh=MESH, in_specs=(P("i"), P()), out_specs=P("i"))
    close(first(parts)(X, Y), first(f)(X, Y))
    for argument in (0, 1):
        close(jax.grad(loss(parts), argument)(X, Y), jax.grad(loss(f), argument)(X, Y))


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
@pytest.mark.parametrize("argument", [0, 1, (0, 1)])
def test_gradients_inside(distances: opsmith.Library, layout: Any, argument: Any) -> None:
    inputs, output = layout
    f = distances.pairwise_manhattan_distance

    def part(x: jax.Array, y: jax.Array, weights: jax.Array) -> Any:
        # JAX sums the gradient of what every device has.
        return jax.grad(lambda x, y: (f(x, y) ** 3 * weights).sum(), argument)(x, y)

    specs = tuple(inputs[i] for i in argument) if isinstance(argument, tuple) else inputs[argument]
    parts = jax.shard_map(part, mesh=MESH, in_specs=(*inputs, output), out_specs=specs)
    close(jax.jit(parts)(X, Y, WEIGHTS), jax.grad(loss(f), argument)(X, Y))


def test_second_order_inside(distances: opsmith.Library) -> None:
    f = distances.pairwise_manhattan_distance

    def part(x: jax.Array, y: jax.Array) -> Any:
        inner = jax.grad(lambda x, y: (f(x, y) ** 3).sum())
        return jax.grad(lambda x, y: (inner(x, y) ** 2).sum(), (0, 1))(x, y)

    parts = jax.shard_map(part, mesh=MESH, in_specs=(P("i"), P()), out_specs=(P("i"), P()))
    close(parts(X, Y), part(X, Y))


def test_vmap_and_loops_inside(distances: opsmith.Library, zero_out: opsmith.Library) -> None:
    f = distances.pairwise_manhattan_distance
    batch = jnp.stack([X, 2 * X, 3 * X])

    def looped(x: jax.Array, y: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda total, x: (total + f(x, y), None), 0 * f(x[0], y), x)[0]

    def scaled(x: jax.Array, y: jax.Array) -> jax.Array:
        return jax.vmap(jax.grad(lambda x: (f(x, y) ** 2).sum()))(x)

    rows = P(None, "i")
    for part, output in (
        (jax.vmap(f, (0, None)), rows),
        (looped, P("i")),
        (jax.checkpoint(looped), P("i")),
        (scaled, rows),
    ):
        parts = jax.shard_map(part, mesh=MESH, in_specs=(rows, P()), out_specs=output)
        close(jax.jit(parts)(batch, Y), part(batch, Y))
        total = lambda g: jax.grad(lambda x, y: (g(x, y) ** 2).sum(), (0, 1))  # noqa: E731
        close(jax.jit(total(parts))(batch, Y), total(part)(batch, Y))
    each = jax.shard_map(jax.vmap(zero_out.zero_out_rows), mesh=MESH, in_specs=rows, out_specs=rows)
    close(each(batch), zero_out.zero_out_rows(batch))


def test_vmap_outside(distances: opsmith.Library) -> None:
    f = distances.pairwise_manhattan_distance
    parts = jax.shard_map(f, mesh=MESH, in_specs=(P("i"), P()), out_specs=P("i"))
    batch = jnp.stack([X, 2 * X, 3 * X])
    close(jax.vmap(parts, (0, None))(batch, Y), jax.vmap(f, (0, None))(batch, Y))


@pytest.mark.parametrize("policy", [None, lambda primitive, *_, **__: primitive.name == "opsmith_call"])
def test_what_a_checkpoint_keeps(distances: opsmith.Library, policy: Any) -> None:
    f = distances.pairwise_manhattan_distance
    part = jax.checkpoint(lambda x, y: jnp.sin(f(x, y)), policy=policy)
    parts = jax.shard_map(part, mesh=MESH, in_specs=(P("i"), P()), out_specs=P("i"))
    close(first(parts)(X, Y), first(part)(X, Y))
    close(jax.jit(first(parts))(X, Y), first(part)(X, Y))


@pytest.mark.parametrize("spec", [P(), P("j")])
def test_a_part_is_not_taken_for_the_whole(
    distances: opsmith.Library, testops: opsmith.Library, spec: P
) -> None:
    f = distances.pairwise_manhattan_distance
    for part in (f, jax.jit(f), jax.grad(lambda x, y: f(x, y).sum())):
        parts = jax.shard_map(part, mesh=MESH, in_specs=(P("i"), P()), out_specs=spec)
        with pytest.raises(ValueError, match="out_specs"):
            parts(X, Y)
    changed = jax.shard_map(testops.increment, mesh=MESH, in_specs=P("i"), out_specs=spec)
    with pytest.raises(ValueError, match="out_specs"):
        changed(X.astype(np.float32))


def counter_of(testops: opsmith.Library) -> F:
    """An op without inputs, of which nothing but JAX's own function is JAX's."""
    return opsmith.jax.wire(testops._opsmith_loaded)["Counter"]


def test_unchecked(distances: opsmith.Library, testops: opsmith.Library) -> None:
    f = distances.pairwise_manhattan_distance
    sharded = partial(jax.shard_map, mesh=MESH, check_vma=False)
    parts = sharded(f, in_specs=(P("i"), P()), out_specs=P("i"))
    close(parts(X, Y), f(X, Y))
    close(jax.jit(first(parts))(X, Y), first(f)(X, Y))
    # Nobody is asked whether this is the same everywhere.
    close(sharded(f, in_specs=(P("i"), P()), out_specs=P())(X, Y), f(X[:4], Y))
    assert sharded(counter_of(testops), in_specs=(), out_specs=P())().shape == ()


def test_an_op_with_state_may_differ_everywhere(testops: opsmith.Library) -> None:
    counter = counter_of(testops)
    sharded = partial(jax.shard_map, mesh=MESH, in_specs=())
    with pytest.raises(ValueError, match="out_specs"):
        sharded(counter, out_specs=P())()
    counts = sharded(lambda: counter()[None], out_specs=P(("i", "j")))()
    assert len(set(counts.tolist())) == 4


def test_every_kind_of_argument(testops: opsmith.Library, zero_out: opsmith.Library) -> None:
    sharded = partial(jax.shard_map, mesh=MESH)
    x = X[:, 0]

    def total(x: jax.Array, y: jax.Array) -> jax.Array:
        return zero_out.sum_all([x, 2 * x, y, jnp.ones(x.shape)]) ** 2

    parts = sharded(total, in_specs=(P("i"), P("j")), out_specs=P(("i", "j")))
    whole = lambda x, y: jnp.concatenate([total(a, b) for a in x.reshape(2, 4) for b in y.reshape(2, 4)])  # noqa: E731
    close(parts(x, 3 * x), whole(x, 3 * x))
    gradient = lambda f: jax.grad(lambda x, y: f(x, y).sum(), (0, 1))(x, 3 * x)  # noqa: E731
    close(gradient(parts), gradient(whole))

    add = sharded(testops.add_optional, in_specs=(P("i"), P()), out_specs=P("i"))
    close(add(x, jnp.ones(4)), x + 1)
    close(sharded(testops.add_optional, in_specs=P("i"), out_specs=P("i"))(x), x)
    # Part of the program.
    by_two = sharded(lambda x: testops.scaled([2.0], x), in_specs=P("i"), out_specs=P("i"))
    close(by_two(X), 2 * X)
    close(jax.grad(lambda x: (by_two(x) ** 2).sum())(X), 8 * X)
    # Several outputs, one of them of integers.
    largest = sharded(
        lambda x: tuple(y[None] for y in zero_out.max_with_index(x)), in_specs=P("i"), out_specs=P("i")
    )
    values, positions = largest(x)
    close(values, x.reshape(2, 4).max(1))
    close(positions, x.reshape(2, 4).argmax(1))
    close(jax.grad(lambda x: largest(x)[0].sum())(x), (x.reshape(2, 4) == values[:, None]).ravel() * 1.0)


def test_integers_beside_parts(ops: opsmith.Library) -> None:
    places = jnp.array([2, 0, 1])
    part = lambda x, places: ops.gather(x, places, axis=1) ** 2  # noqa: E731
    parts = jax.shard_map(part, mesh=MESH, in_specs=(P("i"), P()), out_specs=P("i"))
    gradient = lambda f: jax.grad(lambda x: (f(x, places) * x).sum())(X)  # noqa: E731
    close(parts(X, places), part(X, places))
    close(gradient(parts), gradient(part))


@pytest.fixture
def forgotten() -> Iterator[None]:
    """What a test registers is gone after it."""
    with registered.forgotten():
        yield


@pytest.mark.usefixtures("forgotten")
def test_registered_gradients(testops: opsmith.Library, distances: opsmith.Library) -> None:
    opsmith.register_gradient(testops.pairwise)(registered.of_pairwise(distances))
    opsmith.register_gradient(testops.squares)(registered.of_squares)
    # As a constant, which is the same everywhere.
    opsmith.register_gradient(testops.add_optional)(lambda inputs, *_: [jnp.full(inputs[0].shape, 2.0)] * 2)
    sharded = partial(jax.shard_map, mesh=MESH)
    f = sharded(testops.pairwise, in_specs=(P("i"), P("j")), out_specs=P("i", "j"))
    close(jax.jit(first(f))(X, Y), first(distances.pairwise_manhattan_distance)(X, Y))
    x = X[:, 0]
    square = sharded(testops.squares, in_specs=P("i"), out_specs=P("i"))
    close(jax.jit(jax.grad(lambda x: square(x).sum()))(x), 2 * x)
    close(jax.jit(jax.grad(lambda x: (jax.grad(lambda x: square(x).sum())(x) ** 2).sum()))(x), 8 * x)
    add = sharded(testops.add_optional, in_specs=(P("i"), P()), out_specs=P("i"))
    gradients = jax.jit(jax.grad(lambda x, y: add(x, y).sum(), (0, 1)))(x, jnp.ones(4))
    close(gradients, (jnp.full(8, 2.0), jnp.full(4, 4.0)))


def test_pmap(distances: opsmith.Library) -> None:
    f = distances.pairwise_manhattan_distance
    parts = X.reshape(4, 2, 3)
    close(jax.pmap(f, in_axes=(0, None))(parts, Y).reshape(8, 4), f(X, Y))
    gradient = jax.grad(lambda x, y: (f(x, y) ** 2).sum())
    close(jax.pmap(gradient, in_axes=(0, None))(parts, Y).reshape(8, 3), gradient(X, Y))


@pytest.mark.skipif(jax.__version_info__ < (0, 7), reason="the XLA of JAX 0.6 aborts, whatever is divided")
def test_an_axis_that_jax_divides_itself(distances: opsmith.Library) -> None:
    f = distances.pairwise_manhattan_distance
    parts = jax.shard_map(f, mesh=MESH, axis_names={"i"}, in_specs=(P("i"), P()), out_specs=P("i"))
    close(jax.jit(parts)(X, Y), f(X, Y))
    close(jax.jit(first(parts))(X, Y), first(f)(X, Y))


def test_the_program_in_the_guide(distances: opsmith.Library) -> None:
    guide = Path(__file__).parents[3] / "docs" / "frameworks.md"
    section = guide.read_text(encoding="utf-8").split("\n## JAX\n")[1].split("\n## ")[0]
    names = {"jax": jax, "jnp": jnp, "distances": distances}
    (program,) = (block for block in section.split("```python\n")[1:] if "mesh" in block.split("```")[0])
    exec(program.split("```")[0], names)
    assert names["z"].sharding.is_equivalent_to(jax.sharding.NamedSharding(names["mesh"], P("i")), 2)
