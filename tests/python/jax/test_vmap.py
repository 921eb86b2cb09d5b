"""`jax.vmap` of every op in every combination of axes, against a loop."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import kernel_formulas
import numpy as np
import opsmith
import pytest
from conftest import load
from opsmith._library import definition_of

SIZE = 3
MOST = 12
"""The combinations that are tried of one op."""
RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Sample:
    """The shapes and dtypes of the inputs of one call: a pair for each tensor, lists of pairs for lists."""

    inputs: tuple[Any, ...]
    attrs: dict[str, Any] = field(default_factory=dict)


F64, F32, I32, I64 = "float64", "float32", "int32", "int64"
SAMPLES: dict[str, dict[str, Sample]] = {
    "distances": {
        "PairwiseManhattanDistance": Sample((((2, 4), F64), ((5, 4), F64))),
        "PairwiseManhattanDistanceGrad": Sample((((2, 4), F32), ((5, 4), F32), ((2, 5), F32))),
        "PairwiseManhattanDistanceGradGrad": Sample(
            (((2, 4), F64), ((5, 4), F64), ((2, 4), F64), ((5, 4), F64))
        ),
    },
    "zero_out": {
        "ZeroOut": Sample((((2, 2), I32),)),
        "ZeroOutVector": Sample((((4,), I32),)),
        "ZeroOutPreserve": Sample((((4,), I32),), {"preserve_index": 2}),
        "ZeroOutPreserveDefault": Sample((((4,), I32),)),
        "ZeroOutFloatInt": Sample((((4,), F32),)),
        "ZeroOutDefaultType": Sample((((4,), F64),), {"preserve_index": 1}),
        "ZeroOutReal": Sample((((2, 3), "bfloat16"),), {"preserve_index": 4}),
        "ZeroOutGrad": Sample((((2, 3), "float16"),)),
        "ZeroOutGradGrad": Sample((((), F64),)),
        "ZeroOutInPlace": Sample((((2, 3), F64),)),
        "ZeroOutRows": Sample((((2, 4), F64),), {"preserve_index": 2}),
        "ZeroOutRowsGrad": Sample((((4,), I64),), {"preserve_index": 2}),
        "ZeroOutRowsGradGrad": Sample((((2, 1, 4), F32),)),
        "Repeat": Sample((((4,), I32),), {"times": 3}),
        "SumInts": Sample(([((2, 3), I32), ((2, 3), I32)],)),
        "SumAll": Sample(([((2,), F64), ((2,), F64), ((2,), F64)],)),
        "SumAllGrad": Sample(([((2,), F64), ((2,), F64)], ((2,), F64))),
        "SumAllGradGrad": Sample(([((2,), I64), ((2,), I64)],)),
        "ZeroOutEach": Sample(([((2, 3), F64), ((4,), I32)],)),
        "MaxWithIndex": Sample((((5,), F64),)),
        "MaxWithIndexGrad": Sample((((5,), F64), ((), I64), ((), F64))),
        "MaxWithIndexGradGrad": Sample((((), I64), ((5,), F64))),
    },
    "opsmith_testops": {
        "Echo": Sample((((2, 3), "complex64"),)),
        "Pairwise": Sample((((2, 4), F64), ((5, 4), F64))),
        "AddOptional": Sample((((4,), F64), ((4,), F64))),
        "AddConstant": Sample((((4,), F32),)),
        "Increment": Sample((((2, 3), F32),)),
        "AddInto": Sample((((4,), F32), ((4,), F32))),
        "Lambda": Sample((((2,), F32),)),
        "Squares": Sample((((7,), F64),)),
        "Scaled": Sample((((1,), F64), ((2, 3), F32))),
        "ScaledGrad": Sample((((1,), F64), ((2, 3), F32))),
        "SquareSum": Sample((((4,), F64), ((1,), F32))),
        "SquareSumGrad": Sample((((4,), F64), ((), F64))),
        **{
            f"Product{policy}{gradient}": Sample((((2, 3), F64),) * count)
            for policy in ("Lower", "Widest")
            for gradient, count in (("", 2), ("Grad", 3), ("GradGrad", 5), ("GradGradGrad", 8))
        },
        "Power": Sample((((2, 3), F64),) * 2),
        "PowerGrad": Sample((((2, 3), F64),) * 4),
        "PowerGradGrad": Sample((((2, 3), F64),) * 6),
    },
}
WITHOUT: dict[str, set[str]] = {
    "distances": set(),
    "zero_out": {"StringToNumber", "NonZero"},
    "opsmith_testops": {
        *{"DoubleAll", "PassAll", "Extremes", "NonZero", "Strides", "StringLength", "Quote"},
        *{"Panics", "Fails", "Max", "Forgets"},
    },
}
"""Ops with inputs that JAX cannot trace, for their shapes or dtypes, or that only fail."""


def test_an_op_that_says_nothing_is_called_one_by_one_and_that_is_told(testops: opsmith.Library) -> None:
    # Once: before the others here.
    with pytest.warns(RuntimeWarning, match=r"Echo: vmap calls it for each element.*`parallel = "):
        jax.vmap(testops.echo)(jnp.ones((3, 2), jnp.float32))


def test_every_op_that_takes_tensors_has_a_sample() -> None:
    for library, samples in SAMPLES.items():
        ops = {op.name for op in definition_of(load(library)).ops if op.inputs}
        assert samples.keys() | WITHOUT[library] == ops


def array(shape: tuple[int, ...], dtype: str) -> jax.Array:
    """Small numbers, for there is an op that takes them for a position."""
    return jnp.asarray(RNG.integers(0, 5, shape)).astype(dtype)


def combinations(sample: Sample) -> Iterator[tuple[tuple[int, ...], list[int | None]]]:
    """For each tensor of a call its axis, `None` where it is not batched: all that are possible, of more than
    two tensors those at the ends, and of more than three those where no more than two are batched, or all."""
    pairs = [pair for value in sample.inputs for pair in (value if isinstance(value, list) else [value])]
    axes_of = (lambda rank: range(rank + 1)) if len(pairs) <= 2 else (lambda rank: sorted({0, rank}))
    choices = [[None, *axes_of(len(shape))] for shape, _ in pairs]
    for axes in itertools.product(*choices):
        batched = sum(axis is not None for axis in axes)
        if batched and (batched <= 2 or len(pairs) <= 3 or batched == len(pairs)):
            yield pairs, list(axes)


def loop(function: Callable[..., Any], tensors: list[jax.Array], axes: list[int | None]) -> list[jax.Array]:
    """What `vmap` stands for."""
    calls = []
    for index in range(SIZE):
        element = [
            x if axis is None else jnp.take(x, index, axis) for x, axis in zip(tensors, axes, strict=True)
        ]
        calls.append(jax.tree.leaves(function(*element)))
    return [jnp.stack(column) for column in zip(*calls, strict=True)]


CASES = [pytest.param(library, name, id=name) for library, samples in SAMPLES.items() for name in samples]


@pytest.mark.parametrize(("library", "name"), CASES)
def test_all_axes_are_those_of_a_loop(library: str, name: str) -> None:
    op = next(op for op in definition_of(load(library)).ops if op.name == name)
    sample = SAMPLES[library][name]
    function = getattr(load(library), op.snake_name + ("_" if name == "Lambda" else ""))

    def call(*tensors: jax.Array) -> Any:
        rest = iter(tensors)
        inputs = [[next(rest) for _ in v] if isinstance(v, list) else next(rest) for v in sample.inputs]
        return function(*inputs, **sample.attrs)

    batched = jax.jit(call)
    every = list(combinations(sample))
    # A program is compiled for each, so of many some are drawn, with `OPSMITH_EVERY_AXIS` all.
    some = (
        every
        if os.environ.get("OPSMITH_EVERY_AXIS")
        else random.Random(name).sample(every, min(len(every), MOST))
    )
    for pairs, axes in some:
        tensors = [
            array(shape if axis is None else (*shape[:axis], SIZE, *shape[axis:]), dtype)
            for (shape, dtype), axis in zip(pairs, axes, strict=True)
        ]
        answers = jax.tree.leaves(jax.vmap(batched, axes)(*tensors))
        for ours, expected in zip(answers, loop(batched, tensors, axes), strict=True):
            assert ours.dtype == expected.dtype
            np.testing.assert_array_equal(ours, expected)


def test_batch_dims_of_the_signature_make_one_call(zero_out: opsmith.Library) -> None:
    program = str(jax.make_jaxpr(jax.vmap(jax.vmap(zero_out.zero_out_rows)))(jnp.ones((2, 3, 4))))
    assert program.count("opsmith_call[") == 1 and "scan" not in program


def test_what_the_signature_does_not_say_is_called_one_by_one(distances: opsmith.Library) -> None:
    program = str(jax.make_jaxpr(jax.vmap(distances.pairwise_manhattan_distance))(*[jnp.ones((2, 3, 4))] * 2))
    assert "scan" in program


def test_sizes_and_places(distances: opsmith.Library, zero_out: opsmith.Library) -> None:
    f = distances.pairwise_manhattan_distance
    x, y = jnp.ones((4, 0, 3)), jnp.ones((5, 4))
    assert jax.vmap(f, (2, None))(x.transpose(1, 0, 2)[:, :, :0].transpose(1, 0, 2), y[:, :0]).shape == (
        0,
        4,
        5,
    )
    assert jax.vmap(f, (0, None))(jnp.ones((0, 3, 4)), y).shape == (0, 3, 5)
    assert jax.vmap(zero_out.zero_out_rows, out_axes=1)(jnp.ones((0, 3, 4))).shape == (3, 0, 4)
    assert jax.vmap(f, (0, None), out_axes=2)(jnp.ones((2, 3, 4)), y).shape == (3, 5, 2)


def test_an_absent_input(testops: opsmith.Library) -> None:
    x = jnp.arange(6.0).reshape(2, 3)
    assert jax.vmap(testops.add_optional)(x).tolist() == x.tolist()
    assert jax.vmap(testops.add_optional, (0, None))(x, jnp.ones(3)).tolist() == (x + 1).tolist()


def test_a_message_from_within(testops: opsmith.Library) -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match="OUT_OF_RANGE: Fails: it failed"):
        jax.vmap(testops.fails)(jnp.ones((2, 3), np.float32)).block_until_ready()


def test_bodies_are_called_once() -> None:
    kernels = load("kernels")
    formulas = kernel_formulas.formulas(np)
    for op, formula in formulas.items():
        others = [jnp.asarray(array) for array in formula.others]
        inputs = [jnp.asarray(array) for array in formula.numbers(5)]

        def value(*x: jax.Array, op: str = op, formula: Any = formula, others: Any = others) -> jax.Array:
            return getattr(kernels, op)(*x, *others, **formula.attrs)

        functions = [(value, 1)]
        if jnp.issubdtype(value(*inputs).dtype, jnp.floating):
            argnums = tuple(range(len(inputs)))
            functions.append((jax.grad(lambda *x, f=value: (f(*x) ** 2).sum(), argnums), 2))
        for axes in [[0] * len(inputs), [0, *[None] * (len(inputs) - 1)], [*[None] * (len(inputs) - 1), 1]]:
            tensors = [
                x if axis is None else jnp.stack([x, x + 0.1, x * 1.1], axis)
                for x, axis in zip(inputs, axes, strict=True)
            ]
            for function, calls in functions:
                batch = jax.vmap(function, axes)
                program = str(jax.make_jaxpr(batch)(*tensors))
                assert program.count("opsmith_call[") == calls and "scan" not in program, (op, axes)
                for ours, expected in zip(
                    jax.tree.leaves(batch(*tensors)), loop(function, tensors, axes), strict=True
                ):
                    np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("x", "y"), [((2, 4), (4,)), ((), (2, 4)), ((1, 4), (2, 1))])
def test_elements_of_other_ranks_broadcast(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    swiglu = load("activations").swiglu
    inputs = [jnp.asarray(RNG.random(shape)) for shape in (x, y)]
    slope = jax.grad(lambda x, y: (swiglu(x, y) ** 2).sum(), (0, 1))
    second = jax.grad(lambda x, y: sum((g * g).sum() for g in slope(x, y)), (0, 1))
    for axes in [[0, 0], [0, None], [None, -1]]:
        tensors = [
            a if axis is None else jnp.stack([a, a + 1, a * 2], axis)
            for a, axis in zip(inputs, axes, strict=True)
        ]
        for function in (swiglu, slope, second):
            answers = jax.tree.leaves(jax.vmap(function, axes)(*tensors))
            for ours, expected in zip(answers, loop(function, tensors, axes), strict=True):
                np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-9)


def test_a_batch_goes_beside_a_dim_that_is_free(distances: opsmith.Library) -> None:
    f = distances.pairwise_manhattan_distance
    x, y = jnp.asarray(RNG.random((3, 4, 2))), jnp.asarray(RNG.random((5, 2)))
    for function, axes, given in [(f, [0, None], [x, y]), (f, [None, 1], [y, jnp.moveaxis(x, 0, 1)])]:
        program = str(jax.make_jaxpr(jax.vmap(function, axes))(*given))
        assert program.count("opsmith_call[") == 1 and "scan" not in program
        np.testing.assert_array_equal(jax.vmap(function, axes)(*given), loop(function, given, axes)[0])


def test_positions_of_dims_are_those_of_an_element() -> None:
    ops = load("opsmith_ops")
    x = jnp.asarray(RNG.random((3, 4, 5)))
    for axes in [[0], [1], [-1], [0, 1], []]:
        ours = jax.vmap(lambda x, axes=axes: ops.sum(x, axes=axes))(x)
        np.testing.assert_allclose(ours, [a.sum(tuple(axes) or None) for a in np.asarray(x)])
    np.testing.assert_array_equal(jax.vmap(lambda x: ops.transpose(x, perm=[]))(x), x.transpose(0, 2, 1))
    table, rows = x[0], jnp.array([[3, 0], [1, 1]])
    look_up = jax.vmap(jax.vmap(lambda i: ops.gather(table, i, axis=0)))
    assert "scan" not in str(jax.make_jaxpr(look_up)(rows))
    np.testing.assert_array_equal(look_up(rows), table[rows])
    np.testing.assert_array_equal(
        jax.vmap(lambda i: ops.gather(x, i, axis=1))(rows), jnp.moveaxis(x[:, rows], 1, 0)
    )
    np.testing.assert_array_equal(
        jax.vmap(lambda x: ops.gather(x, jnp.array([2, 0]), axis=1))(x), x[:, :, jnp.array([2, 0])]
    )


def test_gradients_of_what_is_shared() -> None:
    ops = load("opsmith_ops")
    x = jnp.asarray([1.0, 5.0, 3.0, 4.0])
    np.testing.assert_array_equal(
        jax.jacrev(lambda x: ops.top_k(x, 2)[0])(x), jax.nn.one_hot(jnp.array([1, 3]), 4)
    )
    weights = jnp.asarray(RNG.random((3, 2)))
    values, positions = ops.top_k(x, 2)
    slopes = jax.vmap(lambda w: ops.top_k_grad(x, positions, w))(weights)
    assert slopes.shape == (3, 4)
    np.testing.assert_array_equal(slopes[:, positions], weights)
    del values


def test_loops_in_batches_and_in_exported_programs(testops: opsmith.Library) -> None:
    f = load("distances").pairwise_manhattan_distance
    x, y = jnp.asarray(RNG.random((2, 3, 4, 5))), jnp.asarray(RNG.random((3, 6, 5)))
    nested = jax.vmap(jax.vmap(f), (0, None))
    assert str(jax.make_jaxpr(nested)(x, y)).count("scan[") == 1
    np.testing.assert_array_equal(nested(x, y), jnp.stack([jnp.stack(list(map(f, a, y))) for a in x]))
    (batch,) = jax.export.symbolic_shape("batch")
    exported = jax.export.export(
        jax.jit(jax.vmap(testops.squares)),
        disabled_checks=[jax.export.DisabledSafetyCheck.custom_call("testops.squares")],
    )(jax.ShapeDtypeStruct((batch, 6), jnp.float64))
    np.testing.assert_array_equal(
        exported.call(jnp.ones((3, 6))), jax.vmap(testops.squares)(jnp.ones((3, 6)))
    )
