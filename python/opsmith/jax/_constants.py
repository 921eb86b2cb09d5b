"""Inputs whose values are part of a program: a CUDA kernel reads them in host memory, where JAX has none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from opsmith import _language


@jax.tree_util.register_static
@dataclass(frozen=True)
class Constant:
    """An array that JAX does not trace: as an attribute does, a new value makes a new program."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    data: bytes

    @staticmethod
    def of(value: Any, dtype: Any) -> Constant:
        """The value as an array of this dtype; of JAX's own for it where that is `None`."""
        array = np.asarray(value, dtype)
        if dtype is None:
            array = array.astype(jax.dtypes.canonicalize_dtype(array.dtype))
        if array.dtype.kind not in "biufcV":
            raise TypeError(f"it is {array.dtype}")
        return Constant(array.dtype, array.shape, array.tobytes())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.frombuffer(self.data, self.dtype).reshape(self.shape).astype(dtype or self.dtype)

    def to_json(self) -> Any:
        """As shape inference takes it; `None` for what it does not ask for."""
        if self.dtype.kind not in "biu":
            return None
        values = np.frombuffer(self.data, self.dtype).tolist()
        return {"dtype": self.dtype.name, "shape": list(self.shape), "values": values}

    def text(self) -> str:
        """As a handler takes it."""
        return _language.tensor(self.dtype.name, self.shape, self.data)
