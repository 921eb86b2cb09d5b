"""`opsmith.SparseTensor`: against SciPy's sparse arrays and dense ones of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import opsmith
import pytest
import scipy.sparse
from opsmith import SparseTensor, ops

RNG = np.random.default_rng(0)


def _random(rows: int, columns: int, density: float, dtype: Any = np.float64) -> Any:
    """A sparse array of SciPy whose places are in no order."""
    dense = RNG.normal(size=(rows, columns)) * (RNG.random((rows, columns)) < density)
    made = scipy.sparse.coo_array(dense.astype(dtype))
    order = RNG.permutation(made.nnz)
    return scipy.sparse.coo_array((made.data[order], (made.row[order], made.col[order])), shape=made.shape)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (5, 7, 3), (40, 30, 1), (0, 3, 2), (3, 0, 2), (3, 4, 0), (64, 100, 17)]
)
def test_products_are_scipys(shape: tuple[int, int, int], dtype: Any) -> None:
    n, k, m = shape
    rtol = 1e-12 if dtype == np.float64 else 1e-4
    for density in (0.0, 0.1, 1.0):
        theirs = _random(n, k, density, dtype)
        ours = SparseTensor.from_scipy(theirs)
        dense = RNG.normal(size=(k, m)).astype(dtype)
        product = ours @ dense
        assert (product.dtype, product.shape) == (dtype, (n, m))
        np.testing.assert_allclose(product, theirs @ dense, rtol=rtol, atol=rtol)
        np.testing.assert_allclose(dense.T @ ours.T, (theirs @ dense).T, rtol=rtol, atol=rtol)
        vector = RNG.normal(size=k).astype(dtype)
        np.testing.assert_allclose(ours @ vector, theirs @ vector, rtol=rtol, atol=rtol)
        strided = np.asfortranarray(np.repeat(dense, 2, axis=0))[::2]
        np.testing.assert_allclose(ours @ strided, theirs @ dense, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("format", ["coo", "csr", "csc", "lil", "dok", "bsr"])
def test_scipys_formats_go_there_and_back(format: str) -> None:
    theirs = _random(6, 8, 0.3).asformat(format)
    ours = SparseTensor.from_scipy(theirs)
    assert ours.shape == (6, 8) and ours.dtype == "float64" and len(ours) == theirs.nnz
    np.testing.assert_array_equal(ours.to_dense(), theirs.toarray())
    back = ours.to_scipy(format)
    assert back.format == format
    np.testing.assert_array_equal(back.toarray(), theirs.toarray())


def test_old_matrices_and_vectors_of_scipy_are_read() -> None:
    matrix = scipy.sparse.csr_matrix([[0.0, 2.0], [3.0, 0.0]])
    np.testing.assert_array_equal(SparseTensor.from_scipy(matrix).to_dense(), matrix.toarray())
    vector = scipy.sparse.coo_array(np.array([0.0, 4.0, 5.0]))
    ours = SparseTensor.from_scipy(vector)
    assert ours.shape == (3,) and ours.indices.tolist() == [[1], [2]]
    np.testing.assert_array_equal(ours.to_scipy().toarray(), vector.toarray())


def test_what_scipy_has_twice_is_added_up() -> None:
    twice = scipy.sparse.coo_array(([1.0, 2.0, 4.0], ([1, 0, 1], [0, 2, 0])), shape=(2, 3))
    ours = SparseTensor.from_scipy(twice)
    assert len(ours) == 2 and twice.nnz == 3
    np.testing.assert_array_equal(ours.to_dense(), twice.toarray())


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint16", "bool", "complex64", "float16", "float32"])
def test_all_dtypes_are_held(dtype: str) -> None:
    dense = np.array([[0, 3], [0, 0], [1, 0]], dtype)
    ours = SparseTensor.from_dense(dense)
    assert ours.dtype == dtype and ours.indices.tolist() == [[0, 1], [2, 0]]
    np.testing.assert_array_equal(ours.to_dense(), dense)
    np.testing.assert_array_equal(ours.T.to_dense(), dense.T)
    if dtype != "float16":
        np.testing.assert_array_equal(ours.to_scipy().toarray(), dense)


def test_values_do_not_change() -> None:
    values, indices = np.array([1.0, 2.0]), np.array([[0, 0], [1, 1]])
    ours = SparseTensor(indices, values, (2, 2))
    values[:], indices[:] = 9.0, 9
    ours.values[:], ours.indices[:] = 7.0, 7
    np.testing.assert_array_equal(ours.to_dense(), np.diag([1.0, 2.0]))
    assert repr(ours) == "<sparse tensor float64[2, 2] of 2 values>"


@pytest.mark.parametrize("known", [True, False])
def test_gradients_are_those_of_dense_products(graph: opsmith.Graph, known: bool) -> None:
    theirs = _random(5, 7, 0.4)
    at = np.stack([theirs.row, theirs.col], axis=1)
    data, dense, upstream = theirs.data, RNG.normal(size=(7, 3)), RNG.normal(size=(5, 3))
    values = graph.placeholder("float64", [len(data) if known else None])
    factor = graph.placeholder("float64", [7, 3] if known else [None, None])
    product = SparseTensor(at, values, theirs.shape) @ factor
    by_values, by_factor = opsmith.gradients((product * upstream).sum(), [values, factor])
    feeds = {values: data, factor: dense}
    got = opsmith.Session(graph).run([product, by_values, by_factor], feeds)
    np.testing.assert_allclose(got[0], theirs @ dense)
    np.testing.assert_allclose(got[1], (upstream @ dense.T)[theirs.row, theirs.col])
    np.testing.assert_allclose(got[2], theirs.T @ upstream)
    with pytest.raises(opsmith.UnimplementedError, match="GatherGradGrad: no gradient is declared"):
        opsmith.gradients((by_values * by_values).sum(), factor)


def test_gradients_of_functions_of_arrays() -> None:
    theirs = _random(5, 7, 0.4)
    at, dense = np.stack([theirs.row, theirs.col], axis=1), RNG.normal(size=(7, 3))
    fixed = SparseTensor.from_scipy(theirs)

    def loss(values: Any, dense: Any) -> Any:
        both = SparseTensor(at, values, theirs.shape) @ dense + fixed @ dense
        return ops.tanh(both).sum() + SparseTensor(at, values, theirs.shape).to_dense().sum()

    by_values, by_dense = opsmith.grad(loss, argnums=(0, 1))(theirs.data, dense)
    slope = 1 - np.tanh(2 * (theirs @ dense)) ** 2
    np.testing.assert_allclose(by_values, (slope @ dense.T)[theirs.row, theirs.col] + 1)
    np.testing.assert_allclose(by_dense, 2 * (theirs.T @ slope))
    by_vector = opsmith.grad(lambda v: (fixed @ v)[0] + (v[:5] @ fixed)[0])(dense[:, 0])
    expected = theirs.toarray()
    np.testing.assert_allclose(by_vector, expected[0] + np.pad(expected[:, 0], (0, 2)))


@pytest.mark.parametrize(
    ("indices", "values", "shape", "error", "message"),
    [
        (
            [[0, 3]],
            [1.0],
            (2, 3),
            opsmith.OutOfRangeError,
            r"indices\[0\] = \[0, 3\] is not in shape \[2, 3\]",
        ),
        ([[-1, 0]], [1.0], (2, 3), opsmith.OutOfRangeError, r"indices\[0\] = \[-1, 0\]"),
        (np.array([[2**64 - 1, 0]], np.uint64), [1.0], (2, 3), opsmith.OutOfRangeError, "is not in shape"),
        ([[1, 0], [0, 0], [1, 0]], [1.0] * 3, (2, 3), ValueError, r"index \[1, 0\] is given twice"),
        ([[0, 0]], [1.0, 2.0], (2, 3), ValueError, r"needs int64 indices of shape \(n, 2\)"),
        ([[0, 0, 0]], [1.0], (2, 3), ValueError, r"needs int64 indices of shape \(n, 2\)"),
        ([[0.5, 0]], [1.0], (2, 3), ValueError, "`indices` must be integers, got float64"),
        ([[0, 0]], [1.0], (2, -3), ValueError, "`shape` must be sizes of dims"),
        ([[0, 0]], [1.0], 3, ValueError, "`shape` must be sizes of dims"),
        ([[0, 0]], [1.0], (2, 1 << 63), ValueError, "`shape` must be sizes of dims"),
        ([[0, 0]], [object()], (2, 3), ValueError, "element 0 must be text"),
    ],
)
def test_places_that_do_not_fit_are_told(
    indices: Any, values: Any, shape: Any, error: type[Exception], message: str, graph: opsmith.Graph
) -> None:
    with pytest.raises(error, match=message):
        SparseTensor(indices, values, shape)
    if isinstance(values[0], float):
        placeholder = graph.placeholder("float64", [len(values)])
        with pytest.raises(error):
            SparseTensor(indices, placeholder, shape)


def test_wrong_factors_are_told(graph: opsmith.Graph) -> None:
    ours = SparseTensor([[0, 1]], [2.0], (2, 3))
    with pytest.raises(ValueError, match=r"float64\[2, 3\] cannot be multiplied by float64\[2, 3\]"):
        ours @ np.ones((2, 3))
    with pytest.raises(ValueError, match="cannot be multiplied by float32"):
        ours @ np.ones((3, 1), np.float32)
    with pytest.raises(ValueError, match=r"one or two dims, got shape \[1, 3, 1\]"):
        ours @ np.ones((1, 3, 1))
    with pytest.raises(ValueError, match=r"float64\[2, 3\] cannot be multiplied by float64\[2, 3\]"):
        ours @ graph.placeholder("float64", [2, 3])
    late = graph.placeholder("float64", [None, None])
    product = ours @ late
    with pytest.raises(ValueError, match=r"Reshape|MatMul|Gather"):
        opsmith.Session(graph).run(product, {late: np.ones((4, 2))})
    with pytest.raises(ValueError, match="a product needs a tensor with two dims"):
        SparseTensor([[0]], [1.0], (3,)) @ np.ones(3)
    with pytest.raises(opsmith.UnimplementedError, match="a product needs float32 or float64, got int64"):
        SparseTensor([[0, 1]], [2], (2, 3)) @ np.ones((3, 1), np.int64)
    with pytest.raises(opsmith.UnimplementedError, match="a product needs float32 or float64, got int64"):
        SparseTensor([[0, 1]], [2], (2, 3)) @ graph.placeholder("int64", [3, 1])
    with pytest.raises(opsmith.ResourceExhaustedError):
        SparseTensor([], np.ones(0), (1 << 60, 3)) @ np.ones((3, 1 << 10))
    with pytest.raises(opsmith.ResourceExhaustedError):
        SparseTensor([[0, 0]], [1.0], (1 << 60, 3)).to_dense()
    with pytest.raises(ValueError, match="expected a sparse array of SciPy, got ndarray"):
        SparseTensor.from_scipy(np.ones(3))
    with pytest.raises(ValueError, match=r"the values are the output `.*` of a graph"):
        SparseTensor([[0, 1]], graph.placeholder("float64", [1]), (2, 3)).to_scipy()
    with pytest.raises(ValueError, match="1 indices need as many values"):
        SparseTensor([[0, 1]], graph.placeholder("float64", [2]), (2, 3))
    with pytest.raises(ValueError, match="SciPy has no such array of float64 in 3 dims"):
        SparseTensor([[0, 1, 0]], [1.0], (2, 3, 4)).to_scipy("csr")
