"""`opsmith.grad` against `torch.func.grad`."""

from __future__ import annotations

from typing import Any

import numpy as np
import opsmith
import pytest
import torch


@pytest.mark.parametrize("order", [1, 2, 3])
def test_gradients_of_functions_of_arrays_are_pytorchs(order: int) -> None:
    w = np.random.default_rng(0).normal(size=(3, 4))

    def ours(x: Any) -> Any:
        return (opsmith.ops.tanh(x @ w) * opsmith.ops.sigmoid(x @ w * 2.0)).mean()

    def theirs(x: torch.Tensor) -> torch.Tensor:
        y = x @ torch.from_numpy(w)
        return (torch.tanh(y) * torch.sigmoid(y * 2.0)).mean()

    def summed(function: Any) -> Any:
        return lambda x: (function(x) ** 2).sum()

    gradient, their_gradient = opsmith.grad(ours), torch.func.grad(theirs)
    for _ in range(order - 1):
        gradient, their_gradient = opsmith.grad(summed(gradient)), torch.func.grad(summed(their_gradient))
    x = np.random.default_rng(1).normal(size=(5, 3))
    if order == 3:
        # Of products of matrices there are gradients of two orders.
        with pytest.raises(opsmith.UnimplementedError, match="MatMulGradGrad: no gradient is declared"):
            gradient(x)
        return
    np.testing.assert_allclose(
        gradient(x), their_gradient(torch.from_numpy(x)).numpy(), rtol=1e-9, atol=1e-12
    )
