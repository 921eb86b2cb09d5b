"""Calls of every op of the example libraries that has a gradient, and what its derivatives end at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import op_samples
from op_samples import Sample

EXAMPLES = [library for library in op_samples.LIBRARIES if library != "opsmith"]

ONE_ORDER = {
    "example.example": "ExampleGrad",
    "lltm.lltm": "LltmGrad",
    "masks.discriminative_loss": "DiscriminativeLossGrad",
}
"""Ops whose gradient op declares no gradient; without it there is no forward mode and no second order."""

TWO_ORDERS = {
    "distances.pairwise_manhattan_distance": "PairwiseManhattanDistance: its derivative has none in forward",
    "masks.average_embedding_mask": "AverageEmbeddingMask: its derivative has none in forward mode",
    "median_pool.median_pool": "MedianPool: its derivative has none in forward mode",
}
"""Ops with gradients of two orders, but forward mode of forward mode takes a third; what the error says."""

FLOAT32 = {"example.example", "zero_out.zero_out_float_int", "masks.average_embedding_mask"}
"""Ops that compute in float32, too inexact for small steps. They are polynomials of at most two orders."""

VECTOR = np.linspace(0.3, 1.7, 5)
APART = np.random.default_rng(0).permutation(24).reshape(8, 3) / 8.0
MORE: dict[str, tuple[Any, ...]] = {
    "zero_out_float_int": (VECTOR.astype("float32"),),
    "zero_out_default_type": (VECTOR,),
    "zero_out_real": (VECTOR,),
    "max_with_index": (VECTOR,),
    # No two numbers are close, for the difference has a kink.
    "pairwise_manhattan_distance": (APART[:5], APART[5:]),
}
"""Inputs of ops that have no sample, or not one to differentiate by."""


@dataclass(frozen=True)
class Case:
    """A call, of which some inputs are differentiated by."""

    sample: Sample
    places: tuple[int, ...]
    """The inputs of floats; where the first is a list, that alone."""

    @property
    def id(self) -> str:
        """Library and op."""
        return self.sample.id

    @property
    def at(self) -> tuple[Any, ...]:
        """The values of these inputs."""
        if self.sample.op.inputs[0].is_list:
            return tuple(self.sample.inputs[0])
        return tuple(self.sample.inputs[place] for place in self.places)

    def filled(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """All inputs, with these values of those that are differentiated by."""
        if self.sample.op.inputs[0].is_list:
            return (list(values), *self.sample.inputs[1:])
        found = list(self.sample.inputs)
        for place, value in zip(self.places, values, strict=True):
            found[place] = value
        return tuple(found)


def cases() -> list[Case]:
    """One of each op that has a gradient and is none."""
    found = [sample for sample in op_samples.samples(EXAMPLES) if sample.op.snake_name not in MORE]
    for library in ("zero_out", "distances"):
        ops = op_samples.definition_of(op_samples.load(library)).ops
        found += [Sample(library, op, MORE[op.snake_name], {}) for op in ops if op.snake_name in MORE]
    gradients = {op.gradient.op for sample in found if (op := sample.op).gradient}
    return [
        Case(sample, _places(sample))
        for sample in found
        if sample.op.gradient is not None and sample.op.name not in gradients
    ]


def _places(sample: Sample) -> tuple[int, ...]:
    wired = sample.op.gradient
    assert wired is not None
    return tuple(sorted(wired.outputs))


def left_out(names: set[str]) -> set[str]:
    """The ops with a gradient, none themselves, of which no case has the id."""
    found = set()
    for library in EXAMPLES:
        ops = op_samples.definition_of(op_samples.load(library)).ops
        gradients = {op.gradient.op for op in ops if op.gradient}
        found |= {
            f"{library}.{op.snake_name}" for op in ops if op.gradient is not None and op.name not in gradients
        }
    return found - names
