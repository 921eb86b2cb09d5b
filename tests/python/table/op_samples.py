"""Calls of every op with free axes, made from what the libraries say of themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from conftest import load
from numpy.typing import NDArray
from opsmith._definition import Arg, Op
from opsmith._library import definition_of

LIBRARIES = (
    "activations",
    "distances",
    "example",
    "gelu",
    "kernels",
    "lltm",
    "masks",
    "median_pool",
    "opsmith",
    "pairwise",
    "reductions",
    "zero_out",
)

SIZES = {name: size for size, names in {6: "nijb", 4: "mex", 2: "cf", 3: "pdsy"}.items() for name in names}
"""Of the dims that have names. Some can be cut in two equal parts, others cannot."""
SIZES |= {"batch": 6, "max_masks": 4, "k": 5}

BATCH = (4, 3)
"""The dims that `...` stands for."""

IMAGES, FILTERS = (6, 4, 4, 4), (2, 4, 2, 2)

SHAPES: dict[str, list[tuple[int, ...]]] = {
    "median_pool": [(6, 4, 4, 3)],
    "median_pool_grad": [(6, 4, 4, 3), (6, 3, 3, 3)],
    "median_pool_grad_grad": [(6, 4, 4, 3), (6, 4, 4, 3)],
    "extract_patches": [(6, 4, 4, 3)],
    "extract_patches_grad": [(6, 4, 4, 3), (6, 3, 3, 12)],
    "extract_patches_grad_grad": [(6, 4, 4, 3)],
    "concat_grad": [(4, 3), (8, 3)],
    "stack_grad": [(4, 3), (2, 4, 3)],
    "split_grad_grad": [(4, 3), (8, 3)],
    "top_k": [(4, 6)],
    "adam_corrections": [()],
    "conv": [IMAGES, FILTERS],
    "conv_grad": [IMAGES, FILTERS, (6, 2, 3, 3)],
    "conv_grad_grad": [IMAGES, FILTERS, (6, 2, 3, 3), IMAGES, FILTERS],
    "max_pool": [IMAGES],
    "max_pool_grad": [IMAGES, (6, 4, 3, 3)],
    "max_pool_grad_grad": [IMAGES, IMAGES],
    "avg_pool": [IMAGES],
    "avg_pool_grad": [IMAGES, (6, 4, 3, 3)],
    "avg_pool_grad_grad": [IMAGES],
}
"""The shapes that the rule of an op does not tell."""

CELL = {"input": (6, 3), "weights": (12, 7), "bias": (12,)}
"""Of the ops of `LltmCell`, by what an input is or is the gradient of; the others are of (6, 4)."""

PATCHES = {"ksize": [2, 2]}
ATTRS: dict[str, dict[str, Any]] = {
    "median_pool": PATCHES,
    "extract_patches": PATCHES,
    "max_pool": PATCHES,
    "avg_pool": PATCHES,
    "conv": {"strides": [1, 1]},
    "k_nearest": {"neighbours": 3},
    "k_nearest_distances": {"neighbours": 3},
    "leaky_relu": {"slope": 0.1},
    "discriminative_loss": {"delta_v": 0.5, "delta_d": 1.5},
    "discriminative_loss_grad": {"delta_v": 0.5},
    "cast": {"dtype": "float32"},
    "split": {"N": 2},
    "sum": {"axes": [-1]},
    "mean": {"axes": [-1]},
    "max": {"axes": [-1]},
    "min": {"axes": [-1]},
    "arg_max": {"axes": [-1]},
    "arg_min": {"axes": [-1]},
    "transpose": {"perm": [1, 0]},
    "one_hot": {"depth": 6},
    "top_k": {"k": 2},
    "gradient_descent_step": {"learning_rate": 0.1},
    "momentum_step": {"learning_rate": 0.1, "momentum": 0.5},
    "adam_corrections": {"beta1": 0.5, "beta2": 0.9},
    "adam_step": {"learning_rate": 0.1, "beta1": 0.5, "beta2": 0.9, "epsilon": 1e-3},
}
"""Attributes that are not the defaults, of an op and of its gradients."""

ELSEWHERE = {
    "pointwise": "its program is the graph's own; it is called by no one else",
    "sparse_to_dense": "its free axes are those of a gradient",
    "sparse_to_dense_grad": "its positions must be those of a call",
    "sparse_to_dense_grad_grad": "its positions must be those of a call",
    "string_to_number": "texts have a test of their own",
}
"""Ops that have no sample here, and why."""


@dataclass(frozen=True)
class Sample:
    """A call of an op of a library."""

    library: str
    op: Op
    inputs: tuple[Any, ...]
    attrs: dict[str, Any]

    @property
    def id(self) -> str:
        """What pytest calls it."""
        return f"{self.library}.{self.op.snake_name}"

    def call(self, *inputs: Any) -> list[Any]:
        """The tensors of all outputs."""
        return flat(getattr(load(self.library), self.op.snake_name)(*inputs, **self.attrs))


def flat(value: Any) -> list[Any]:
    """Tensors in a row."""
    return [leaf for each in value for leaf in flat(each)] if isinstance(value, list | tuple) else [value]


def samples(libraries: Sequence[str] = LIBRARIES) -> list[Sample]:
    """One of each op of some libraries that has free axes."""
    found = []
    for library in libraries:
        for op in definition_of(load(library)).ops:
            if (
                op.parallel is not None
                and op.snake_name not in ELSEWHERE
                and not any(a.ref for a in op.inputs)
            ):
                attrs = attributes(op)
                found.append(Sample(library, op, inputs(op, attrs), attrs))
    return found


def attributes(op: Op) -> dict[str, Any]:
    """Those of the op itself, or of the op whose gradient it is."""
    given = ATTRS.get(op.snake_name, ATTRS.get(re.sub(r"(_grad)+$", "", op.snake_name), {}))
    names = {attr.name for attr in op.call_attrs}
    return {name: value for name, value in given.items() if name in names}


def inputs(op: Op, attrs: dict[str, Any]) -> tuple[Any, ...]:
    """Arrays that the op takes, of float64 where it has that."""
    generator = np.random.default_rng(sum(op.snake_name.encode()))
    shapes = SHAPES.get(op.snake_name) or _shapes(op, attrs)
    found = []
    for arg, shape in zip(op.inputs, shapes, strict=True):
        arrays = [_array(op, arg, shape, generator) for _ in range(2 if arg.is_list else 1)]
        found.append(arrays if arg.is_list else arrays[0])
    return tuple(found)


def _array(op: Op, arg: Arg, shape: tuple[int, ...], generator: np.random.Generator) -> NDArray[Any]:
    dtype = arg.dtype
    if dtype is None:
        allowed = op.attr(arg.type_attr).allowed if arg.type_attr else None
        usual = ("float64", "float32", "int64", "int32", "bool")
        dtype = next((name for name in usual if allowed is None or name in allowed), None)
        assert dtype is not None, (op.name, arg.name, allowed)
    if dtype.startswith("int"):
        # Positions, of which there are at least two; those of masks are in order.
        return np.sort(generator.integers(0, 2, shape), -1).astype(dtype) if shape else np.array(1, dtype)
    if dtype == "bool":
        return np.asarray(generator.random(shape) < 0.5)
    return np.asarray(generator.uniform(0.2, 1.5, shape)).astype(dtype)


def _shapes(op: Op, attrs: dict[str, Any]) -> list[tuple[int, ...]]:
    """As the shape signature says, or the rule of the free axes."""
    if op.shapes is not None:
        return [tuple(_signature(text)) for text in op.shapes[0]]
    assert op.parallel is not None
    if op.snake_name.startswith("lltm_cell"):
        return [CELL.get(arg.name.split("_grad")[0], (6, 4)) for arg in op.inputs]
    left = op.parallel.split("->")[0]
    return [tuple(_rule(text, attrs)) for text in re.findall(r"\(([^)]*)\)", left)]


def _signature(text: str) -> list[int]:
    found: list[int] = []
    for dim in filter(None, (part.strip() for part in text.strip("()").split(","))):
        found += BATCH if dim == "..." else [eval(dim, {}, SIZES)]
    return found


def _rule(text: str, attrs: dict[str, Any]) -> list[int]:
    found: list[int] = []
    for dim in filter(None, (part.strip() for part in text.split(";")[0].split(","))):
        if "less" in dim:
            found += BATCH[:-1] if "axis" not in dim else BATCH[1:]
        elif "with" in dim:
            found += [4, *BATCH[1:]]
        elif "by" in dim:
            found += BATCH[::-1]
        elif dim == "i...":
            found.append(4)
        elif dim.startswith(("...", "_...")):
            found += BATCH
        else:
            found.append(SIZES.get(dim, 3))
    return found
