"""Arguments for every op of the example libraries, found through the libraries' own descriptions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from conftest import load
from opsmith._definition import Op
from opsmith._library import definition_of

F64, F32, I32, I64 = torch.float64, torch.float32, torch.int32, torch.int64


@dataclass(frozen=True)
class Sample:
    """A call of an op: tensors are made anew for each use."""

    inputs: Callable[[], tuple[Any, ...]]
    attrs: dict[str, Any] = field(default_factory=dict)
    precise: bool = True
    """Whether there is a float64 call, for finite differences."""


def floats(*shape: int, dtype: torch.dtype = F64) -> torch.Tensor:
    """Numbers that are all different, so that no kink or tie is near."""
    count = torch.Size(shape).numel()
    return (
        torch.randperm(count).to(dtype) / max(count, 1) + torch.rand(1).to(dtype) / (4 * max(count, 1))
    ).reshape(shape)


def ints(*shape: int, dtype: torch.dtype = I32) -> torch.Tensor:
    """Small integers."""
    return torch.randint(-3, 4, shape, dtype=dtype)


SAMPLES: dict[str, list[Sample]] = {
    "PairwiseManhattanDistance": [
        Sample(lambda: (floats(3, 4), floats(5, 4))),
        Sample(lambda: (floats(4, 3).T, floats(5, 8)[:, ::2])),
        Sample(lambda: (floats(0, 4), floats(5, 4))),
    ],
    "PairwiseManhattanDistanceGrad": [
        Sample(lambda: (floats(3, 4), floats(5, 4), floats(3, 5))),
        Sample(lambda: (floats(3, 4), floats(5, 4), floats(3, 5)), {"a": 2}),
        Sample(lambda: (floats(3, 4), floats(5, 4), floats(3, 5)), {"wanted": 1}),
        Sample(lambda: (floats(3, 4), floats(5, 4), floats(3, 5)), {"wanted": 2}),
    ],
    "PairwiseManhattanDistanceGradGrad": [
        Sample(lambda: (floats(3, 4), floats(5, 4), floats(3, 4), floats(5, 4))),
        Sample(lambda: (floats(3, 4), floats(5, 4), None, floats(5, 4))),
    ],
    "ZeroOut": [Sample(lambda: (ints(2, 3),))],
    "ZeroOutVector": [Sample(lambda: (ints(5),))],
    "ZeroOutPreserve": [Sample(lambda: (ints(5),), {"preserve_index": 2})],
    "ZeroOutPreserveDefault": [
        Sample(lambda: (ints(5),)),
        Sample(lambda: (ints(2, 3),), {"preserve_index": 4}),
    ],
    "ZeroOutFloatInt": [Sample(lambda: (floats(5, dtype=F32),), precise=False), Sample(lambda: (ints(5),))],
    "ZeroOutDefaultType": [
        Sample(lambda: (floats(2, 3),), {"preserve_index": 4}),
        Sample(lambda: (ints(5),)),
    ],
    "ZeroOutReal": [Sample(lambda: (floats(2, 3),), {"preserve_index": 4})],
    "ZeroOutGrad": [Sample(lambda: (floats(2, 3),), {"preserve_index": 1})],
    "ZeroOutGradGrad": [Sample(lambda: (floats(2, 3),), {"preserve_index": 1})],
    "ZeroOutInPlace": [Sample(lambda: (floats(2, 3),))],
    "ZeroOutRows": [Sample(lambda: (floats(4, 2, 3),), {"preserve_index": 2})],
    "ZeroOutRowsGrad": [Sample(lambda: (floats(4, 2, 3),), {"preserve_index": 2})],
    "ZeroOutRowsGradGrad": [Sample(lambda: (floats(4, 2, 3),), {"preserve_index": 2})],
    "AttrDefaults": [
        Sample(lambda: ()),
        Sample(lambda: (), {"i": 3, "l_float": [1.0], "ty": F64, "s": "bar"}),
    ],
    "AttrDefaultsOfTensors": [Sample(lambda: ()), Sample(lambda: (), {"sh": [3, 4]})],
    "FruitPrice": [Sample(lambda: (), {"fruit": "apple"})],
    "Repeat": [Sample(lambda: (ints(4),), {"times": 3})],
    "ZerosOfTypes": [Sample(lambda: (), {"types": [I32, F32, F32]})],
    "SumInts": [Sample(lambda: ([ints(2, 3), ints(2, 3)],))],
    "SumAll": [Sample(lambda: ([floats(2, 3), floats(2, 3), floats(2, 3)],))],
    "SumAllGrad": [Sample(lambda: ([floats(2, 3), floats(2, 3)], floats(2, 3)))],
    "SumAllGradGrad": [Sample(lambda: ([floats(2, 3), floats(2, 3)],))],
    "ZeroOutEach": [Sample(lambda: ([floats(2, 3), ints(4), floats(5, dtype=F32)],))],
    "MaxWithIndex": [Sample(lambda: (floats(7),))],
    "MaxWithIndexGrad": [Sample(lambda: (floats(7), torch.tensor(3), floats()))],
    "MaxWithIndexGradGrad": [Sample(lambda: (torch.tensor(3), floats(7)))],
    "NonZero": [Sample(lambda: (ints(4, 5),)), Sample(lambda: (floats(3),))],
    "Counter": [Sample(lambda: ())],
}

WITHOUT_TORCH = {"StringToNumber"}
"""Ops that PyTorch cannot have: it has no tensors of strings."""


@dataclass(frozen=True)
class Case:
    """A sample of an op of a library."""

    library: str
    op: Op
    sample: Sample

    @property
    def overload(self) -> torch._ops.OpOverload:
        """The op in PyTorch."""
        return getattr(getattr(torch.ops, self.library), self.op.snake_name).default

    @property
    def function(self) -> Callable[..., Any]:
        """The op's generated function."""
        return getattr(load(self.library), self.op.snake_name)

    def call(self, *inputs: Any) -> Any:
        """Call the op through `torch.ops` with the sample's attributes."""
        return self.overload(*inputs, **self.sample.attrs)


def ops(library: str) -> list[Op]:
    """Every op of the library."""
    return list(definition_of(load(library)).ops)


def cases(which: Callable[[Case], bool] = lambda case: True) -> list[Any]:
    """Every sample of every op of both example libraries that `which` accepts, as parameters of a test."""
    found = []
    for library in ("distances", "zero_out"):
        for op in ops(library):
            samples = [Case(library, op, sample) for sample in SAMPLES.get(op.name, [])]
            found += [_parameter(case, number) for number, case in enumerate(samples) if which(case)]
    return found


def _parameter(case: Case, number: int) -> Any:
    return pytest.param(case, id=f"{case.op.snake_name}-{number}")
