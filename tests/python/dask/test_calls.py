"""Calls on Dask's arrays: what is known before, what may stand beside them, what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from typing import Any

import dask
import dask.array as da
import ml_dtypes
import numpy as np
import opsmith
import pytest
import xarray as xr
from conftest import library_path, load
from numpy.testing import assert_allclose, assert_array_equal
from opsmith.types import SupportsArray

X = np.random.default_rng(0).random((7, 4))
Y = np.random.default_rng(1).random((9, 4))
LAZY = da.from_array(X, chunks=(3, 2))


class Untouchable:
    """An array whose elements must not be read."""

    shape, dtype, ndim = (1000, 4), np.dtype(np.float32), 2

    def __getitem__(self, key: Any) -> Any:
        raise AssertionError("computed too early")


def test_nothing_is_computed_before(distances: opsmith.Library) -> None:
    x = da.from_array(Untouchable(), chunks=(100, 2), meta=np.empty((0, 0), np.float32))
    z = distances.pairwise_manhattan_distance(x, x)
    assert (z.shape, z.dtype, z.numblocks) == ((1000, 1000), np.float32, (10, 10))
    value, index = load("zero_out").max_with_index(x[:, 0])
    assert (value.shape, value.dtype, index.dtype) == ((), np.float32, np.int64)
    with pytest.raises(AssertionError, match="computed too early"):
        z.compute()


def test_what_is_changed_behind_the_call_does_not_count() -> None:
    for x in (np.array(2.0), np.array([2.0])):
        z = opsmith.ops.add(x, da.ones(4, chunks=2))
        x[...] = 5
        assert z.compute().tolist() == [3.0] * 4


def test_the_first_may_be_numpys(distances: opsmith.Library) -> None:
    expected = distances.pairwise_manhattan_distance(Y, X)
    for first in (Y, Y.tolist(), da.from_array(Y, chunks=2)):
        z = distances.pairwise_manhattan_distance(first, LAZY)
        assert isinstance(z, da.Array) and z.chunks[1] == (3, 3, 1)
        assert_allclose(z.compute(), expected, rtol=1e-14)  # Sums of other sizes are in another order.


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "uint8"])
@pytest.mark.parametrize("other", [2, True, [[1], [2], [3]], np.float64(2.5), np.arange(3)[:, None]], ids=str)
def test_numbers_take_the_dtype_that_they_take_beside_numpys(dtype: str, other: Any) -> None:
    x = np.arange(6).reshape(3, 2).astype(dtype)
    outcomes = []
    for given in (x, da.from_array(x, chunks=1)):
        try:
            outcomes.append(np.asarray(opsmith.ops.mul(given, other)))
        except opsmith.InvalidArgumentError as error:
            outcomes.append(type(error))
    own, expected = outcomes[1], outcomes[0]
    if isinstance(expected, np.ndarray):
        assert own.dtype == expected.dtype
        assert_array_equal(own, expected)
    else:
        assert own is expected


def test_what_has_no_array_beside_it_takes_the_dtype_of_its_own() -> None:
    x = da.from_array(np.arange(12.0).reshape(4, 3), chunks=2)
    rows = opsmith.ops.gather(x, [2, 0])
    assert_array_equal(rows.compute(), opsmith.ops.gather(x.compute(), [2, 0]))
    assert_array_equal(opsmith.ops.one_hot(da.asarray([1, 0]), depth=3).compute(), [[0, 1, 0], [1, 0, 0]])


def test_bfloat16_and_byte_order() -> None:
    x = X.astype(ml_dtypes.bfloat16)
    total = opsmith.ops.add(da.from_array(x, chunks=2), 1.0)
    assert total.dtype == ml_dtypes.bfloat16
    assert_array_equal(total.compute(), opsmith.ops.add(x, 1.0))
    swapped = X.astype(">f8")
    assert_array_equal(opsmith.ops.neg(da.from_array(swapped, chunks=2)).compute(), -X)


def test_sums_of_half_precision_lose_no_more_than_one_call(distances: opsmith.Library) -> None:
    gradient = load("kernels").rms_norm_grad
    # In half precision nothing is read that is saved.
    x, weight, saved, g = (np.ones(shape, np.float16) for shape in ((600, 2), (1, 2), 600, (600, 2)))
    given = (
        da.from_array(x, chunks=(1, 2)),
        weight,
        da.from_array(saved, chunks=1),
        da.from_array(g, chunks=(1, 2)),
    )
    _, total = gradient(*given)
    assert total.dtype == np.float16 and total.shape == (1, 2)
    assert_allclose(total.compute(), gradient(x, weight, saved, g)[1], rtol=2e-3)


def test_texts() -> None:
    texts = np.array([["1", "2.5"], ["-3", "4"]])
    numbers = load("zero_out").string_to_number(da.from_array(texts, chunks=1))
    assert (numbers.dtype, numbers.numblocks) == (np.float32, (2, 2))
    assert_array_equal(numbers.compute(), [[1, 2.5], [-3, 4]])


def test_what_is_not_free_is_put_together(distances: opsmith.Library) -> None:
    z = distances.pairwise_manhattan_distance(LAZY, Y)
    assert z.chunks == ((3, 3, 1), (9,))
    index = load("zero_out").zero_out_vector(da.arange(6, chunks=2, dtype=np.int32))
    assert index.chunks == ((6,),)
    assert_array_equal(index.compute(), [0, 0, 0, 0, 0, 0])


def test_shapes_that_values_decide() -> None:
    x = da.from_array(X, chunks=3)
    assert opsmith.ops.reshape(x, [14, 2]).shape == (14, 2)
    assert opsmith.ops.reshape(x, np.array([-1])).compute().shape == (28,)
    found = load("zero_out").non_zero(da.from_array(np.eye(3), chunks=2))
    assert np.isnan(found.shape[0]) and found.shape[1] == 2
    assert_array_equal(found.compute(), [[0, 0], [1, 1], [2, 2]])
    # What is to be computed first is not known.
    assert np.isnan(opsmith.ops.reshape(x, da.asarray([14, 2])).shape).all()
    with pytest.raises(opsmith.UnimplementedError, match="Strides: the rank of an output depends on values"):
        load("opsmith_testops").strides(x)


def test_calls_are_told_apart_and_equal_ones_are_one(distances: opsmith.Library) -> None:
    function = distances.pairwise_manhattan_distance_grad
    g = da.ones((7, 9), chunks=3)
    first, again, other = function(LAZY, Y, g), function(LAZY, Y, g), function(LAZY, Y, g, a=2)
    assert first[0].name == again[0].name and first[0].name != other[0].name
    keep = load("zero_out").zero_out_rows
    names = {keep(LAZY, preserve_index=at).name for at in (0, 1)}
    assert len(names) == 2
    a, b = dask.compute(keep(LAZY, preserve_index=0), keep(LAZY, preserve_index=1))
    assert_array_equal(a, keep(X, preserve_index=0))
    assert_array_equal(b, keep(X, preserve_index=1))


def test_attributes_are_those_of_the_call() -> None:
    axes = [1]
    total = opsmith.ops.sum(LAZY, axes=axes)
    axes[0] = 0
    assert total.chunks == ((3, 3, 1),)
    assert_allclose(total.compute(), X.sum(1))
    assert_allclose(opsmith.ops.cast(LAZY, dtype=np.float32).compute(), X.astype(np.float32))


def test_a_function_of_dask_may_call_ops() -> None:
    """Such as one for a pipeline that Dask cuts itself."""
    norm = load("reductions").norm
    assert_allclose(LAZY.rechunk((3, 4)).map_blocks(norm, drop_axis=1).compute(), norm(X))


REFUSED: dict[str, tuple[Any, str]] = {
    "sizes that do not fit": (
        lambda ops: load("distances").pairwise_manhattan_distance(LAZY, Y[:, :3]),
        r"PairwiseManhattanDistance: dim 1 of input `y` must equal dim 1 of input `x` \(p\): 3 ≠ 4",
    ),
    "chunks of unknown sizes": (
        lambda ops: ops.neg(LAZY[LAZY[:, 0] > 0.5]),
        r"Neg: input `x` has chunks of unknown sizes: call `.compute_chunk_sizes\(\)`",
    ),
    "masked arrays": (
        lambda ops: ops.neg(da.ma.masked_greater(LAZY, 0.5)),
        "Neg: input `x` is of masked arrays, whose masks would be lost",
    ),
    "a masked array beside": (
        lambda ops: ops.add(LAZY, np.ma.masked_greater(X, 0.5)),
        "Add: input `y` is a masked array, whose mask would be lost",
    ),
    "fractions for integers": (
        lambda ops: ops.add(LAZY.astype(int), 2.5),
        "Add: input `y` holds float values, but must be int64",
    ),
    "text for numbers": (lambda ops: ops.add(LAZY, "1"), "Add: input `y` must be float64, got '1'"),
    "a number that is too large": (
        lambda ops: ops.add(LAZY.astype(np.int8), 1000),
        "Add: input `y` (cannot be|must be) int8",
    ),
    "another dtype": (lambda ops: ops.add(LAZY, X.astype(np.float32)), "Add: .*float32"),
    "a dtype of no op": (lambda ops: ops.neg(LAZY.astype("M8[s]")), "Neg: .*datetime64"),
    "None": (lambda ops: ops.add(LAZY, None), "Add: input `y` is missing"),
    "what is no array": (lambda ops: ops.add(LAZY, object()), "Add: input `y` must be an array"),
    "no list": (lambda ops: ops.concat(LAZY), "Concat: input `.*` must be a list of tensors, got Array"),
    "None in a list": (lambda ops: ops.concat([LAZY, None]), "Concat: input `.*` holds None"),
    "an attribute of another type": (
        lambda ops: ops.sum(LAZY, axes="0"),
        r"Sum: attribute `axes` must be list\(int\), got '0'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_when_called(case: str) -> None:
    function, message = REFUSED[case]
    with pytest.raises(opsmith.InvalidArgumentError, match=message):
        function(opsmith.ops)


def test_changes_in_place_are_refused() -> None:
    message = "ZeroOutInPlace: changes `to_zero` in place, and an array of Dask cannot be changed"
    with pytest.raises(opsmith.UnimplementedError, match=message):
        load("zero_out").zero_out_in_place(LAZY)


def test_an_error_in_a_chunk_names_op_and_chunk() -> None:
    texts = np.array(["1", "2", "three", "4"])
    numbers = load("zero_out").string_to_number(da.from_array(texts, chunks=2))
    message = r"StringToNumber: in the chunk \.\.\.\[-1\] = 2:4: .*three"
    with pytest.raises(opsmith.InvalidArgumentError, match=message) as raised:
        numbers.compute()
    assert raised.value.code == "InvalidArgument"


def test_experimental_arrays_are_refused() -> None:
    """Those that Dask plans itself, which a setting switches on."""
    code = f"""
        import dask.array as da, opsmith
        x = da.ones((4, 3))
        try:
            opsmith.load({str(library_path("distances"))!r}).pairwise_manhattan_distance(x, x)
        except opsmith.UnimplementedError as error:
            print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    settings = os.environ | {"DASK_ARRAY__QUERY_PLANNING": "True"}
    done = subprocess.run(command, capture_output=True, text=True, env=settings, timeout=300, check=True)
    assert "takes no arrays of Dask's experimental query planning" in done.stdout, done.stderr


@pytest.mark.parametrize("first", ["opsmith", "dask.array", "xarray"])
def test_the_order_of_imports_does_not_matter(first: str) -> None:
    """And nothing is imported that nobody has asked for."""
    code = f"""
        import sys, numpy
        def load():
            import opsmith
            distances = opsmith.load({str(library_path("distances"))!r})
            return distances.pairwise_manhattan_distance, opsmith.ops.exp
        if {first!r} == "opsmith":
            load()
            assert not {{"dask", "xarray", "pandas"}} & sys.modules.keys()
        elif {first!r} == "xarray":
            import xarray
            load()
        import dask.array
        import xarray
        distance, exp = load()
        x = numpy.ones((2, 3))
        for array in (dask.array.ones((2, 3)), xarray.DataArray(x)):
            kind = type(array)
            for z in (distance(array, x), distance(x, array), exp(array)):
                assert isinstance(z, kind), (kind, z)
            # The short way for a first argument.
            assert kind in distance.__globals__["_CALLS"] and kind in exp.__globals__["_CALLS"]
    """
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 and "Warning" not in done.stderr, done.stderr


def test_types_have_what_numpy_makes_an_array_of() -> None:
    for array in (LAZY, xr.DataArray(X)):
        assert isinstance(array, SupportsArray)
