"""Every standard operator against NumPy and SciPy, on generated inputs of each dtype."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import opsmith
import pytest
import torch
from conftest import count
from operators import OPS
from table import Op, tensor

TOLERANCES = {"float16": 2e-3, "float32": 3e-6, "float64": 2e-14}


def compare(op: Op, ours: Any, theirs: Any, dtype: str, told: str) -> None:
    """Values, shapes and dtypes of outputs."""
    if isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), told
        for a, b in zip(ours, theirs, strict=True):
            compare(op, a, b, dtype, told)
        return
    theirs = np.asarray(theirs)
    assert ours.shape == theirs.shape, (told, ours.shape, theirs.shape)
    if ours.dtype.kind != "f":
        np.testing.assert_array_equal(ours, theirs.astype(ours.dtype), err_msg=told)
        return
    tolerance = TOLERANCES[ours.dtype.name] * op.tolerance
    with np.errstate(over="ignore"):
        expected = theirs.astype(ours.dtype).astype("float64")
    # What a sum of numbers loses depends on how large they are.
    size = 1.0 if op.name not in {"sum", "sum_to", "mean"} else 100.0
    np.testing.assert_allclose(
        ours.astype("float64"), expected, rtol=tolerance, atol=tolerance * size, err_msg=told
    )


def reference(op: Op, inputs: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """What NumPy says, of half floats in single precision."""

    def wide(x: Any) -> Any:
        return x.astype("float32") if isinstance(x, np.ndarray) and x.dtype == np.float16 else x

    pointwise = op.specials
    with np.errstate(all="ignore"):
        return op.reference(*(wide(x) if pointwise else x for x in inputs), **attributes)


@pytest.mark.parametrize(
    ("op", "dtype"), [(op, dtype) for op in OPS for dtype in op.dtypes], ids=lambda x: getattr(x, "name", x)
)
def test_values_are_numpys(ops: opsmith.Library, op: Op, dtype: str) -> None:
    rng = np.random.default_rng(zlib.crc32(f"{op.name} {dtype}".encode()))
    function = getattr(ops, op.name)
    for inputs, attributes in op.cases(rng, dtype):
        told = f"{op.name} {[getattr(x, 'shape', x) for x in inputs]} {attributes}"
        compare(op, function(*inputs, **attributes), reference(op, inputs, attributes), dtype, told)
        count("NumPy and SciPy")


BFLOAT = [op for op in OPS if "float16" in op.dtypes and not op.listed and op.differentiated]


@pytest.mark.parametrize("op", BFLOAT, ids=lambda op: op.name)
def test_bfloat16_is_computed_in_float32(ops: opsmith.Library, op: Op) -> None:
    rng = np.random.default_rng(5)
    function = getattr(ops, op.name)

    def tensors(inputs: tuple[Any, ...], wide: bool) -> list[Any]:
        def one(position: int, x: Any) -> Any:
            if not isinstance(x, np.ndarray) or position not in op.differentiated:
                return tensor(x) if isinstance(x, np.ndarray) else x
            return tensor(x).bfloat16().float() if wide else tensor(x).bfloat16()

        return [one(position, x) for position, x in enumerate(inputs)]

    def largest_difference(ours: torch.Tensor, theirs: torch.Tensor) -> None:
        assert ours.dtype == torch.bfloat16
        torch.testing.assert_close(ours, theirs.bfloat16(), rtol=0.02, atol=0.02, equal_nan=True)

    for inputs, attributes in op.cases(rng, "float32"):
        ours = function(*tensors(inputs, wide=False), **attributes)
        theirs = function(*tensors(inputs, wide=True), **attributes)
        pairs = zip(ours, theirs, strict=True) if isinstance(ours, (tuple, list)) else [(ours, theirs)]
        for a, b in pairs:
            if b.is_floating_point() and not (op.name == "top_k" and b.numel() == 0):
                largest_difference(a, b)
        count("the same in float32, for bfloat16")


def test_text_is_moved(ops: opsmith.Library) -> None:
    words = np.array([["a", "bc", ""], ["dé", "e", "f"]], object)
    np.testing.assert_array_equal(ops.transpose(words), words.T)
    np.testing.assert_array_equal(ops.reshape(words, [3, 2]), words.reshape(3, 2))
    np.testing.assert_array_equal(ops.slice(words, [0, 1], [2, -1]), words[:, 1:])
    np.testing.assert_array_equal(ops.concat([words, words], axis=1), np.concatenate([words, words], 1))
    np.testing.assert_array_equal(ops.gather(words, [1, 0, 1]), words[[1, 0, 1]])
    np.testing.assert_array_equal(ops.broadcast_to(words, [2, 2, 3]), np.broadcast_to(words, (2, 2, 3)))
    np.testing.assert_array_equal(ops.identity(words), words)
    count("NumPy and SciPy", 7)


def test_assignment_is_in_place(ops: opsmith.Library) -> None:
    x = torch.zeros(2, 3)
    ops.assign(x.T, torch.arange(6.0).reshape(3, 2))
    assert x.tolist() == [[0, 2, 4], [1, 3, 5]]
    with pytest.raises(RuntimeError, match="input `value` must have"):
        ops.assign(x, torch.zeros(3))
    count("NumPy and SciPy")


def test_what_is_no_program_is_refused(ops: opsmith.Library) -> None:
    with pytest.raises(
        opsmith.InvalidArgumentError, match="Pointwise: attribute `program` is not a program: node 0, `add`"
    ):
        ops.pointwise([np.ones(2)], program="inputs 1\nadd 0 1\noutput 0 1", M=1)
    with pytest.raises(
        opsmith.InvalidArgumentError, match="the program has 1 inputs and 1 outputs, got 2 and 1"
    ):
        ops.pointwise([np.ones(2)] * 2, program="inputs 1\ninput 0\noutput 0 1", M=1)


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_calls_of_the_same_shapes_look_at_the_numbers_again(ops: opsmith.Library, index: str) -> None:
    """A plan remembers what shapes decide, and nothing else."""
    random = np.random.default_rng(0)
    for _ in range(4):
        x, y = (random.standard_normal((3, n, 5)).astype("float32") for n in (4, 2))
        at = random.integers(-4, 4, (2, 3)).astype(index)
        np.testing.assert_array_equal(ops.gather(x, at, axis=1), np.take(x, at, axis=1))
        np.testing.assert_array_equal(ops.concat([x, y], axis=1), np.concatenate([x, y], axis=1))
        np.testing.assert_array_equal(ops.stack([x, 2 * x], axis=2), np.stack([x, 2 * x], axis=2))
        np.testing.assert_array_equal(ops.arg_max(x, axes=[1]), x.argmax(1))
        np.testing.assert_array_equal(ops.sum(at, axes=[0]), at.sum(0))
        at[1, 2] = 4
        with pytest.raises(IndexError, match="positions along a dim of 4, got 4 at element 5"):
            ops.gather(x, at, axis=1)
