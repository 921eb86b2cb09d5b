"""What an op gives, told from shapes and dtypes: known sizes, or `jax.export`'s symbolic ones."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.core import max_dim, min_dim

from opsmith._definition import Op
from opsmith._errors import Error, InvalidArgumentError, ResourceExhaustedError, UnimplementedError

Size: TypeAlias = Any
"""An `int`, or a symbolic dimension."""

_CACHED = 256


class DataDependentShape(UnimplementedError):
    """The shape of an output does not follow from the inputs' shapes."""


def framework_error(error: Error) -> jax.errors.JaxRuntimeError:
    """The error as JAX raises one that comes while a program runs."""
    code = "".join(f"_{c}" if c.isupper() else c for c in error.code).lstrip("_").upper()
    return jax.errors.JaxRuntimeError(f"{code}: {error}")


def inference(op: Op, infer_shapes: Callable[[str], str]) -> Callable[..., list[list[jax.ShapeDtypeStruct]]]:
    """A function of the inputs, the values of their tensors where they are known, and the encoded attributes,
    both as JSON, and of which outputs are wanted: each output's shapes and dtypes.

    `infer_shapes` takes and gives JSON.
    """

    @functools.lru_cache(_CACHED)
    def infer(request: str) -> Any:
        try:
            return json.loads(infer_shapes(request))
        except Error as error:
            raise framework_error(error) from None

    def outputs(
        inputs: Sequence[list[jax.ShapeDtypeStruct] | None],
        values: list[Any],
        attrs: dict[str, Any],
        wanted: int,
    ) -> list[list[jax.ShapeDtypeStruct]]:
        symbols: dict[str, Size] = {}
        request: dict[str, Any] = {
            "inputs": [
                group and [[_dim(d, symbols) for d in like.shape] for like in group] for group in inputs
            ],
            "dtypes": [group and [like.dtype.name for like in group] for group in inputs],
            "attrs": attrs,
        }
        if any(value is not None for value in values):
            request["values"] = values
        answer = infer(json.dumps(request))
        for constraint in answer["constraints"]:
            _check(op, constraint, symbols)
        found: list[list[jax.ShapeDtypeStruct]] = []
        for position, (shapes, dtypes) in enumerate(zip(answer["outputs"], answer["dtypes"], strict=True)):
            if op.outputs[position].optional and not wanted >> position & 1:
                found.append([])
                continue
            if any(shape is None or None in shape for shape in shapes):
                raise _data_dependent(op, op.outputs[position].name)
            sizes = [tuple(_evaluate(dim, symbols) for dim in shape) for shape in shapes]
            likes = [jax.ShapeDtypeStruct(*pair) for pair in zip(sizes, map(_dtype, dtypes), strict=True)]
            for like in likes:
                _check_size(op, op.outputs[position].name, like)
            found.append(likes)
        return found

    return outputs


def _data_dependent(op: Op, output: str) -> DataDependentShape:
    return DataDependentShape.of(
        op.name,
        output,
        f"the shape of output `{output}` depends on the data, so the op cannot be traced (by jit, "
        "grad, vmap, scan or export); call it outside of them, on arrays that are there",
    )


def _check_size(op: Op, output: str, like: jax.ShapeDtypeStruct) -> None:
    """Refuse what has more bytes than 63 bits count: XLA ends the process."""
    dims = [dim for dim in like.shape if isinstance(dim, int)]
    if math.prod(dims) * like.dtype.itemsize >= 1 << 63:
        text = f"output `{output}` is too large: it has shape {list(like.shape)}"
        raise framework_error(ResourceExhaustedError.of(op.name, output, text))


def _dtype(name: str) -> np.dtype[Any]:
    try:
        return jax.numpy.dtype(name)
    except TypeError:
        raise UnimplementedError(f"JAX has no arrays of dtype {name}") from None


def _dim(size: Size, symbols: dict[str, Size]) -> int | str:
    """The size as a request has it: a number or a symbol's name."""
    if not jax.export.is_symbolic_dim(size):
        return int(size)
    symbols[str(size)] = size
    return str(size)


def _evaluate(dim: Any, symbols: dict[str, Size]) -> Size:
    match dim:
        case int():
            return dim
        case str():
            return symbols[dim]
    operator, *operands = dim
    return functools.reduce(_OPERATORS[operator], [_evaluate(operand, symbols) for operand in operands])


_OPERATORS: dict[str, Callable[[Size, Size], Size]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "min": min_dim,
    "max": max_dim,
}


def _check(op: Op, constraint: dict[str, Any], symbols: dict[str, Size]) -> None:
    left, right = _evaluate(constraint["left"], symbols), _evaluate(constraint["right"], symbols)
    if constraint["relation"] == "==":
        # Symbolic sizes are equal only if they are so always; what must be equal needs one symbol.
        holds, sign = left == right, "≠"
    else:
        try:
            holds, sign = left >= right, "<"
        except jax.errors.InconclusiveDimensionOperation:
            # The handler sees the sizes.
            return
    if not holds:
        text = f"{constraint['message']}: {left} {sign} {right}"
        raise framework_error(InvalidArgumentError.of(op.name, None, text))
