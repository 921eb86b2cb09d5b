"""Compositions of ops in ONNX Runtime: bit by bit what they give on NumPy's arrays."""

from __future__ import annotations

import numpy as np
from conftest import count, load
from lltm_reference import numbers, upstream
from models import check, definition


def test_compositions_and_their_gradients() -> None:
    library = load("composed")
    x = np.arange(6.0).reshape(2, 3)
    inputs = numbers(3, 2, 4)
    calls = {
        "zero_out": [x],
        "zero_out_grad": [x, x + 5],
        "lltm_of_ops": inputs,
        "lltm_of_ops_grad": [*inputs, *upstream(3, 4)],
    }
    for name, arguments in calls.items():
        check(library, "composed", definition(library, name), arguments, {})
        count("compositions are as on NumPy's arrays")
