"""What a kernel that is written once turns into, shown by `opsmith.explain`."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import opsmith
import pytest

LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", Path(__file__).parents[3] / "target" / "release"))


@pytest.fixture
def pairwise() -> opsmith.Library:
    return opsmith.load(LIBRARIES / "libpairwise.so")


def test_the_formula_is_what_is_printed(pairwise: opsmith.Library) -> None:
    explanation = opsmith.explain(pairwise, "manhattan")
    assert str(explanation) == explanation.formula
    assert "abs(x" in explanation.formula


def test_an_op_goes_by_either_name(pairwise: opsmith.Library) -> None:
    assert opsmith.explain(pairwise, "SquaredEuclideanGrad") == opsmith.explain(
        pairwise, "squared_euclidean_grad"
    )


def test_an_op_is_a_function_or_a_name(pairwise: opsmith.Library) -> None:
    assert opsmith.explain(pairwise.manhattan) == opsmith.explain(pairwise, "manhattan")
    power = opsmith.explain(pairwise.minkowski_power, order=3.0)
    assert power == opsmith.explain(pairwise, "minkowski_power", order=3.0)
    assert "gelu" in opsmith.explain(opsmith.ops.gelu).formula


def test_attributes_go_by_the_names_of_python() -> None:
    testops = opsmith.load(LIBRARIES / "libopsmith_testops.so")
    # That its kernel is written by hand is said of known attributes only.
    for attributes in ({"from_": 3}, {"from": 3}):
        with pytest.raises(opsmith.UnimplementedError, match="by hand"):
            opsmith.explain(testops.lambda_, **attributes)
    with pytest.raises(opsmith.InvalidArgumentError, match="has no attribute `fro`"):
        opsmith.explain(testops.lambda_, fro=3)


def test_the_dtype_is_in_the_source_and_in_the_vectors(pairwise: opsmith.Library) -> None:
    single, double = (
        opsmith.explain(pairwise, "manhattan"),
        opsmith.explain(pairwise, "manhattan", T="float64"),
    )
    assert single.formula == double.formula
    assert single.cuda_source != double.cuda_source
    assert single.vectors.endswith("× float32")
    assert double.vectors.endswith("× float64")


def test_attributes_are_any_plain_values(pairwise: opsmith.Library) -> None:
    double = opsmith.explain(pairwise, "minkowski_power", T="float64")
    for dtype in [np.float64, np.dtype("float64"), float]:
        assert opsmith.explain(pairwise, "minkowski_power", T=dtype) == double
    for order in [2, np.float32(2), np.int64(2), math.inf]:
        assert "order" in opsmith.explain(pairwise, "minkowski_power", order=order).formula


def test_what_cannot_be_explained_is_told(pairwise: opsmith.Library) -> None:
    with pytest.raises(opsmith.NotFoundError, match="no op `cosine`"):
        opsmith.explain(pairwise, "cosine")
    with pytest.raises(opsmith.InvalidArgumentError, match="`T` must be"):
        opsmith.explain(pairwise, "manhattan", T="int32")
    with pytest.raises(opsmith.InvalidArgumentError, match="has no attribute `p`"):
        opsmith.explain(pairwise, "manhattan", p=2)
    with pytest.raises(opsmith.InvalidArgumentError, match="order"):
        opsmith.explain(pairwise, "minkowski_power", order=math.nan)
    with pytest.raises(opsmith.InvalidArgumentError, match=r"or a library \(or the module"):
        opsmith.explain(pairwise, len)  # type: ignore[arg-type]
    with pytest.raises(opsmith.InvalidArgumentError, match=r"got 'libpairwise.so' and 'manhattan'"):
        opsmith.explain("libpairwise.so", "manhattan")  # type: ignore[arg-type]
    for wrong in [(pairwise,), (len,), (pairwise.manhattan, "manhattan")]:
        with pytest.raises(opsmith.InvalidArgumentError, match="`explain` takes a function of a library"):
            opsmith.explain(*wrong)
    with pytest.raises(opsmith.InvalidArgumentError, match="must be a plain value"):
        opsmith.explain(pairwise, "minkowski_power", order=object())
    distances = opsmith.load(LIBRARIES / "libdistances.so")
    with pytest.raises(opsmith.UnimplementedError, match="written by hand"):
        opsmith.explain(distances, "pairwise_manhattan_distance")
