"""Attributes of every kind, with and without defaults."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch


def lines(text: torch.Tensor) -> dict[str, str]:
    return dict(line.split(" = ", 1) for line in bytes(text.tolist()).decode().split("\n"))


GIVEN: dict[str, Any] = {
    "a_string": "é 'quoted' \\",
    "some_string": ["a", "", "c"],
    "a_int": -(2**63),
    "some_int": [2**63 - 1, 0],
    "a_float": float("inf"),
    "some_float": [0.1, -1e300],
    "a_bool": True,
    "some_bool": [False, True],
    "a_type": torch.float16,
    "some_type": [torch.int8, torch.complex64],
    "a_shape": [2, -1],
    "some_shape": [[1], [], [-1, 3]],
}
TENSORS = (torch.tensor([[1, 2]], dtype=torch.int16).t(), [torch.tensor(True)])


def test_every_kind_arrives_as_it_was_given(ops: ModuleType) -> None:
    assert lines(ops.show_attrs(*TENSORS, **GIVEN)) == {
        "a_string": r"'é \'quoted\' \\'",
        "some_string": "['a', '', 'c']",
        "a_int": str(-(2**63)),
        "some_int": f"[{2**63 - 1}, 0]",
        "a_float": "inf",
        "some_float": "[0.1, -1e300]",
        "a_bool": "true",
        "some_bool": "[false, true]",
        "a_type": "DT_HALF",
        "some_type": "[DT_INT8, DT_COMPLEX64]",
        "a_shape": "{ dim { size: 2 } dim { size: -1 } }",
        "some_shape": "[{ dim { size: 1 } }, { }, { dim { size: -1 } dim { size: 3 } }]",
        "a_tensor": "int16 [2, 1] [1, 0, 2, 0]",
        "some_tensor": "[bool [] [1]]",
    }
    assert lines(ops.show_attrs(*TENSORS, **GIVEN | {"a_shape": None}))["a_shape"] == "{ unknown_rank: true }"


DEFAULTS = {
    "s": "'foo'",
    "quoted": r"'it\'s'",
    "fruit": "'orange'",
    "i": "7",
    "least": str(-(2**63)),
    "f": "1e-300",
    "endless": "inf",
    "b": "true",
    "t": "DT_INT32",
    "sh": "{ dim { size: 1 } dim { size: -1 } }",
    "unknown": "{ unknown_rank: true }",
    "te": "int32 [] [5, 0, 0, 0]",
    "ss": "['a', 'b']",
    "is": "[2, 3, 5, 7]",
    "fs": "[0.5, -1e30]",
    "bs": "[true, false]",
    "ts": "[DT_FLOAT, DT_BOOL]",
    "shs": "[{ dim { size: 4 } }]",
    "none": "[]",
}


def test_every_kind_has_its_default(ops: ModuleType) -> None:
    assert lines(ops.show_defaults()) == DEFAULTS


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("s", "bar", "'bar'"),
        ("fruit", "apple", "'apple'"),
        ("least", 5, "5"),
        ("endless", 0.25, "0.25"),
        ("b", False, "false"),
        ("t", torch.bool, "DT_BOOL"),
        ("sh", [], "{ }"),
        ("unknown", [3], "{ dim { size: 3 } }"),
        ("te", torch.tensor([1, 2], dtype=torch.uint8), "uint8 [2] [1, 2]"),
        ("ss", [], "[]"),
        ("is_", [1], "[1]"),
        ("fs", [], "[]"),
        ("ts", [torch.int64], "[DT_INT64]"),
        ("shs", [[1, 2], [3]], "[{ dim { size: 1 } dim { size: 2 } }, { dim { size: 3 } }]"),
        ("none", [4, 5], "[4, 5]"),
    ],
)
def test_a_default_gives_way_to_a_value(ops: ModuleType, name: str, value: object, text: str) -> None:
    assert lines(ops.show_defaults(**{name: value})) == DEFAULTS | {name.rstrip("_"): text}


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("i", 1, "attribute `i` must be at least 2, got 1"),
        ("fruit", "pear", "attribute `fruit` must be one of 'apple', 'orange', got 'pear'"),
        ("sh", [-2], "attribute `sh`: expected dims of -1 \\(unknown\\) or at least 0, got -2"),
        ("t", torch.float8_e5m2, "attribute `t`: is PyTorch's dtype number"),
    ],
)
def test_a_value_that_the_definition_forbids(ops: ModuleType, name: str, value: object, why: str) -> None:
    with pytest.raises(RuntimeError, match=f"testops::show_defaults: {why}"):
        ops.show_defaults(**{name: value})


@pytest.mark.parametrize("arguments", [{"i": "2"}, {"s": 1}, {"is_": 1.5}, {"nobody": 1}])
def test_pytorch_refuses_what_the_schema_lacks(ops: ModuleType, arguments: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match=r"testops::show_defaults"):
        ops.show_defaults(**arguments)


def test_a_tensor_as_an_attribute(ops: ModuleType) -> None:
    x = torch.tensor([1.0, 2.0])
    assert ops.add_constant(x).tolist() == [3.5, 4.5]
    assert ops.add_constant(x, torch.tensor(1.0)).tolist() == [2.0, 3.0]


def test_a_dtype_that_only_an_attribute_gives(ops: ModuleType) -> None:
    assert torch.equal(ops.make(), torch.tensor([3.0, 3.0]))
    assert torch.equal(ops.make(T=torch.int32, shape=[1, 2]), torch.tensor([[3, 3]], dtype=torch.int32))
    assert ops.make(shape=[]).shape == ()
    with pytest.raises(RuntimeError, match="testops::make: attribute `T` must be one of"):
        ops.make(T=torch.bool)


def test_one_instance_for_each_value(ops: ModuleType) -> None:
    first, second = ops.instances(a=0.5).item(), ops.instances(a=1.5).item()
    assert first != second
    assert [ops.instances(a=a).item() for a in (0.5, 1.5, 0.5)] == [first, second, first]
    nan = ops.instances(a=float("nan")).item()
    assert ops.instances(a=float("nan")).item() == nan
