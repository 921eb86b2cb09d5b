"""Sparse tensors: the elements that are not zero, and where they are."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from opsmith import _native
from opsmith._dispatch import framework_of
from opsmith._errors import InvalidArgumentError, UnimplementedError, refused
from opsmith.graph._graph import literal
from opsmith.graph._output import Output, call

if TYPE_CHECKING:
    from opsmith._native import SparseTensor as NativeSparseTensor


class SparseTensor:
    """A sparse tensor: the positions of its non-zero elements beside their values (COO).

        >>> sparse = opsmith.SparseTensor([[0, 1], [1, 2]], [2.0, -3.0], (2, 3))
        >>> sparse @ np.ones((3, 1))
        array([[ 2.],
               [-3.]])

    It is immutable, and copies the arrays that it is made of. If its values or the dense factor are outputs
    of a graph, so are products and `to_dense()`, which then have gradients of one order. Any other
    calculation needs `to_dense()`.
    """

    __slots__ = ("_indices", "_native", "_values", "shape")

    # NumPy's arrays leave products with one to it.
    __array_ufunc__ = None

    is_sparse = True
    """As PyTorch's tensors say."""

    shape: tuple[int, ...]
    """The dims."""

    def __init__(self, indices: Any, values: Any, shape: Sequence[int]) -> None:
        """Make a tensor with `values` at `indices`, and zeros elsewhere.

        - `indices`: integers, shape (n, rank), in any order.
        - `values`: shape (n,), an array or an output of a graph.
        - `shape`: the sizes of the dims.

        Raises `opsmith.InvalidArgumentError` if an index occurs twice, or indices, values and shape do not
        fit each other. Raises `opsmith.OutOfRangeError` if an index lies outside the shape.
        """
        dims = _dims(shape)
        places = _indices(indices, len(dims))
        framework = framework_of(values)
        if framework not in (None, "NumPy") and not isinstance(values, Output):
            raise InvalidArgumentError(
                "SparseTensor: `values` must be an array or an output of a graph, got "
                f"{type(values).__name__}; "
                "`from_torch` and `from_scipy` take sparse tensors of others"
            )
        if isinstance(values, Output):
            known = values.shape
            if known is not None and (len(known) != 1 or known[0] not in (None, len(places))):
                raise InvalidArgumentError(
                    f"SparseTensor: {len(places)} indices need as many values, got `{values.name}` of shape "
                    f"{list(known)}"
                )
            _native.check_places(places, len(places), list(dims))
            self._set(None, places.copy(), values, dims)
        else:
            self._set(_native.SparseTensor(places, _array(values), list(dims)), None, None, dims)

    def _set(
        self, native: NativeSparseTensor | None, indices: Any, values: Any, shape: tuple[int, ...]
    ) -> None:
        self._native, self._indices, self._values, self.shape = native, indices, values, shape

    @classmethod
    def _of(cls, native: NativeSparseTensor) -> SparseTensor:
        made = cls.__new__(cls)
        made._set(native, None, None, tuple(native.shape))
        return made

    @classmethod
    def from_dense(cls, dense: Any) -> SparseTensor:
        """The non-zero elements of an array, in the order in which they lie."""
        return cls._of(_native.SparseTensor.from_dense(_array(dense)))

    @classmethod
    def from_scipy(cls, sparse: Any) -> SparseTensor:
        """From a sparse array or matrix of SciPy, in any format.

        Values that occur several times at one position are added up, as SciPy does.
        """
        if not hasattr(sparse, "tocoo"):
            raise InvalidArgumentError(
                f"SparseTensor.from_scipy: expected a sparse array of SciPy, got {type(sparse).__name__}"
            )
        # A copy: adding up changes it.
        coo = sparse.tocoo(copy=True)
        coo.sum_duplicates()
        places = np.stack([np.asarray(each, np.int64) for each in _coordinates(coo)], axis=1)
        return cls(places, coo.data, coo.shape)

    @classmethod
    def from_torch(cls, sparse: Any) -> SparseTensor:
        """From a sparse PyTorch tensor on the CPU, in the layouts COO, CSR and CSC. No gradient flows back
        to it.

        Values that occur several times at one position are added up, as PyTorch does.
        """
        import torch

        if not isinstance(sparse, torch.Tensor) or sparse.layout == torch.strided:
            kind = "a dense tensor" if isinstance(sparse, torch.Tensor) else type(sparse).__name__
            raise InvalidArgumentError(
                f"SparseTensor.from_torch: expected a sparse tensor of PyTorch, got {kind}; "
                "`from_dense` takes dense ones"
            )
        if sparse.device.type != "cpu":
            raise InvalidArgumentError(
                f"SparseTensor.from_torch: expected a tensor on the CPU, got one on {sparse.device}; "
                "`.cpu()` copies it"
            )
        coo = sparse.detach().to_sparse_coo().coalesce()
        if coo.dense_dim():
            raise InvalidArgumentError(
                "SparseTensor.from_torch: each value must be one number, got a tensor of "
                f"{coo.dense_dim()} dense dims"
            )
        return cls(coo.indices().T.contiguous().numpy(), _of_torch(coo.values()), tuple(coo.shape))

    def to_scipy(self, format: str = "coo") -> Any:
        """As a sparse array of SciPy: `format` is `coo`, or for two dims also `csr`, `csc` and so on."""
        import scipy.sparse  # type: ignore[import-untyped]

        values = self._need_values("to_scipy")
        coordinates = tuple(self.indices.T)
        with refused(
            f"SparseTensor.to_scipy: SciPy has no such array of {values.dtype.name} in {len(self.shape)} dims"
        ):
            return scipy.sparse.coo_array((values, coordinates), shape=self.shape).asformat(format)

    def to_torch(self) -> Any:
        """As a sparse PyTorch tensor in the layout COO; `.to_sparse_csr()` converts it to CSR."""
        import torch

        values = self._need_values("to_torch")
        if values.dtype.name == "bfloat16":
            tensor = torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
        else:
            with refused(f"SparseTensor.to_torch: PyTorch has no numbers of {values.dtype.name}"):
                tensor = torch.from_numpy(values)
        made = torch.sparse_coo_tensor(
            torch.from_numpy(self.indices.T), tensor, self.shape, check_invariants=True
        )
        return made.coalesce()

    def to_dense(self) -> Any:
        """The tensor with its zeros: an array, or an output if the values are one."""
        if self._native is not None:
            return self._native.to_dense()
        values, graph = self._values, self._values.graph
        shape = graph.constant(np.array(self.shape, np.int64))
        return call("sparse_to_dense", values, graph.constant(self._indices), shape)

    @property
    def indices(self) -> Any:
        """The positions of the values, an int64 array of shape (n, rank)."""
        return self._indices.copy() if self._native is None else self._native.indices

    @property
    def values(self) -> Any:
        """The values, shape (n,): an array, or the output that they were given as."""
        return self._values if self._native is None else self._native.values

    @property
    def dtype(self) -> str:
        """The name of the values' dtype."""
        return self._values.dtype if self._native is None else self._native.dtype

    @property
    def T(self) -> SparseTensor:
        """The transpose: all dims in reverse order."""
        return SparseTensor(self.indices[:, ::-1], self.values, self.shape[::-1])

    def __len__(self) -> int:
        """How many values there are."""
        return len(self._indices) if self._native is None else len(self._native)

    def __matmul__(self, dense: Any) -> Any:
        """The product of this (n, k) and a dense (k, m) or (k): an array, or an output where a factor
        is one."""
        if len(self.shape) != 2:
            raise InvalidArgumentError(
                f"SparseTensor: a product needs a tensor with two dims, got one of shape {self.shape}"
            )
        if not isinstance(dense, Output):
            dense = _array(dense) if hasattr(dense, "dtype") else self._literal(dense)
        rank = None if dense.shape is None else len(dense.shape)
        if rank not in (1, 2):
            raise InvalidArgumentError(
                f"SparseTensor: the dense factor must have one or two dims, got "
                f"{'an unknown rank' if rank is None else f'shape {list(dense.shape)}'}"
            )
        if rank == 1:
            return (self @ dense.reshape([-1, 1])).reshape([self.shape[0]])
        if self._native is not None and not isinstance(dense, Output):
            return self._native.matmul(dense)
        return self._product(dense)

    def __rmatmul__(self, dense: Any) -> Any:
        """The product of a dense (n, k) or (k) and this (k, m)."""
        if not isinstance(dense, Output):
            dense = _array(dense) if hasattr(dense, "dtype") else self._literal(dense)
        vector = dense.shape is not None and len(dense.shape) == 1
        return self.T @ dense if vector else (self.T @ dense.T).T

    def _product(self, dense: Any) -> Output:
        """The product as nodes of a graph: rows of the dense factor times values, added up."""
        graph = (dense if isinstance(dense, Output) else self._values).graph
        values, dense = graph.convert(self.values), graph.convert(dense)
        if self.dtype == dense.dtype and self.dtype not in ("float32", "float64"):
            raise UnimplementedError(f"SparseTensor: a product needs float32 or float64, got {self.dtype}")
        inner = dense.shape[0]
        if dense.dtype != self.dtype or inner not in (None, self.shape[1]):
            raise InvalidArgumentError(
                f"SparseTensor: {self.dtype}{list(self.shape)} cannot be multiplied by {dense.dtype}"
                f"{list(dense.shape)}"
            )
        if inner is None:
            # Makes sure that it has as many rows.
            dense = dense.reshape([self.shape[1], -1])
        at = self.indices
        rows, of = graph.constant(at[:, 0]), graph.constant(at[:, 1])
        terms = call("gather", dense, of) * values.reshape([-1, 1])
        # Of what the sums are to be like nothing but the shape counts.
        behind = call("shape", dense)[1:]
        shape = call("concat", [graph.constant([self.shape[0]], "int64"), behind], axis=0)
        like = call("fill", shape, graph.constant(0).astype(self.dtype))
        return call("gather_grad", like, rows, terms)

    def _need_values(self, what: str) -> Any:
        if self._native is None:
            raise InvalidArgumentError(
                f"SparseTensor.{what}: the values are the output `{self._values.name}` of a graph; "
                "fetch them with a session first"
            )
        return self._native.values

    def _literal(self, value: Any) -> Any:
        return literal(_array(value), value, self.dtype, "SparseTensor: the dense factor")

    def __repr__(self) -> str:
        values = "value" if len(self) == 1 else "values"
        return f"<sparse tensor {self.dtype}{list(self.shape)} of {len(self)} {values}>"


def _dims(shape: Any) -> tuple[int, ...]:
    with refused(f"SparseTensor: `shape` must be sizes of dims, got {shape!r}"):
        dims = tuple(operator.index(dim) for dim in shape)
        if any(not 0 <= dim < 2**63 for dim in dims):
            raise ValueError("a size must be from 0 to 2**63 - 1")
    return dims


def _indices(indices: Any, rank: int) -> Any:
    """The indices as int64, of which none is lost."""
    places = _array(indices)
    if places.size == 0 and places.ndim < 2:
        # What NumPy makes of no indices.
        return np.empty((0, rank), np.int64)
    if places.dtype.kind not in "iu":
        raise InvalidArgumentError(f"SparseTensor: `indices` must be integers, got {places.dtype.name}")
    if places.dtype == np.uint64:
        # What is beyond int64 is in no shape.
        places = np.minimum(places, np.uint64(np.iinfo(np.int64).max))
    return np.ascontiguousarray(places, np.int64)


def _array(value: Any) -> Any:
    if isinstance(value, Output):
        raise InvalidArgumentError(
            f"SparseTensor: expected an array, got the output `{value.name}` of a graph"
        )
    with refused("SparseTensor: a value cannot be read as an array"):
        return np.asarray(value)


def _coordinates(coo: Any) -> Sequence[Any]:
    """The indices along each dim, of old sparse matrices and of arrays."""
    return getattr(coo, "coords", None) or (coo.row, coo.col)


def _of_torch(values: Any) -> Any:
    import torch

    if values.dtype != torch.bfloat16:
        return values.numpy()
    import ml_dtypes

    return values.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
