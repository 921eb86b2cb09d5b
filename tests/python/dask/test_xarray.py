"""Calls on xarray's arrays: names and coordinates, which are kept, and what is refused."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import opsmith
import pytest
import xarray as xr
from conftest import load
from numpy.testing import assert_allclose, assert_array_equal

X = xr.DataArray(
    np.random.default_rng(0).random((4, 3)),
    dims=("city", "feature"),
    coords={
        "city": list("abcd"),
        "feature": [10, 20, 30],
        "north": ("city", [1.0, 2.0, 3.0, 4.0]),
        "area": (("city", "feature"), np.arange(12).reshape(4, 3)),
        "year": 2026,
    },
    name="weather",
    attrs={"unit": "K"},
)
Y = xr.DataArray(
    np.random.default_rng(1).random((5, 3)),
    dims=("place", "feature"),
    coords={"place": range(5), "feature": [10, 20, 30], "year": 2027},
    name="climate",
)


def names(array: xr.DataArray) -> tuple[tuple[Any, ...], set[Any]]:
    """The dims, and the coordinates that there are."""
    assert isinstance(array, xr.DataArray)
    return array.dims, set(array.coords)


def test_free_axes_keep_names_and_coordinates(distances: opsmith.Library) -> None:
    z = distances.pairwise_manhattan_distance(X, Y)
    # The years differ, and so does the name.
    assert names(z) == (("city", "place"), {"city", "north", "place"}) and z.name is None and not z.attrs
    assert_array_equal(z.data, distances.pairwise_manhattan_distance(X.data, Y.data))
    assert z.sel(city="b", place=3) == z.data[1, 3]
    total = opsmith.ops.sum(X, axes=[0])
    assert names(total) == (("feature",), {"feature", "year"}) and total.name == "weather"
    assert_allclose(total, X.sum("city"))


def test_one_of_them_may_have_no_names(distances: opsmith.Library) -> None:
    for other in (Y.data, Y.data.tolist(), da.from_array(Y.data)):
        z = distances.pairwise_manhattan_distance(X, other)
        assert names(z) == (("city", "z_1"), {"city", "north", "year"})
        back = distances.pairwise_manhattan_distance(other, X)
        assert names(back) == (("z_0", "city"), {"city", "north", "year"})
        assert_allclose(back.T, z)


def test_a_dim_of_the_same_size_keeps_its_name_alone() -> None:
    """What a softmax is taken along is no free axis: the labels could belong to other numbers there."""
    y = load("reductions").softmax(X)
    assert names(y) == (("city", "feature"), {"city", "north", "year"})
    order = opsmith.ops.arg_sort(X, axis=0)
    assert names(order) == (("city", "feature"), {"feature", "year"})


def test_dims_that_are_new_are_named_after_the_output() -> None:
    ones = opsmith.ops.one_hot(xr.DataArray([1, 0], dims="sample"), depth=3)
    assert names(ones) == (("sample", f"{ones.dims[1]}"), set()) and ones.dims[1].endswith("_1")


def test_dims_are_broadcast_by_position() -> None:
    z = opsmith.ops.add(X, xr.DataArray([[1.0], [2.0], [3.0], [4.0]], dims=("city", "one")))
    assert names(z) == (("city", "feature"), {"city", "feature", "north", "area", "year"})
    assert_array_equal(z.data, X.data + np.arange(1.0, 5.0)[:, None])
    assert names(opsmith.ops.mul(2.0, X)) == names(X)


def test_lists_and_several_outputs() -> None:
    z = opsmith.ops.concat([X, X], axis=1)
    assert names(z) == (("city", f"{z.dims[1]}"), {"city", "north", "year"})
    first, second = opsmith.ops.split(X.transpose("feature", "city"), axis=1, N=2)
    assert first.dims[0] == second.dims[0] == "feature"
    least, most = load("reductions").range(X)
    assert names(least) == names(most) == (("city",), {"city", "north", "year"})


def test_gradients_have_the_names_of_the_inputs(distances: opsmith.Library) -> None:
    g = xr.ones_like(distances.pairwise_manhattan_distance(X, Y))
    x_grad, y_grad = distances.pairwise_manhattan_distance_grad(X, Y, g)
    assert x_grad.dims == X.dims and y_grad.dims == Y.dims
    assert list(x_grad.city) == list("abcd") and list(y_grad.place) == list(range(5))


def test_lazy_ones_stay_lazy(distances: opsmith.Library) -> None:
    x = X.chunk(city=2)
    z = distances.pairwise_manhattan_distance(x, Y)
    assert z.chunks == ((2, 2), (5,)) and z.name is None
    xr.testing.assert_allclose(z.compute(), distances.pairwise_manhattan_distance(X, Y))
    both = distances.pairwise_manhattan_distance_grad(x, Y, np.ones((4, 5)))
    assert [array.dims for array in both] == [X.dims, Y.dims]
    assert isinstance(both[1].data, da.Array)


def test_several_indexes_of_a_dim() -> None:
    stacked = X.drop_vars(["area", "north", "year"]).stack(both=("city", "feature"))
    y = opsmith.ops.exp(stacked)
    xr.testing.assert_allclose(y.unstack("both"), np.exp(X.drop_vars(["area", "north", "year"])))


def test_by_apply_ufunc(distances: opsmith.Library) -> None:
    """For which xarray does the naming."""
    z = xr.apply_ufunc(
        load("reductions").norm, X.chunk(city=1), input_core_dims=[["feature"]], dask="allowed"
    )
    assert names(z)[0] == ("city",) and z.chunks == ((1, 1, 1, 1),)
    assert_allclose(z, np.sqrt((X**2).sum("feature")))


REFUSED: dict[str, tuple[Any, str]] = {
    "the same dim twice": (
        lambda: load("distances").pairwise_manhattan_distance(X, X),
        "PairwiseManhattanDistance: output `z` would have the dim `city` twice; rename that of one input",
    ),
    "other names": (
        lambda: opsmith.ops.add(X, X.rename(city="town")),
        "Add: the dims of `x` and `y` that go together are `city` and `town`; dims go by their positions",
    ),
    "another order": (
        lambda: opsmith.ops.add(X[:3], X[:3].transpose("feature", "city")),
        "Add: the dims of `x` and `y` that go together are `.*` and `.*`; dims go by their positions",
    ),
    "other labels": (
        lambda: opsmith.ops.add(X, X.assign_coords(city=list("abce"))),
        "Add: the dims of `x` and `y` that go together are both `city`, with different labels",
    ),
    "other labels of what is summed over": (
        lambda: load("distances").pairwise_manhattan_distance(X, Y.isel(feature=[2, 1, 0])),
        "PairwiseManhattanDistance: `.` and `.` have different labels along `feature`",
    ),
    "sizes that do not fit": (
        lambda: opsmith.ops.add(X, X.T),
        "Add: .* do not broadcast: dim 0 of input `y`",
    ),
    "a masked array": (
        lambda: opsmith.ops.add(X, np.ma.masked_greater(X.data, 0.5)),
        "Add: input `y` is a masked array",
    ),
    "a data set": (lambda: opsmith.ops.neg(X.to_dataset()), "Neg: cannot take these inputs .*Dataset"),
    "a variable": (lambda: opsmith.ops.neg(X.variable), "Neg: cannot take these inputs .*Variable"),
    "an attribute of another type": (
        lambda: opsmith.ops.sum(X, axes="0"),
        r"Sum: attribute `axes` must be list\(int\)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    function, message = REFUSED[case]
    with pytest.raises(opsmith.InvalidArgumentError, match=message):
        function()


def test_changes_in_place() -> None:
    """Those of the array that is in it."""
    x = xr.DataArray(np.ones((2, 3)), dims=("a", "b"))
    load("zero_out").zero_out_in_place(x)
    assert x.data.sum() == 1
    with pytest.raises(opsmith.UnimplementedError, match="ZeroOutInPlace: changes `to_zero` in place"):
        load("zero_out").zero_out_in_place(x.chunk(a=1))
