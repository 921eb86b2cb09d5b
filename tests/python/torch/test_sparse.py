"""`opsmith.SparseTensor` and sparse tensors of PyTorch: there, back, and products with their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import opsmith
import pytest
import torch
from opsmith import SparseTensor


def _random(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(len(shape))
    dense = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return (dense * (torch.rand(*shape, generator=generator) < 0.4)).to(dtype)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.complex64]
)
def test_tensors_go_there_and_back(layout: torch.layout, dtype: torch.dtype) -> None:
    dense = _random(5, 6, dtype=dtype)
    ours = SparseTensor.from_torch(dense.to_sparse(layout=layout))
    assert (ours.shape, ours.dtype) == ((5, 6), str(dtype).removeprefix("torch."))
    back = ours.to_torch()
    assert back.layout == torch.sparse_coo and back.is_coalesced() and back.dtype == dtype
    torch.testing.assert_close(back.to_dense(), dense, rtol=0, atol=0)


def test_tensors_of_other_ranks_are_held() -> None:
    for shape in [(4,), (2, 3, 4)]:
        dense = _random(*shape)
        ours = SparseTensor.from_torch(dense.to_sparse())
        np.testing.assert_array_equal(ours.to_dense(), dense.numpy())
        torch.testing.assert_close(ours.to_torch().to_dense(), dense)


def test_what_pytorch_has_twice_is_added_up() -> None:
    twice = torch.sparse_coo_tensor([[1, 0, 1], [0, 2, 0]], [1.0, 2.0, 4.0], (2, 3))
    ours = SparseTensor.from_torch(twice)
    assert len(ours) == 2
    np.testing.assert_array_equal(ours.to_dense(), twice.to_dense().numpy())


def test_products_and_gradients_are_pytorchs() -> None:
    theirs = _random(6, 8).to_sparse().requires_grad_()
    dense = torch.randn(8, 3, dtype=torch.float64, requires_grad=True)
    product = torch.sparse.mm(theirs, dense).tanh()
    product.sum().backward()
    ours = SparseTensor.from_torch(theirs)

    def loss(values: Any, dense: Any) -> Any:
        return opsmith.ops.tanh(SparseTensor(ours.indices, values, ours.shape) @ dense).sum()

    arrays = ours.values, dense.detach().numpy()
    value, (by_values, by_dense) = opsmith.value_and_grad(loss, argnums=(0, 1))(*arrays)
    np.testing.assert_allclose(value, product.sum().item(), rtol=1e-12)
    assert theirs.grad is not None and dense.grad is not None
    np.testing.assert_allclose(by_values, theirs.grad.coalesce().values().numpy(), rtol=1e-10)
    np.testing.assert_allclose(by_dense, dense.grad.numpy(), rtol=1e-10)


def test_other_tensors_are_refused() -> None:
    with pytest.raises(opsmith.InvalidArgumentError, match="got a dense tensor; `from_dense`"):
        SparseTensor.from_torch(torch.ones(2))
    with pytest.raises(opsmith.InvalidArgumentError, match="got ndarray"):
        SparseTensor.from_torch(np.ones(2))
    hybrid = torch.ones(2, 3).to_sparse(1)
    with pytest.raises(
        opsmith.InvalidArgumentError, match="must be one number, got a tensor of 1 dense dims"
    ):
        SparseTensor.from_torch(hybrid)
    with pytest.raises(opsmith.InvalidArgumentError, match="expected a tensor on the CPU, got one on meta"):
        SparseTensor.from_torch(torch.empty(2, 2, layout=torch.sparse_coo, device="meta"))
    with pytest.raises(
        opsmith.InvalidArgumentError, match=r"`values` must be an array .* got Tensor; `from_torch`"
    ):
        SparseTensor([[0, 0]], torch.ones(1), (2, 2))
    with pytest.raises(opsmith.InvalidArgumentError, match="argument 0 is of torch"):
        opsmith.grad(lambda x: x.sum())(torch.ones(2))
