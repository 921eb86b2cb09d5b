"""Attributes of every kind, with and without defaults."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tensorflow as tf


def lines(text: tf.Tensor) -> dict[str, str]:
    return dict(line.split(" = ", 1) for line in bytes(text.numpy().tolist()).decode().split("\n"))


GIVEN: dict[str, Any] = {
    "a_string": "é 'quoted' \\",
    "some_string": ["a", "", "c"],
    "a_int": -(2**63),
    "some_int": [2**63 - 1, 0],
    "a_float": float("inf"),
    "some_float": [0.1, -1e30],
    "a_bool": True,
    "some_bool": [False, True],
    "a_type": tf.float16,
    "some_type": [tf.int8, tf.complex64],
    "a_shape": [2, None],
    "some_shape": [[1], [], [None, 3], None],
    "a_tensor": tf.make_tensor_proto(np.array([[1], [2]], np.int16)),
    "some_tensor": [tf.make_tensor_proto(True), tf.make_tensor_proto([2.0] * 3)],
}


def test_every_kind_arrives_as_it_was_given(ops: ModuleType) -> None:
    # No eager op has tensors as attributes, whoever has made it; nodes of graphs have.
    with pytest.raises(tf.errors.UnimplementedError, match="unhandled type"):
        ops.testops_show_attrs(**GIVEN)
    assert lines(tf.function(lambda: ops.testops_show_attrs(**GIVEN))()) == {
        "a_string": r"'é \'quoted\' \\'",
        "some_string": "['a', '', 'c']",
        "a_int": str(-(2**63)),
        "some_int": f"[{2**63 - 1}, 0]",
        "a_float": "inf",
        "some_float": "[0.1, -1e30]",
        "a_bool": "true",
        "some_bool": "[false, true]",
        "a_type": "DT_HALF",
        "some_type": "[DT_INT8, DT_COMPLEX64]",
        "a_shape": "{ dim { size: 2 } dim { size: -1 } }",
        "some_shape": "[{ dim { size: 1 } }, { }, { dim { size: -1 } dim { size: 3 } }, "
        "{ unknown_rank: true }]",
        "a_tensor": "int16 [2, 1] [1, 0, 2, 0]",
        "some_tensor": f"[bool [] [1], float32 [3] {[0, 0, 0, 64] * 3}]",
    }


TENSORS = [
    np.array([1.5, -2.5], np.float64),
    np.array([1, 2], np.float16),
    np.array([], np.float32),
    np.array([1 - 2j], np.complex64),
    np.array([1 - 2j], np.complex128),
    np.array([[-1, 2]], np.int64),
    np.array([3], np.uint8),
    np.array([2**32 - 1], np.uint32),
    np.array([2**64 - 1], np.uint64),
    np.full(100, 7, np.int32),
    np.array([True, False]),
]


@pytest.mark.parametrize("array", TENSORS, ids=lambda array: str(array.dtype))
@pytest.mark.parametrize("packed", [True, False])
def test_tensors_of_every_dtype(ops: ModuleType, array: np.ndarray, packed: bool) -> None:
    proto = tf.make_tensor_proto(array)
    if not packed and array.size:
        # One element after the other, in the field of its own type: as written by hand.
        proto = tf.make_tensor_proto(array.ravel().tolist(), tf.as_dtype(array.dtype), array.shape)
    assert show(ops, te=proto)["te"] == f"{array.dtype} {list(array.shape)} {list(array.tobytes())}"


DEFAULTS = {
    "s": "'foo'",
    "quoted": r"'it\'s'",
    "fruit": "'orange'",
    "i": "7",
    "least": str(-(2**63)),
    "f": "1e-300",
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


def show(ops: ModuleType, **given: Any) -> dict[str, str]:
    # TensorFlow's wrappers have no infinite defaults, and stumble over their own of unknown dims.
    given = {"endless": float("-inf"), "sh": [1, None], **given}
    return lines(tf.function(lambda: ops.testops_show_defaults(**given))())


def test_every_kind_has_its_default(ops: ModuleType) -> None:
    assert show(ops) == DEFAULTS | {"endless": "-inf"}


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("s", "bar", "'bar'"),
        ("fruit", "apple", "'apple'"),
        ("least", 5, "5"),
        ("f", 0.1, "0.1"),
        ("f", float("nan"), "nan"),
        ("b", False, "false"),
        ("t", tf.bool, "DT_BOOL"),
        ("sh", [], "{ }"),
        ("unknown", [3], "{ dim { size: 3 } }"),
        ("te", tf.make_tensor_proto([1, 2], tf.uint8), "uint8 [2] [1, 2]"),
        ("ss", [], "[]"),
        ("is_", [1], "[1]"),
        ("fs", [], "[]"),
        ("ts", [tf.int64], "[DT_INT64]"),
        ("shs", [[1, 2], [3]], "[{ dim { size: 1 } dim { size: 2 } }, { dim { size: 3 } }]"),
        ("none", [4, 5], "[4, 5]"),
    ],
)
def test_a_default_gives_way_to_a_value(ops: ModuleType, name: str, value: object, text: str) -> None:
    assert show(ops, **{name: value}) == DEFAULTS | {"endless": "-inf", name.rstrip("_"): text}


def test_eager_ops_have_all_but_tensors(zero_out: ModuleType) -> None:
    seen = zero_out.zero_out_attr_defaults
    assert seen().numpy().tolist() == [3, 0, 1, 1, 4, 0, 17, 0.75, 1, 3, 8]
    given = {"s": "ü", "i": 2**62, "f": 0.1, "ty": tf.int8, "l_string": ["käse"], "l_type": [], "l_int": []}
    assert seen(**given).numpy().tolist() == [2, 2**62, 0.1, 1, 1, 0, 0, 0.75, 1, 5, 0]


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("i", 1, "'i' of 'Testops>ShowDefaults' Op passed 1 less than minimum 2"),
        ("fruit", "pear", "'fruit' of 'Testops>ShowDefaults' Op passed string 'pear' not in"),
    ],
)
def test_a_value_that_the_definition_forbids(ops: ModuleType, name: str, value: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        show(ops, **{name: value})


def test_what_tensorflow_does_not_check_the_kernel_does(zero_out: ModuleType) -> None:
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="ZeroOutPreserve: attribute `preserve_index` must not be"
    ):
        zero_out.zero_out_zero_out_preserve([1, 2], preserve_index=-1)
    for value in ("x", [1]):
        with pytest.raises((TypeError, ValueError, tf.errors.InvalidArgumentError), match="preserve_index"):
            zero_out.zero_out_zero_out_preserve([1, 2], preserve_index=value)


def test_a_dtype_that_only_an_attribute_gives(ops: ModuleType) -> None:
    np.testing.assert_array_equal(ops.testops_make(), [3.0, 3.0])
    made = ops.testops_make(T=tf.int32, shape=[1, 2])
    assert made.dtype == tf.int32 and made.shape == (1, 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="'T' of bool is not in the list"):
        ops.testops_make(T=tf.bool)


def test_one_instance_for_each_node(ops: ModuleType) -> None:
    """An eager op with equal attributes is the same node again; two of a graph are two."""

    @tf.function
    def graph() -> tuple[tf.Tensor, tf.Tensor]:
        return ops.testops_instances(a=0.25), ops.testops_instances(a=0.5)

    first, second = ops.testops_instances(a=0.5).numpy(), ops.testops_instances(a=1.5).numpy()
    assert first != second
    assert [ops.testops_instances(a=a).numpy() for a in (0.5, 1.5, 0.5)] == [first, second, first]
    numbers = [tuple(int(x[0]) for x in graph()) for _ in range(3)]
    assert len(set(numbers)) == 1 and len({*numbers[0], int(first[0]), int(second[0])}) == 4
