"""The cell as a module of PyTorch."""

from __future__ import annotations

import torch
from lltm_library import ops

State = tuple[torch.Tensor, torch.Tensor]


class LLTM(torch.nn.Module):
    """One step of a recurrent cell with a long-term memory: (input, (h, C)) → (new_h, new_cell).

    `input` is (batch, input_features); `h` and `C` are (batch, state_size), as are the results.
    """

    def __init__(
        self,
        input_features: int,
        state_size: int,
        *,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.state_size = state_size
        columns = input_features + state_size
        self.weights = torch.nn.Parameter(torch.empty(3 * state_size, columns, dtype=dtype))
        self.bias = torch.nn.Parameter(torch.empty(3 * state_size, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters from ±1/√state_size."""
        limit = self.state_size**-0.5 if self.state_size else 0.0
        for parameter in self.parameters():
            torch.nn.init.uniform_(parameter, -limit, limit)

    def forward(self, input: torch.Tensor, state: State) -> State:
        """The next state."""
        h, cell = state
        new_h, new_cell = ops.lltm(input, self.weights, self.bias, h, cell)
        return new_h, new_cell

    def start(self, batch: int) -> State:
        """The state before the first step: zeros."""
        zeros = self.weights.new_zeros(batch, self.state_size)
        return zeros, zeros
