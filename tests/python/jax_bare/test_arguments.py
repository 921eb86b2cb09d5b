"""Inputs and outputs: dtypes, sizes, lists, optional ones, changed in place."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DISTANCES, Ops, like
from jax.errors import JaxRuntimeError

DTYPES = [
    *["float32", "float64", "float16", "bfloat16", "bool", "complex64", "complex128"],
    *[f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)],
]


def rows(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Normal numbers."""
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(dtype)


def manhattan(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The distances by broadcasting."""
    return np.abs(x[:, None] - y[None]).sum(-1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", [(3, 5, 4), (1, 1, 1), (0, 5, 4), (3, 0, 4), (3, 5, 0), (130, 67, 33)])
def test_distances_equal_numpy(ops: Ops, sizes: tuple[int, int, int], dtype: str) -> None:
    n, m, p = sizes
    x, y = rows(n, p, dtype=dtype), rows(m, p, dtype=dtype)
    for op in (ops.pairwise, DISTANCES.pairwise_manhattan_distance):
        z = op(like(n, m, dtype=dtype), x, y)
        assert z.dtype == dtype
        np.testing.assert_allclose(z, manhattan(x, y), rtol=1e-5, atol=1e-6)
        traced = jax.jit(lambda x, y, op=op: op(like(n, m, dtype=dtype), 2 * x.T.T, 2 * y))(x, y)
        np.testing.assert_allclose(traced, 2 * manhattan(x, y), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_rank_passes_through(ops: Ops, dtype: str) -> None:
    for shape in [(), (1,), (0,), (3, 4), (2, 0, 3), (2, 1, 3, 1, 2, 1, 2)]:
        x = jnp.asarray(rows(*shape) * 10).astype(dtype)
        y = ops.echo(like(*shape, dtype=dtype), x)
        assert y.dtype == x.dtype and np.array_equal(np.asarray(x), np.asarray(y))


def test_a_dtype_that_opsmith_lacks(ops: Ops) -> None:
    x = jnp.ones(3, jnp.float8_e5m2)
    with pytest.raises(JaxRuntimeError, match="UNIMPLEMENTED: Echo: input `x`: has XLA's dtype number 19"):
        ops.echo(like(3, dtype=x.dtype), x)


def test_nan_and_infinities_are_values(ops: Ops) -> None:
    x = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
    assert np.asarray(ops.echo(like(4), x)).tobytes() == x.tobytes()


def test_lists_are_flattened(ops: Ops) -> None:
    xs = [rows(2, 3), rows(), rows(0, 4)]
    ys = ops.double_all([like(*x.shape) for x in xs], *xs)
    assert all(np.array_equal(y, 2 * x) for x, y in zip(xs, ys, strict=True))
    assert len(ops.double_all([like(*x.shape) for x in xs], *xs, N=3)) == 3
    with pytest.raises(JaxRuntimeError, match=r"DoubleAll: has the inputs \[xs\], got 3 tensors"):
        ops.double_all([like(*x.shape) for x in xs], *xs, N=2)
    with pytest.raises(
        JaxRuntimeError, match=r"DoubleAll: input `xs` has 1 tensor, but N must be at least 2"
    ):
        ops.double_all([like()], rows())


def test_a_list_of_many_dtypes(ops: Ops) -> None:
    xs = [rows(2), np.array([[True, False]]), np.arange(3)]
    *ys, count = ops.pass_all([*(like(*x.shape, dtype=x.dtype) for x in xs), like(dtype="int64")], *xs)
    assert count == 3 and all(np.array_equal(x, y) for x, y in zip(xs, ys, strict=True))
    assert ops.pass_all([like(dtype="int64")]) == [0]
    with pytest.raises(JaxRuntimeError, match=r"PassAll: input `xs`.*float64"):
        ops.pass_all([like(1, dtype="float64"), like(dtype="int64")], np.ones(1))


def test_an_absent_input(ops: Ops) -> None:
    x = rows(4, dtype="float64")
    z = like(4, dtype="float64")
    assert np.array_equal(ops.add_optional(z, x, present=0b01), x)
    assert np.array_equal(ops.add_optional(z, x, x), 2 * x)
    with pytest.raises(JaxRuntimeError, match=r"AddOptional: has the inputs \[x, bias\], got 1 tensors"):
        ops.add_optional(z, x)
    with pytest.raises(JaxRuntimeError, match="AddOptional: input `x` is missing"):
        ops.add_optional(z, x, present=0b10)
    with pytest.raises(JaxRuntimeError, match=r"AddOptional: attribute `present` is an int, got 1\.5"):
        ops.add_optional(z, x, present=1.5)


def test_several_outputs_and_those_nobody_wants(ops: Ops) -> None:
    x = np.array([3, -1, 2], np.float32)
    least, greatest, at = ops.extremes([like(), like(), like(2, dtype="int64")], x)
    assert (least, greatest, at.tolist()) == (-1, 3, [1, 0])
    least, at = ops.extremes([like(), like(2, dtype="int64")], x, wanted=0b101)
    assert (least, at.tolist()) == (-1, [1, 0])
    assert ops.extremes([like()], x, wanted=0) == [-1]
    with pytest.raises(
        JaxRuntimeError, match=r"gives 1 tensors \[least, greatest, at\], the caller expects 2"
    ):
        ops.extremes([like(), like()], x, wanted=0)


@pytest.mark.parametrize("alias", [False, True])
def test_in_place_is_a_result(ops: Ops, alias: bool) -> None:
    x = rows(3, 4)
    before = x.copy()
    aliases = {0: 0} if alias else None
    for _ in range(2):
        assert np.array_equal(ops.increment([like(3, 4)], x, aliases=aliases)[0], before + 1)
    twice = jax.jit(lambda x: ops.increment([like(3, 4)], *ops.increment([like(3, 4)], x, aliases=aliases)))
    np.testing.assert_allclose(twice(x)[0], before + 2, rtol=1e-6)
    assert np.array_equal(x, before)
    total, changed = ops.add_into(
        [like(), like(3)],
        np.ones(3, np.float32),
        np.arange(3, dtype=np.float32),
        aliases={0: 1} if alias else None,
    )
    assert total == 6 and changed.tolist() == [1, 2, 3]
    y = jnp.ones(3, jnp.float32)
    total, changed = ops.add_into([like(), like(3)], y, y, aliases={0: 1} if alias else None)
    assert total == 6 and changed.tolist() == [2, 2, 2] and y.tolist() == [1, 1, 1]


def test_in_place_without_its_result(ops: Ops) -> None:
    with pytest.raises(
        JaxRuntimeError, match="Increment: input `x`: is changed in place; its new value is a result"
    ):
        ops.increment([], rows(3))
    with pytest.raises(
        JaxRuntimeError, match=r"Increment: input `x`: .*has shape \[3\], but the result .*\[4\]"
    ):
        ops.increment([like(4)], rows(3))


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (like(3, 4), r"float32 of shape \[3, 5\], the caller expects float32 of shape \[3, 4\]"),
        (like(15), r"the caller expects float32 of shape \[15\]"),
        (like(), r"the caller expects float32 of shape \[\]"),
        (like(3, 5, 1), r"the caller expects float32 of shape \[3, 5, 1\]"),
        (like(3, 5, dtype="float64"), r"the caller expects float64 of shape \[3, 5\]"),
        (like(3, 5, dtype="int8"), r"the caller expects int8"),
        ([like(3, 5), like(3, 5)], r"gives 1 tensors \[z\], the caller expects 2"),
        ([], r"gives 1 tensors \[z\], the caller expects 0"),
    ],
    ids=str,
)
def test_results_that_do_not_fit_are_not_written(ops: Ops, result: object, message: str) -> None:
    with pytest.raises(JaxRuntimeError, match=f"INVALID_ARGUMENT: Pairwise: .*{message}"):
        ops.pairwise(result, rows(3, 4), rows(5, 4))


def test_one_million_elements(ops: Ops) -> None:
    x = np.arange(1_000_000.0)
    assert np.array_equal(ops.squares(like(x.size, dtype="float64"), x), x * x)
