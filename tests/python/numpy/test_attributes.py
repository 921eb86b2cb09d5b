"""Attributes: what Python gives becomes what the definition asks for, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import opsmith
import pytest
from numpy.testing import assert_array_equal

Ops = Callable[[str], Any]


class TorchDtype:
    """What `str` makes of a dtype of PyTorch."""

    def __str__(self) -> str:
        return "torch.int32"


@pytest.mark.parametrize(
    "dtype", ["int32", "DT_INT32", np.int32, np.dtype("int32"), np.dtype(">i4"), TorchDtype()], ids=str
)
def test_dtypes_in_every_spelling(testops: Ops, dtype: object) -> None:
    made = testops("make")(attrs={"T": dtype, "shape": [2, 1]})
    assert made.dtype == np.int32
    assert_array_equal(made, [[3], [3]])


def test_defaults_serve_where_none_is_given(testops: Ops) -> None:
    for made in (testops("make")(), testops("make")(attrs=()), testops("make")(attrs=(None, None))):
        assert made.dtype == np.float32
        assert_array_equal(made, [3, 3])


@pytest.mark.parametrize(
    "shape", [[2, 1], (2, 1), np.array([2, 1]), range(2, 0, -1), [np.int8(2), np.uint64(1)]], ids=str
)
def test_lists_in_every_form(testops: Ops, shape: Any) -> None:
    assert testops("make")(attrs={"shape": shape}).shape == (2, 1)


def test_tensors(testops: Ops) -> None:
    x = np.array([1.0, 2.0], np.float32)
    assert_array_equal(testops("add_constant")(x), [3.5, 4.5])
    assert_array_equal(testops("add_constant")(x, attrs=(np.float32(10),)), [11, 12])


@pytest.mark.parametrize(
    "attrs, said",
    [
        ({"T": "int33"}, "`T` must be a dtype"),
        ({"T": 3}, "`T` must be a dtype"),
        ({"T": "float64"}, "`T` must be one of"),
        ({"shape": 3}, "`shape` must be list(int), got 3 (int)"),
        ({"shape": "12"}, "`shape` must be list(int), got '12' (str)"),
        ({"shape": [1.5]}, "`shape` must be list(int)"),
        ({"shape": [True]}, "`shape` must be list(int)"),
        ({"shape": [2**63]}, "`shape` must fit in 64 bits"),
        ({"shap": [1]}, "has no attribute `shap`"),
        ("int32", "attributes must be a tuple or a dict"),
        (("int32", [1], 2), "has 2 attributes, got 3"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_told(testops: Ops, attrs: Any, said: str) -> None:
    with pytest.raises(opsmith.InvalidArgumentError) as raised:
        testops("make")(attrs=attrs)
    assert str(raised.value).startswith("Make: ")
    assert said in str(raised.value)


@pytest.mark.parametrize(
    "op, attrs, said",
    [
        ("repeat", (1,), "Repeat: attribute `times` must be at least 2, got 1"),
        ("repeat", (2.0,), "Repeat: attribute `times` must be int, got 2.0 (float)"),
        ("repeat", ("2",), "Repeat: attribute `times` must be int, got '2' (str)"),
        (
            "repeat",
            (np.array([2, 3]),),
            "(ndarray); an attribute has no gradient: what is learnt, or is an array",
        ),
        ("repeat", (True,), "Repeat: attribute `times` must be int, got True (bool)"),
        ("repeat", (10**30,), "Repeat: attribute `times` must fit in 64 bits"),
        ("repeat", None, "Repeat: attribute `times`"),
        ("fruit_price", ("pear",), "FruitPrice: attribute `fruit` must be"),
        ("fruit_price", ("\ud800",), "FruitPrice: attribute `fruit` must be UTF-8 text"),
        ("fruit_price", (5,), "FruitPrice: attribute `fruit` must be string, got 5 (int)"),
        ("zeros_of_types", (["int32"],), "ZerosOfTypes: attribute `types`"),
    ],
)
def test_constraints_hold(op: str, attrs: Any, said: str) -> None:
    from conftest import library_path
    from opsmith import _native

    inputs = (np.array([1, 2], np.int32),) if op == "repeat" else ()
    with pytest.raises(opsmith.InvalidArgumentError) as raised:
        _native.open(library_path("zero_out")).op(op).call(inputs, attrs)
    assert said in str(raised.value)
