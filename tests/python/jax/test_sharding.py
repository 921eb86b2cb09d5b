"""Calls on arrays that are divided over devices: values as of whole arrays, and nothing gathered along free
axes."""

from __future__ import annotations

import gc
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import axes_bodies
import jax
import jax.numpy as jnp
import kernel_formulas
import numpy as np
import op_samples
import opsmith
import pytest
from conftest import library_path, load
from jax import export
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from opsmith._axes import FreeAxes, FreeAxis
from opsmith._definition import Op
from opsmith._library import definition_of

pytestmark = pytest.mark.skipif(jax.__version_info__ < (0, 7), reason="before JAX 0.7 calls are not divided")

RNG = np.random.default_rng(0)
MESH = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("i", "j"))
X, Y = jnp.asarray(RNG.random((8, 4))), jnp.asarray(RNG.random((4, 4)))
F = Callable[..., Any]
MOVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")


def close(found: Any, expected: Any) -> None:
    """The trees have the same values."""
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), found, expected)


def put(x: Any, *spec: Any, mesh: Mesh = MESH) -> jax.Array:
    """The array, divided."""
    return jax.device_put(x, NamedSharding(mesh, P(*spec)))


def moves(f: F, *inputs: Any) -> set[str]:
    """What the compiled program sends between devices."""
    text = jax.jit(f).lower(*inputs).compile().as_text()
    return {name for name in MOVES if re.search(rf"\b{name}(-start)?\(", text)}


def loss(f: F) -> F:
    return lambda x, y: (f(x, y) ** 3).sum()


LAYOUTS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...], P, set[str]]] = {
    "rows of x": (("i",), (), P("i"), set()),
    "rows of y": ((), ("j",), P(None, "j"), set()),
    "rows of both": (("i",), ("j",), P("i", "j"), set()),
    "two axes": ((("i", "j"),), (), P(("i", "j")), set()),
    "one axis twice": (("i",), ("i",), P("i"), {"all-gather"}),
    "what is summed": ((None, "i"), (None, "i"), P(), {"all-gather"}),
    "rows, and what is summed": (("j", "i"), (), P("j"), {"all-gather"}),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_layouts(distances: opsmith.Library, layout: Any) -> None:
    of_x, of_y, of_z, sent = layout
    f = distances.pairwise_manhattan_distance
    x, y = put(X, *of_x), put(Y, *of_y)
    found = jax.jit(f)(x, y)
    close(found, f(X, Y))
    assert found.sharding.is_equivalent_to(NamedSharding(MESH, of_z), 2)
    assert moves(f, x, y) == sent
    close(f(x, y), found)
    for derivative in (jax.grad(loss(f), (0, 1)), jax.hessian(loss(f))):
        close(jax.jit(derivative)(x, y), derivative(X, Y))
    close(jax.jit(lambda x, y: jax.jvp(f, (x, y), (x, y)))(x, y), jax.jvp(f, (X, Y), (X, Y)))


def test_a_gradient_sums_over_the_parts(distances: opsmith.Library) -> None:
    f = distances.pairwise_manhattan_distance
    x, y = put(X, "i"), put(Y)
    assert moves(jax.grad(loss(f), 0), x, y) == set()
    assert moves(jax.grad(loss(f), 1), x, y) == {"all-reduce"}


@pytest.mark.parametrize("rows", [1, 3, 5, 6])
def test_sizes_that_do_not_divide_are_whole(distances: opsmith.Library, rows: int) -> None:
    f = distances.pairwise_manhattan_distance
    x = jnp.asarray(RNG.random((rows, 4)))
    spread = lambda x, y: f(jax.lax.with_sharding_constraint(x, NamedSharding(MESH, P(("i", "j")))), y)  # noqa: E731
    close(jax.jit(spread)(x, Y), f(x, Y))
    close(jax.jit(jax.grad(loss(spread), (0, 1)))(x, Y), jax.grad(loss(f), (0, 1))(x, Y))


def test_other_transformations(distances: opsmith.Library) -> None:
    f = distances.pairwise_manhattan_distance
    batch = jnp.stack([X, 2 * X, 3 * X, X + 1])
    programs: list[tuple[F, tuple[Any, ...]]] = [
        (jax.vmap(f, (0, None)), ("i",)),
        (jax.vmap(f, (0, None)), (None, "i")),
        (jax.vmap(jax.grad(lambda x, y: (f(x, y) ** 2).sum()), (0, None)), ("i",)),
        (
            lambda x, y: jax.lax.scan(lambda c, row: (c + f(row, y), None), jnp.zeros((8, 4)), x)[0],
            (None, "j"),
        ),
        (lambda x, y: jax.checkpoint(jax.vmap(f, (0, None)))(x, y), (None, "i")),
        (lambda x, y: jax.lax.cond(x[0, 0, 0] > 9, lambda: f(x[0], y), lambda: f(x[1], y)), (None, "i")),
    ]
    for program, spec in programs:
        close(jax.jit(program)(put(batch, *spec), put(Y, "j")), program(batch, Y))
    rows = put(batch, "i")
    assert moves(jax.vmap(f, (0, None)), rows, put(Y)) == set()


def test_lists_absent_and_constant_inputs(zero_out: opsmith.Library, testops: opsmith.Library) -> None:
    terms = [X, 2 * X, jnp.ones((8, 4))]
    divided = [put(x, "i", "j") for x in terms]
    assert moves(zero_out.sum_all, divided) == set()
    close(jax.jit(zero_out.sum_all)(divided), zero_out.sum_all(terms))
    total = lambda terms: (zero_out.sum_all(terms) ** 2).sum()  # noqa: E731
    close(jax.jit(jax.grad(total))(divided), jax.grad(total)(terms))
    x = put(X.astype(np.float32), "i")
    close(jax.jit(lambda x: testops.scaled([2.0], x))(x), 2 * x)
    close(jax.jit(testops.add_optional)(put(X[:, 0], "i")), X[:, 0])


def test_many_inputs(ops: opsmith.Library) -> None:
    columns = [jnp.asarray(RNG.random((4, 3))) for _ in range(12)]
    together = lambda *columns: ops.concat(list(columns), axis=1)  # noqa: E731
    close(jax.jit(together)(*(put(x, "i") for x in columns)), jnp.concatenate(columns, 1))


def test_programs_that_jax_keeps_on_disk(tmp_path: Path) -> None:
    """Two calls that differ by an attribute alone are two programs."""
    kept = {
        "jax_compilation_cache_dir": str(tmp_path),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in kept}
    kernels, x, weight = load("kernels"), put(X, "i"), put(jnp.ones(4))
    try:
        for name, value in kept.items():
            jax.config.update(name, value)
        for epsilon in range(1, 31):
            found = jax.jit(lambda x, w, by=float(epsilon): kernels.rms_norm(x, w, epsilon=by))(x, weight)
            close(found, X / jnp.sqrt((X * X).mean(-1, keepdims=True) + epsilon))
            # What is kept in memory may give its address to the next.
            jax.clear_caches()
            gc.collect()
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def test_broadcast_dims_are_whole(ops: opsmith.Library) -> None:
    row, column = jnp.asarray(RNG.random((1, 4))), jnp.asarray(RNG.random((8, 1)))
    square = lambda f: lambda x, y: (f(x, y) ** 2).sum()  # noqa: E731
    for x, y in ((put(X, "i", "j"), put(row)), (put(X, "i"), put(column, "i")), (put(X, "i"), put(row[0]))):
        assert moves(ops.mul, x, y) == set()
        close(jax.jit(ops.mul)(x, y), np.asarray(x) * np.asarray(y))
        gradient = lambda f: jax.grad(square(f), (0, 1))  # noqa: E731
        close(jax.jit(gradient(ops.mul))(x, y), gradient(jnp.multiply)(np.asarray(x), np.asarray(y)))


def along(axes: Sequence[FreeAxis], inputs: Sequence[Any], names: str) -> list[Any]:
    """The inputs, divided in two along the first free axes that have equal parts."""
    shapes = [[x.shape for x in op_samples.flat(value)] for value in inputs]
    even = [axis for axis in axes if axis.size(shapes) and axis.size(shapes) % 2 == 0]
    over = list(zip(even, names, strict=False))

    def one(x: Any, position: int) -> Any:
        if isinstance(x, list):
            return [one(each, position) for each in x]
        spec: list[Any] = [None] * x.ndim
        for axis, name in over:
            at = axis.position(axis.inputs[position], x.shape, axis.size(shapes))
            if at is not None and spec[at] is None:
                spec[at] = name
        return put(jnp.asarray(x), *spec)

    return [one(value, position) for position, value in enumerate(inputs)]


def free_axes(library: opsmith.Library, op: Op, attrs: dict[str, Any], inputs: Sequence[Any]) -> Any:
    """Those of a call."""
    shapes = [[x.shape for x in op_samples.flat(value)] for value in inputs]
    ranks = [max(map(len, group)) if group else None for group in shapes]
    return FreeAxes(library._opsmith_loaded, op).of(attrs, ranks)


SAMPLES = [sample for sample in op_samples.samples() if "_grad_grad" not in sample.id]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.id)
def test_every_op(sample: op_samples.Sample) -> None:
    """Of what is summed over a divided axis only sums are sent."""
    library, inputs = load(sample.library), jax.tree.map(jnp.asarray, sample.inputs)
    axes = free_axes(library, sample.op, sample.attrs, inputs)
    divided = along(axes, inputs, "ij")
    call = lambda *inputs: sample.call(*inputs)  # noqa: E731
    close(jax.jit(call)(*divided), sample.call(*inputs))
    has_sums = any(is_sum for axis in axes for is_sum in axis.sums)
    assert moves(call, *divided) <= ({"all-reduce"} if has_sums else set())


FORMULAS = kernel_formulas.formulas(np)


@pytest.mark.parametrize("op", FORMULAS)
def test_derivatives_of_kernels(op: str) -> None:
    kernels, formula = load("kernels"), FORMULAS[op]
    function = getattr(kernels, op)
    inputs = [jnp.asarray(x) for x in (*formula.numbers(3), *formula.others)]
    numbers = tuple(range(len(formula.shapes)))
    if not jnp.issubdtype(function(*inputs, **formula.attrs).dtype, jnp.floating):
        return close(
            jax.jit(lambda *x: function(*x, **formula.attrs))(*inputs), function(*inputs, **formula.attrs)
        )
    definition = next(each for each in definition_of(kernels).ops if each.snake_name == op)
    divided = along(free_axes(kernels, definition, formula.attrs, inputs), inputs, "ij")

    def total(*inputs: Any) -> Any:
        return (function(*inputs, **formula.attrs) ** 2).sum()

    return close(
        jax.jit(jax.value_and_grad(total, numbers))(*divided), jax.value_and_grad(total, numbers)(*inputs)
    )


BODIES = [body for body in axes_bodies.bodies() if len(body.inputs) > 1][:30]
EVEN = {"i": 4, "j": 2, "k": 4, "l": 2}


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.name)
def test_generated_bodies(body: axes_bodies.Body) -> None:
    library = axes_bodies.build()
    function = getattr(library, body.name)
    op = next(each for each in definition_of(library).ops if each.snake_name == body.name)
    inputs = [jnp.asarray(x) for x in body.numbers(EVEN, 4)]
    axes = free_axes(library, op, {}, inputs)
    divided = along(axes, inputs, "ij")
    close(jax.jit(function)(*divided), function(*inputs))
    assert moves(function, *divided) == set()

    def total(*inputs: Any) -> Any:
        return sum((z**2).sum() for z in op_samples.flat(function(*inputs)))

    gradient = jax.grad(total, tuple(range(len(inputs))))
    close(jax.jit(gradient)(*divided), gradient(*inputs))


def test_exported_programs_are_whole(distances: opsmith.Library) -> None:
    f, checks = distances.pairwise_manhattan_distance, opsmith.jax.export_checks(distances)
    x, y = put(X, "i"), put(Y)
    exported = export.export(jax.jit(f), disabled_checks=checks)(x, y)
    assert exported.nr_devices == 4
    again = export.deserialize(exported.serialize())
    close(jax.jit(again.call)(x, y), f(X, Y))
    one = export.export(jax.jit(f), disabled_checks=checks)(X, Y)
    close(one.call(X, Y), f(X, Y))


def test_inside_and_beside_shard_map(distances: opsmith.Library) -> None:
    f = distances.pairwise_manhattan_distance
    part = jax.shard_map(f, mesh=MESH, in_specs=(P("i"), P()), out_specs=P("i"))
    both = lambda x, y: part(x, y) + f(x, y)  # noqa: E731
    close(jax.jit(both)(put(X, "i"), put(Y)), 2 * f(X, Y))
    close(
        jax.jit(jax.grad(loss(both), (0, 1)))(put(X, "i"), put(Y)),
        jax.grad(loss(lambda x, y: 2 * f(x, y)), (0, 1))(X, Y),
    )


@pytest.mark.skipif(jax.__version_info__ < (0, 10), reason="explicit axes are typed from JAX 0.10 on")
@pytest.mark.parametrize(
    "of_x, of_y, of_z",
    [
        (("i",), (), ("i", None)),
        (("i",), ("j",), ("i", "j")),
        ((None, "j"), (), (None, None)),
    ],
)
def test_explicit_axes(distances: opsmith.Library, of_x: Any, of_y: Any, of_z: Any) -> None:
    f = distances.pairwise_manhattan_distance
    mesh = jax.make_mesh((2, 2), ("i", "j"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    x, y = put(X, *of_x, mesh=mesh), put(Y, *of_y, mesh=mesh)
    found = f(x, y)
    close(found, f(X, Y))
    assert jax.typeof(found).sharding.spec == P(*of_z)
    derivatives = [jax.grad(loss(f), (0, 1)), lambda x, y: jax.jvp(f, (x, y), (x, y))]
    derivatives.append(lambda x, y: jax.jvp(jax.grad(loss(f), (0, 1)), (x, y), (x, y)))
    with jax.set_mesh(mesh):
        for derivative in derivatives:
            close(jax.jit(derivative)(x, y), derivative(X, Y))


def test_a_failing_part_names_the_op(testops: opsmith.Library) -> None:
    x = put(jnp.ones((4, 3), np.float32), "i")
    with pytest.raises(jax.errors.JaxRuntimeError, match="Fails: it failed"):
        jax.block_until_ready(jax.jit(testops.fails)(x))


def test_the_program_in_the_guide(tmp_path: Path) -> None:
    """What it shows is what is printed."""
    guide = Path(__file__).parents[3] / "docs" / "scaling.md"
    program = guide.read_text(encoding="utf-8").split("\n## JAX\n")[1].split("```python\n")[1].split("```")[0]
    (tmp_path / "target" / "release").mkdir(parents=True)
    (tmp_path / "target" / "release" / "libdistances.so").symlink_to(library_path("distances"))
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == re.findall(r"^print\(.*\)    # (.*)$", program, re.MULTILINE)


def test_two_processes() -> None:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        address = f"localhost:{probe.getsockname()[1]}"
    script = Path(__file__).with_name("distributed_worker.py")
    commands = [
        [sys.executable, str(script), address, str(number), str(library_path("distances"))]
        for number in range(2)
    ]
    workers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for command in commands
    ]
    answers = []
    try:
        answers = [worker.communicate(timeout=240)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    for number, (worker, answer) in enumerate(zip(workers, answers, strict=True)):
        assert worker.returncode == 0 and f"well {number}" in answer, answer
