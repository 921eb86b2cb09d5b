"""What a kernel that is written once turns into, to be read."""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from opsmith._errors import InvalidArgumentError
from opsmith._forks import LOADING
from opsmith._library import Library, op_meant


@dataclass(frozen=True)
class Explanation:
    """What an op's kernel is made of; `print` shows its formula."""

    #: What it computes: a line for each output and for each common subexpression.
    formula: str
    #: The CUDA C++ source of its kernel, which NVRTC compiles without any header.
    cuda_source: str
    #: The instructions that it runs with on this processor: `AVX-512, 16 × float32`.
    vectors: str

    def __str__(self) -> str:
        return self.formula


def explain(op: Callable[..., Any] | Library, name: str | None = None, /, **attributes: Any) -> Explanation:
    """Tell what the kernel of an op is made of, where its arithmetic is written once for all devices.

    The op is a function of a library, `explain(gelu.gelu)`, or a library and a name, as the function is
    called or CamelCase; a gradient's ops have names of their own, such as `gelu_grad`. Attributes that are
    not given have their defaults; `T="float64"` asks for another dtype, by name or as a framework's own.

    Raises `opsmith.NotFoundError` where there is no such op, `opsmith.UnimplementedError` for one whose
    kernel is written by hand, and `opsmith.InvalidArgumentError` for attributes that do not fit the op, and
    for what is no op.
    """
    library, definition = op_meant("explain", op, name)
    try:
        request = json.dumps({"attrs": {name: _plain(value) for name, value in attributes.items()}})
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
