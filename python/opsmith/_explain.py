"""What a kernel that is written once turns into, to be read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from opsmith._errors import InvalidArgumentError
from opsmith._library import Library


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


def explain(library: Library, op: str, /, **attributes: Any) -> Explanation:
    """Tell what the kernel of `op` is made of, where its arithmetic is written once for all devices.

    The op is named as the function is, or CamelCase; its gradient's ops have names of their own, such as
    `gelu_grad`. Attributes that are not given have their defaults; `T="float64"` asks for another dtype.

    Raises `opsmith.NotFoundError` where there is no such op, `opsmith.UnimplementedError` for one whose
    kernel is written by hand, and `opsmith.InvalidArgumentError` for attributes that do not fit the op.
    """
    native = library._opsmith_loaded.native
    try:
        request = json.dumps({"attrs": attributes})
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"{op}: an attribute to explain it with is no plain value: {error}"
        ) from None
    return Explanation(**json.loads(native.explain(native.op(op).index, request)))
