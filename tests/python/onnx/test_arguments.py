"""Attributes of every type, texts, lists and absent inputs, and shapes by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import opsmith
import opsmith.onnx
import pytest
from conftest import load
from models import OPSET, Call, check, definition, info, model, session
from onnx import helper, numpy_helper

MINOR = int(ort.__version__.split(".")[1])


def shown(op: str, attrs: dict[str, Any]) -> str:
    """What the op says its attributes are."""
    library = load("opsmith_testops")
    node = opsmith.onnx.node(library, op, [], ["text"], **attrs)
    (text,) = session(model([node], [], [info("text", "uint8")], "testops"), "opsmith_testops").run(None, {})
    return bytes(text).decode()


ATTRS: dict[str, Any] = {
    "a_string": "käse",
    "some_string": ["", "it's", "ß"],
    "a_int": -(2**63),
    "some_int": [1, 2**62],
    "a_float": 0.1,
    "some_float": [0.1, -2.5],
    "a_bool": True,
    "some_bool": [True, False],
    "a_type": "bfloat16",
    "some_type": ["float32", "string"],
    "a_shape": [2, None, 3],
    "some_shape": [[1], [], [None, 2]],
    "a_tensor": np.arange(6, dtype=np.int16).reshape(2, 3),
    "some_tensor": [np.float32([1.5]), np.array(True)],
}


def in_python(op: str, attrs: dict[str, Any]) -> str:
    """The same on NumPy."""
    return bytes(getattr(load("opsmith_testops"), op)(**attrs)).decode()


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"a_float": 1e-300, "some_float": [1e300, np.pi]},
        {"a_float": float("nan"), "some_float": [float("inf"), float("-inf")]},
        {"some_int": [], "some_float": [], "some_bool": [], "some_string": [], "some_type": []},
        {"a_shape": [], "some_shape": [], "a_string": ""},
        {"a_float": float(np.float32(0.1)), "a_bool": False},
    ],
    ids=["usual", "64 bits", "not finite", "empty lists", "empty", "of 32 bits"],
)
def test_attributes_of_every_type(other: dict[str, Any]) -> None:
    attrs = ATTRS | other
    assert shown("show_attrs", attrs) == in_python("show_attrs", attrs)


def test_defaults() -> None:
    assert shown("show_defaults", {}) == in_python("show_defaults", {})
    for given in (
        {"f": 1e-300},
        {"f": 1e-301},
        {"fs": [0.5, -1e30]},
        {"fs": [0.5, -1.0000000001e30]},
        {"i": 9},
    ):
        assert shown("show_defaults", given) == in_python("show_defaults", given)


@pytest.mark.parametrize("name", list(ATTRS))
def test_an_attribute_that_is_missing_is_named(name: str) -> None:
    attrs = {key: value for key, value in ATTRS.items() if key != name}
    with pytest.raises(Exception, match=rf"ShowAttrs: attribute `{name}`.*missing"):
        shown("show_attrs", attrs)


@pytest.mark.skipif(MINOR < 25, reason="lists of texts can be read from 1.25 on; before, a tensor has them")
def test_lists_of_texts_as_onnx_has_them() -> None:
    attrs = {"ss": ["x", "", "ß"], "ts": ["int8", "float16"]}
    node = helper.make_node("ShowDefaults", [], ["text"], domain="testops", **attrs)
    (text,) = session(model([node], [], [info("text", "uint8")], "testops"), "opsmith_testops").run(None, {})
    assert bytes(text).decode() == in_python("show_defaults", attrs)


TEXTS = ["", "a", "käse", "x" * 100, "with\0nul"]


@pytest.mark.parametrize("texts", [TEXTS, [], [[["a"]], [["b"]]]], ids=["several", "none", "of rank 3"])
def test_texts(texts: list[Any]) -> None:
    library = load("opsmith_testops")
    array = np.array(texts, dtype=object)
    if array.ndim == 1:
        check(library, "opsmith_testops", definition(library, "StringLength"), [array], {})
    check(library, "opsmith_testops", definition(library, "Quote"), [array], {})


def test_string_to_number() -> None:
    library = load("zero_out")
    op = definition(library, "StringToNumber")
    check(library, "zero_out", op, [np.array(["1.5", "-2", "1e300"], dtype=object)], {})


@pytest.mark.parametrize("given", [True, False])
def test_optional_inputs(given: bool) -> None:
    library = load("opsmith_testops")
    x, bias = np.arange(3.0), np.ones(3) if given else None
    check(library, "opsmith_testops", definition(library, "AddOptional"), [x, bias], {})


@pytest.mark.parametrize("absent", [(), (2,), (3,)])
def test_optional_inputs_in_the_middle(absent: tuple[int, ...]) -> None:
    library = load("distances")
    op = definition(library, "PairwiseManhattanDistanceGradGrad")
    shapes = [(4, 3), (5, 3), (4, 3), (5, 3)]
    rng = np.random.default_rng(0)
    inputs = [None if i in absent else rng.normal(size=shape) for i, shape in enumerate(shapes)]
    check(library, "distances", op, inputs, {})


@pytest.mark.parametrize("outputs", [["a", "b", "c"], ["a"], ["a", "b"], ["a", "", "c"]])
def test_outputs_that_nobody_wants(outputs: list[str]) -> None:
    node = helper.make_node("Extremes", ["x"], outputs, domain="testops")
    dtypes = {"a": "float32", "b": "float32", "c": "int64"}
    infos = [info(name, dtypes[name]) for name in outputs if name]
    made = session(model([node], [info("x", "float32", ["n"])], infos, "testops"), "opsmith_testops")
    got = made.run(None, {"x": np.float32([3, 1, 2])})
    answers = {"a": 1, "b": 3, "c": 1}
    assert [float(x.reshape(-1)[0]) for x in got] == [answers[name] for name in outputs if name]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_lists(count: int) -> None:
    library = load("opsmith_testops")
    xs = [np.full(i + 1, i, np.float32) for i in range(count)]
    check(library, "opsmith_testops", definition(library, "DoubleAll"), [xs], {})


@pytest.mark.parametrize("count", [0, 1, 3])
def test_lists_of_several_dtypes_beside_other_outputs(count: int) -> None:
    library = load("opsmith_testops")
    xs = [np.float32([1, 2]), np.array([[3]]), np.array(True)][:count]
    check(library, "opsmith_testops", definition(library, "PassAll"), [xs], {})


def dims(made: ort.InferenceSession) -> list[Any]:
    """The dims of a session's outputs."""
    return [output.shape for output in made.get_outputs()]


def test_names_of_dims_go_through() -> None:
    distances = load("distances")
    node = opsmith.onnx.node(distances, "pairwise_manhattan_distance", ["x", "y"], ["z"])
    infos = [info("x", "float32", ["n", "p"]), info("y", "float32", ["m", "p"])]
    made = model([node], infos, [info("z", "float32")], "distances")
    assert dims(session(made, "distances")) == [["n", "m"]]
    opsmith.onnx.register(distances)
    made = model([node], infos, [info("z", "float32", [None, None])], "distances")
    onnx.checker.check_model(made, full_check=True)
    inferred = onnx.shape_inference.infer_shapes(made, check_type=True, strict_mode=True)
    assert [dim.dim_param for dim in inferred.graph.output[0].type.tensor_type.shape.dim] == ["n", "m"]
    # Nothing follows from what an op in front gives that ONNX does not know, and that is no error.
    nodes = [helper.make_node("Other", ["x"], ["y"], domain="strangers"), node]
    made = model(nodes, infos[:1], [info("z", "float32", [None, None])], "distances")
    made.opset_import.append(helper.make_opsetid("strangers", 1))
    for strict in (False, True):
        onnx.shape_inference.infer_shapes(made, check_type=True, strict_mode=strict)


def test_shapes_that_depend_on_attributes() -> None:
    library = load("opsmith")
    node = opsmith.onnx.node(library, "sum", ["x"], ["y"], axes=[0], keep_dims=True)
    cast = opsmith.onnx.node(library, "cast", ["y"], ["z"], dtype="int32")
    made = model([node, cast], [info("x", "float64", [4, "n"])], [info("z", "int32")], "opsmith")
    one = session(made, "opsmith_ops")
    assert dims(one) == [[1, "n"]]
    (z,) = one.run(None, {"x": np.ones((4, 3))})
    assert z.dtype == np.int32 and z.tolist() == [[4, 4, 4]]


def test_unknown_dims_of_two_libraries_are_not_the_same() -> None:
    """ONNX Runtime uses the memory of one output for another whose dims have equal names."""
    nodes = [
        helper.make_node("Gelu", ["x"], ["a"], domain="activations"),
        helper.make_node("ReduceSum", ["a"], ["total"]),
        helper.make_node("Tanh", ["y"], ["b"], domain="opsmith"),
    ]
    infos = [info("x", "float32", [None, 2]), info("y", "float32", [None, 2])]
    made = model(nodes, infos, [info("total", "float32"), info("b", "float32")], "activations")
    made.opset_import.append(helper.make_opsetid("opsmith", 1))
    one = session(made, "activations", "opsmith_ops")
    y = np.ones((50, 2), np.float32)
    np.testing.assert_allclose(one.run(["b"], {"x": np.ones((2, 2), np.float32), "y": y})[0], np.tanh(y))


def test_sizes_that_the_data_decide() -> None:
    library = load("zero_out")
    node = opsmith.onnx.node(library, "non_zero", ["x"], ["y"])
    again = opsmith.onnx.node(library, "non_zero", ["y"], ["z"])
    made = model([node, again], [info("x", "float32", ["n", 2])], [info("z", "int64")], "zero_out")
    one = session(made, "zero_out")
    for x in (
        np.float32([[0, 1], [2, 0], [3, 4]]),
        np.zeros((4, 2), np.float32),
        np.ones((1, 2), np.float32),
    ):
        (z,) = one.run(None, {"x": x})
        np.testing.assert_array_equal(z, np.argwhere(np.argwhere(x)))


def test_inputs_of_unknown_rank() -> None:
    library = load("activations")
    node = opsmith.onnx.node(library, "gelu", ["x"], ["y"])
    made = session(
        model([node], [info("x", "float32")], [info("y", "float32")], "activations"), "activations"
    )
    for shape in [(), (3,), (2, 0, 3), (2, 3)]:
        x = np.full(shape, 0.5, np.float32)
        (y,) = made.run(None, {"x": x})
        np.testing.assert_array_equal(y, library.gelu(x))


def test_a_node_that_is_the_constant_input_of_another() -> None:
    library = load("distances")
    x = np.random.default_rng(0).normal(size=(4, 3))
    node = opsmith.onnx.node(library, "pairwise_manhattan_distance", ["x", "w"], ["z"])
    relu = helper.make_node("Neg", ["z"], ["y"])
    weights = numpy_helper.from_array(x, "w")
    made = model(
        [node, relu], [info("x", "float64", ["n", 3])], [info("y", "float64")], "distances", [weights]
    )
    (y,) = session(made, "distances").run(None, {"x": x[:2]})
    np.testing.assert_array_equal(y, -library.pairwise_manhattan_distance(x[:2], x))
    assert made.opset_import[0].version == OPSET


def test_a_node_keeps_its_state() -> None:
    library = load("zero_out")
    op = definition(library, "Counter")
    assert op.stateful
    node = opsmith.onnx.node(library, "counter", [], ["y"])
    dtype = Call(library, "zero_out", op, [], {}, [library.counter()]).outputs[0].type.tensor_type.elem_type
    out = helper.make_tensor_value_info("y", dtype, None)
    made = session(model([node], [], [out], "zero_out"), "zero_out")
    first, second = (int(made.run(None, {})[0]) for _ in range(2))
    assert second == first + 1
