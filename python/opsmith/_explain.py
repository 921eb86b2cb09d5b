"""What a kernel that is written once turns into, to be read."""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from opsmith import _html
from opsmith._errors import InvalidArgumentError
from opsmith._forks import LOADING
from opsmith._library import Library, op_meant


@dataclass(frozen=True)
class Explanation:
    """What an op's kernel turned into. `print` shows its formula."""

    #: What it computes: a line for each output and for each common subexpression.
    formula: str
    #: The CUDA C++ source of its kernel, which NVRTC compiles without any header.
    cuda_source: str
    #: The instructions that it runs with on this processor: `AVX-512, 16 × float32`.
    vectors: str

    def __str__(self) -> str:
        return self.formula

    def _repr_html_(self) -> str:
        return _html.text(self.formula) + _html.hidden(f"CUDA source; here {self.vectors}", self.cuda_source)


def explain(
    op: Callable[..., Any] | Library | ModuleType, name: str | None = None, /, **attributes: Any
) -> Explanation:
    """Show what the kernel of an op turns into: its formula, its CUDA source and the vectors that it computes
    with here.

        >>> print(opsmith.explain(activations.gelu))
        y = x * normal_cdf(x)
        >>> print(opsmith.explain(activations, "gelu_grad", T="float64").cuda_source)

    - `op`: a function of a library; or a library, together with
    - `name`: the name of an op, in snake_case or CamelCase. Gradient ops have names such as `gelu_grad`.
    - `attributes`: values of attributes instead of their defaults. `T="float64"` asks for another dtype, by
      name or as a framework's dtype.

    Works for ops that are written once, as the arithmetic of a body.

    Raises

    - `opsmith.NotFoundError` if there is no such op;
    - `opsmith.UnimplementedError` if its kernel is written by hand;
    - `opsmith.InvalidArgumentError` if `op` is not an op, or an attribute does not fit it.
    """
    library, definition = op_meant("explain", op, name)
    try:
        names = {attr.python_name: attr.name for attr in definition.attrs}
        given = {names.get(name, name): _plain(value) for name, value in attributes.items()}
        request = json.dumps({"attrs": given})
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"{definition.name}: an attribute given to `explain` must be a plain value: {error}"
        ) from None
    return Explanation(**json.loads(library._opsmith_loaded.native.explain(definition.index, request)))


def _plain(value: Any) -> object:
    """The value as JSON has it: of what JSON lacks, the text in the definition language."""
    # Loading a library does not take NumPy, and most who load one explain nothing.
    with LOADING:
        import numpy as np

    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, numbers.Real) and not math.isfinite(value):
        return str(value)
    if type(value).__module__ == "torch":
        return str(value).removeprefix("torch.")
    if isinstance(value, type | np.dtype):
        return np.dtype(value).name
    # TensorFlow's dtypes and JAX's have names.
    return getattr(value, "name", value)
