"""Attributes: XLA's own, and text in the language of definitions for the rest."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from conftest import Ops, like
from jax.errors import JaxRuntimeError


def shown(ops: Ops, **attrs: Any) -> dict[str, str]:
    """What the op says of its attributes. How long that is, the first call tells."""
    try:
        text = ops.show_defaults(like(0, dtype="uint8"), **attrs)
    except JaxRuntimeError as error:
        length = re.search(r"uint8 of shape \[(\d+)\], the caller", str(error))
        if length is None:
            raise
        text = ops.show_defaults(like(int(length[1]), dtype="uint8"), **attrs)
    lines = bytes(np.asarray(text)).decode().splitlines()
    return dict(line.split(" = ", 1) for line in lines)


def test_defaults(ops: Ops) -> None:
    found = shown(ops)
    assert (
        found["s"] == "'foo'" and found["i"] == "7" and found["endless"] == "inf" and found["t"] == "DT_INT32"
    )
    assert found["sh"] == "{ dim { size: 1 } dim { size: -1 } }" and found["shs"] == "[{ dim { size: 4 } }]"


GIVEN = {
    "s": ("ünïcødé 'quoted'\n", r"'ünïcødé \'quoted\'\n'"),
    "fruit": ("apple", "'apple'"),
    "i": (9, "9"),
    "least": (np.int64(2**63 - 1), str(2**63 - 1)),
    "f": (-1.5, "-1.5"),
    "endless": (float("-inf"), "-inf"),
    "b": (False, "false"),
    "t": ("bfloat16", "DT_BFLOAT16"),
    "sh": (np.array([2, -1]), "{ dim { size: 2 } dim { size: -1 } }"),
    "unknown": ("{ dim { size: 3 } }", "{ dim { size: 3 } }"),
    "te": ("{ dtype: DT_INT8 tensor_shape { dim { size: 2 } } int_val: [1, -1] }", "int8 [2] [1, 255]"),
    "ss": (r"['x', 'it\'s']", r"['x', 'it\'s']"),
    "is": (np.array([1, -2]), "[1, -2]"),
    "fs": (np.array([np.inf, 0.5]), "[inf, 0.5]"),
    "bs": (np.array([0, 1], np.uint8), "[false, true]"),
    "ts": ("[half, DT_INT64]", "[DT_HALF, DT_INT64]"),
    "shs": ("[{ unknown_rank: true }, { }]", "[{ unknown_rank: true }, { }]"),
    "none": (np.array([], np.int64), "[]"),
}


@pytest.mark.parametrize("name", GIVEN)
def test_given(ops: Ops, name: str) -> None:
    value, text = GIVEN[name]
    assert shown(ops, **{name: value})[name] == text


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("f", 3, "3.0"),
        ("f", np.float32(0.5), "0.5"),
        ("i", np.int32(5), "5"),
        ("sh", "{ unknown_rank: true }", "{ unknown_rank: true }"),
        ("sh", np.array([], np.int64), "{ }"),
        ("is", "[4]", "[4]"),
        ("is", np.array([4], np.int32), "[4]"),
        ("fs", np.array([4, 5]), "[4.0, 5.0]"),
        ("fs", np.array([0.5], np.float32), "[0.5]"),
        ("bs", "[true]", "[true]"),
    ],
)
def test_other_ways_to_give_it(ops: Ops, name: str, value: Any, text: str) -> None:
    assert shown(ops, **{name: value})[name] == text


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"nobody": 1}, "ShowDefaults: has no attribute `nobody`; it has: s, quoted"),
        ({"i": 1}, "ShowDefaults: attribute `i` must be at least 2, got 1"),
        ({"i": 2.5}, "ShowDefaults: attribute `i` is an int, got a float"),
        ({"least": True}, "ShowDefaults: attribute `least` is an int, got a bool"),
        ({"i": "many"}, "ShowDefaults: attribute `i`: cannot be read as int"),
        ({"b": 1}, "ShowDefaults: attribute `b` is a bool, got an int"),
        ({"s": 1}, "ShowDefaults: attribute `s` is a string, got an int"),
        ({"fruit": "pear"}, "ShowDefaults: attribute `fruit` must be one of 'apple', 'orange', got 'pear'"),
        ({"t": "flaot"}, r"ShowDefaults: attribute `t`: .*`flaot` is not a dtype; did you mean"),
        ({"sh": "{ dim"}, r"ShowDefaults: attribute `sh`: cannot be read as shape: .*\n.*\n +\^"),
        ({"sh": 3}, "ShowDefaults: attribute `sh` is a shape, got an int"),
        ({"is": np.array([0.5])}, r"ShowDefaults: attribute `is` is a list\(int\), got a list\(float\)"),
        ({"s": b"\xff"}, "ShowDefaults: attribute `s`: a text is not UTF-8"),
        ({"ss": {"0": "a"}}, "ShowDefaults: attribute `ss`: cannot be a dictionary"),
        ({"is": np.array([1], np.int8)}, "ShowDefaults: attribute `is`: cannot be of dtype int8"),
    ],
    ids=str,
)
def test_wrong_ones(ops: Ops, attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(JaxRuntimeError, match=f"INVALID_ARGUMENT: {message}"):
        ops.show_defaults(like(0, dtype="uint8"), **attrs)


def test_a_missing_one(ops: Ops) -> None:
    with pytest.raises(JaxRuntimeError, match="ShowAttrs: attribute `a_string`, a string, is missing"):
        ops.show_attrs(like(0, dtype="uint8"))


def test_a_tensor_as_an_attribute(ops: Ops) -> None:
    x = np.array([1, 2], np.float32)
    assert ops.add_constant(like(2), x).tolist() == [3.5, 4.5]
    assert ops.add_constant(like(2), x, value="{ dtype: DT_FLOAT float_val: 1 }").tolist() == [2, 3]


def test_a_dtype_that_only_an_attribute_gives(ops: Ops) -> None:
    assert ops.make(like(2)).tolist() == [3, 3]
    assert ops.make(like(1, 2, dtype="int32"), T="int32", shape=np.array([1, 2])).tolist() == [[3, 3]]
    with pytest.raises(JaxRuntimeError, match="Make: attribute `T` must be one of"):
        ops.make(like(2, dtype="bool"), T="bool")


def test_one_instance_for_each_value(ops: Ops) -> None:
    number = lambda a: ops.instances(like(1, dtype="int64"), a=a).item()  # noqa: E731
    first, second = number(0.5), number(1.5)
    assert first != second and [number(a) for a in (0.5, 1.5, 0.5)] == [first, second, first]
    assert number(float("nan")) == number(float("nan"))
