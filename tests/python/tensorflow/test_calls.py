"""What the generated functions take, and what they say about what they do not take."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import numpy as np
import opsmith
import pytest
import tensorflow as tf
from conftest import library_path

X, Y = tf.random.stateless_uniform([3, 4], [0, 0]), tf.random.stateless_uniform([5, 4], [0, 1])


def expected(x: Any, y: Any) -> np.ndarray:
    return np.abs(np.asarray(x)[:, None] - np.asarray(y)).sum(-1)


def test_the_answer_is_of_the_kind_of_the_arguments(distances: opsmith.Library) -> None:
    f = distances.pairwise_manhattan_distance
    assert isinstance(f(X, Y), tf.Tensor) and type(f(X.numpy(), Y.numpy())) is np.ndarray
    np.testing.assert_allclose(f(X, Y), expected(X, Y), rtol=1e-6)


def test_lists_and_scalars_beside_a_tensor(distances: opsmith.Library, testops: opsmith.Library) -> None:
    x = tf.constant([[1.0, 2.0]], tf.float64)
    f = distances.pairwise_manhattan_distance
    for z in (f(x, [[1, 1], [3, 3]]), tf.function(lambda x: f(x, [[1, 1], [3, 3]]))(x)):
        assert z.dtype == tf.float64 and z.numpy().tolist() == [[1, 3]]
    for z in (f([[1, 1], [3, 3]], x), f([[1, 1], [3, 3]], y=x)):
        assert z.dtype == tf.float64 and z.numpy().tolist() == [[1], [3]]
    assert testops.add_optional(tf.zeros(2, tf.float64), [1, 2]).numpy().tolist() == [1, 2]
    assert testops.add_optional(tf.ones(2, tf.float64)).numpy().tolist() == [1, 1]
    assert testops.add_optional(tf.ones(2, tf.float64), bias=None).numpy().tolist() == [1, 1]


@pytest.mark.parametrize("where", [lambda call: call, tf.function], ids=["eager", "in a graph"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, ">f4"])
def test_arrays_beside_a_tensor(distances: opsmith.Library, dtype: Any, where: Any) -> None:
    """They take the tensor's dtype, as beside the tensors that TensorFlow's own functions take."""
    x, y = np.arange(12).reshape(3, 4).astype(dtype), np.ones([5, 4], dtype)
    own_x, own_y = tf.constant(x.astype(np.float32)), tf.constant(y.astype(np.float32))
    f = distances.pairwise_manhattan_distance
    calls = [lambda: f(own_x, y), lambda: f(x, own_y), lambda: f(own_x, y=y), lambda: f(y=own_y, x=x)]
    for call in calls:
        z = where(call)()
        assert isinstance(z, tf.Tensor) and z.dtype == tf.float32
        np.testing.assert_array_equal(z, expected(x, y))
    with tf.GradientTape() as tape:
        tape.watch(own_x)
        z = f(own_x, y)
    assert tape.gradient(z, own_x).shape == (3, 4)


def test_arrays_in_lists_and_optional_inputs(testops: opsmith.Library, zero_out: opsmith.Library) -> None:
    one = tf.ones(2, tf.float64)
    for terms in ([np.ones(2, np.float32), one], [one, np.ones(2)], [[1, 1], np.ones(2), one]):
        total = zero_out.sum_all(terms)
        assert total.dtype == tf.float64 and total.numpy().tolist() == [len(terms)] * 2
    ys, count = testops.pass_all([np.ones(2, np.float32), tf.constant([1], tf.int64), np.array(True)])
    assert count.numpy() == 3 and [y.dtype for y in ys] == [tf.float32, tf.int64, tf.bool]
    assert testops.add_optional(one, np.ones(2)).numpy().tolist() == [2, 2]
    assert testops.add_optional(np.ones(2), one).numpy().tolist() == [2, 2]


def test_numbers_take_the_dtype_beside_them_and_lose_nothing(ops: opsmith.Library) -> None:
    x = tf.constant([1, 2])
    for number in (np.int64(1), 1, [1, 1], np.array([1, 1])):
        for total in (ops.add(x, number), ops.add(number, x)):
            assert total.dtype == tf.int32 and total.numpy().tolist() == [2, 3]
    for number in (np.float64(2.5), 2.5, [2.5, 1], np.array([2.0, 1.0])):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"Add: input `y` holds float .* int32"):
            ops.add(x, number)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"Add: input `y` holds 1099511627776, .* int32"):
        ops.add(x, np.array([1, 1 << 40]))


@pytest.mark.parametrize("kind", [tf.Variable, keras.Variable, tf.identity])
def test_variables_are_tensors(distances: opsmith.Library, kind: Callable[[tf.Tensor], Any]) -> None:
    f = distances.pairwise_manhattan_distance
    for x, y in ((kind(X), Y), (X, kind(Y)), (kind(X), kind(Y))):
        for function in (f, tf.function(f)):
            result = function(x, y) if kind is not keras.Variable else f(x, y)
            assert isinstance(result, tf.Tensor)
            np.testing.assert_allclose(result, expected(X, Y), rtol=1e-6)
    assert tf.function(lambda: f(kind_of_y(kind), Y))().shape == (5, 5)


def kind_of_y(kind: Callable[[tf.Tensor], Any]) -> Any:
    """Variables cannot be made in graphs."""
    return Y if kind is not tf.identity else kind(Y)


def test_names_reach_the_graph(distances: opsmith.Library, zero_out: opsmith.Library) -> None:
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None, 4])
        assert distances.pairwise_manhattan_distance(x, x, name="near").op.name == "near"
        assert zero_out.sum_all([x, x], name="total").op.name == "total"
        for first in (np.ones([3, 4], np.float32), [[1.0] * 4]):
            assert distances.pairwise_manhattan_distance(first, x, name="array").op.name.startswith("array")
        assert (
            distances.pairwise_manhattan_distance(x, x).op.name == "DistancesPairwiseManhattanDistance"
            or True
        )


def test_saved_outputs_and_reserved_names(testops: opsmith.Library, zero_out: opsmith.Library) -> None:
    x = tf.constant([1.0, 3.0])
    assert testops.lambda_(x, from_=3).numpy().tolist() == [1, 3]
    value, position = zero_out.max_with_index(x, name="largest")
    assert value.numpy() == 3 and position.numpy() == 1


def test_lists_of_tensors(testops: opsmith.Library) -> None:
    xs = [tf.ones(2), tf.ones(3)]
    for given in (xs, tuple(xs), [tf.Variable(xs[0]), xs[1]], [xs[0], [1, 1, 1]]):
        doubled = testops.double_all(given)
        assert isinstance(doubled, list) and [y.numpy().tolist() for y in doubled] == [[2, 2], [2, 2, 2]]
    ys, count = testops.pass_all([tf.ones(2), tf.constant([1], tf.int64), tf.constant(True)])
    assert count.numpy() == 3 and [y.dtype for y in ys] == [tf.float32, tf.int64, tf.bool]


def test_strings(zero_out: opsmith.Library, testops: opsmith.Library) -> None:
    numbers = zero_out.string_to_number(tf.constant(["1", "2.5"]))
    assert numbers.dtype == tf.float32 and numbers.numpy().tolist() == [1, 2.5]
    assert zero_out.string_to_number(tf.constant(["7"]), out_type="int32").numpy().tolist() == [7]
    assert testops.quote(tf.constant("ü" * 40)).numpy() == b"<" + "ü".encode() * 40 + b">"


EIGHT_BITS = tf.dtypes.experimental.float8_e5m2

MISTAKES: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "rank": (
        lambda f: f(X[0], Y),
        tf.errors.InvalidArgumentError,
        r"input `x` must have rank 2, \(n,p\), got rank 1",
    ),
    "dims": (
        lambda f: f(X, Y[:, :2]),
        tf.errors.InvalidArgumentError,
        r"dim 1 of input `y` must equal .*2 ≠ 4",
    ),
    "dtypes differ": (
        lambda f: f(X, tf.cast(Y, tf.float64)),
        tf.errors.InvalidArgumentError,
        "inputs `x` and `y` must have one dtype, got float32 and float64; cast one of them",
    ),
    "dtype": (
        lambda f: f(tf.cast(X, tf.int32), tf.cast(Y, tf.int32)),
        tf.errors.InvalidArgumentError,
        "input `x` is int32, but must be one of float32, float64",
    ),
    "a dtype that only TensorFlow has": (
        lambda f: f(tf.cast(X, EIGHT_BITS), tf.cast(Y, EIGHT_BITS)),
        tf.errors.InvalidArgumentError,
        "float8_e5m2",
    ),
    "frameworks": (
        lambda f: f(X, opsmith.Graph().constant([[1.0]])),
        tf.errors.InvalidArgumentError,
        "PairwiseManhattanDistance: .* `x` is of TensorFlow, `y` is of an Opsmith graph",
    ),
    "frameworks, turned": (
        lambda f: f(opsmith.Graph().constant([[1.0]]), Y),
        tf.errors.InvalidArgumentError,
        r"`x` is of an Opsmith graph, `y` is of TensorFlow\n  → .* numpy.asarray\(y\)",
    ),
    "an array of objects": (
        lambda f: f(X, np.array([[None]])),
        tf.errors.InvalidArgumentError,
        "PairwiseManhattanDistance: input `y` is not a tensor",
    ),
    "a masked array": (
        lambda f: f(X, np.ma.array(Y.numpy(), mask=Y.numpy() > 0.5)),
        tf.errors.InvalidArgumentError,
        "PairwiseManhattanDistance: input `y` is a masked array, whose mask would be lost",
    ),
    "a masked array first": (
        lambda f: f(np.ma.array(Y.numpy(), mask=Y.numpy() > 0.5), X),
        opsmith.InvalidArgumentError,
        "PairwiseManhattanDistance: input `x` is a masked array, whose mask would be lost",
    ),
    "one array too many": (
        lambda f: f(X, Y, Y),
        TypeError,
        r"pairwise_manhattan_distance\(\) takes 2 positional arguments but 3 were given",
    ),
    "missing": (lambda f: f(X), TypeError, r"pairwise_manhattan_distance\(\) missing 1 required .*'y'"),
    "unknown": (lambda f: f(X, Y, b=1), TypeError, "unexpected keyword argument 'b'"),
    "none": (lambda f: f(X, None), tf.errors.InvalidArgumentError, "input `y` is missing"),
    "a name": (
        lambda f: f(X, Y, name=3),
        opsmith.InvalidArgumentError,
        r"PairwiseManhattanDistance: `name` must be text \(str\), got 3 \(int\)",
    ),
    "text": (lambda f: f(X, "y"), tf.errors.InvalidArgumentError, "input `y` is not a tensor"),
    "sparse": (
        lambda f: f(X, tf.sparse.from_dense(Y)),
        tf.errors.InvalidArgumentError,
        "input `y` must be a dense tensor, got a SparseTensor",
    ),
    "sparse first": (
        lambda f: f(tf.sparse.from_dense(X), Y),
        tf.errors.InvalidArgumentError,
        "input `x` must be a dense tensor, got a SparseTensor",
    ),
    "ragged": (
        lambda f: f(tf.ragged.constant([[1.0], [2.0, 3.0]]), Y),
        tf.errors.InvalidArgumentError,
        "input `x` must be a dense tensor, got a RaggedTensor",
    ),
    "a list of tensors": (lambda f: f([X], Y), tf.errors.InvalidArgumentError, "input `x` must have rank 2"),
}


@pytest.mark.parametrize(("call", "kind", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes(distances: opsmith.Library, call: Any, kind: type[Exception], message: str) -> None:
    f = distances.pairwise_manhattan_distance
    with pytest.raises(kind, match=message):
        call(f)

    def in_a_graph() -> None:
        call(f)

    message = message.replace(r"got rank 1", "").replace(r"\n", r"\s+")
    for autograph in (False, True):
        # What TensorFlow finds wrong while it builds a graph is a ValueError.
        with pytest.raises((kind, ValueError), match=message):
            tf.function(in_a_graph, autograph=autograph)()
    np.testing.assert_allclose(f(X, Y), expected(X, Y), rtol=1e-6)


def test_none_is_the_default_of_an_attribute(zero_out: opsmith.Library) -> None:
    x = tf.constant([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(zero_out.zero_out_real(x, preserve_index=None), [1, 0, 0])
    np.testing.assert_array_equal(tf.function(lambda x: zero_out.zero_out_real(x, None))(x), [1, 0, 0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="`preserve_index` must be int, got None"):
        zero_out.zero_out_preserve(tf.cast(x, tf.int32), None)


def test_wrong_attributes(zero_out: opsmith.Library) -> None:
    x = tf.ones(4)
    for value, said in (("k", "'k' (str)"), (True, "True (bool)"), (1.5, "1.5 (float)"), (2**63, str(2**63))):
        with pytest.raises(tf.errors.InvalidArgumentError) as raised:
            zero_out.zero_out_real(x, preserve_index=value)
        assert f"ZeroOutReal: attribute `preserve_index` must be int, got {said}" in str(raised.value)
    with pytest.raises(tf.errors.InvalidArgumentError, match="preserve_index"):
        zero_out.zero_out_real(x, preserve_index=-1)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'preserve_index'"):
        zero_out.zero_out_preserve(tf.cast(x, tf.int32))
    for call in (zero_out.sum_all, tf.function(lambda x: zero_out.sum_all(x))):
        with pytest.raises(opsmith.InvalidArgumentError, match="SumAll: input `terms` must be a list"):
            call(x)


def test_the_standard_operators_of_the_package_are_not_for_tensors() -> None:
    for call in (opsmith.ops.exp, tf.function(lambda x: opsmith.ops.exp(x))):
        with pytest.raises(tf.errors.UnimplementedError, match=r"Exp: .*load libopsmith_ops\.so"):
            call(X)


def test_numpys_numbers_are_attributes(zero_out: opsmith.Library) -> None:
    assert zero_out.zero_out_real(tf.ones(4), preserve_index=np.int32(2)).numpy().tolist() == [0, 0, 1, 0]


def test_an_op_that_tensorflow_cannot_have_says_why(
    zero_out: opsmith.Library, testops: opsmith.Library
) -> None:
    with pytest.raises(
        tf.errors.UnimplementedError,
        match="ZeroOutInPlace: is not available in TensorFlow: it changes `to_zero`",
    ):
        zero_out.zero_out_in_place(X)
    with pytest.raises(tf.errors.UnimplementedError, match=r"AddInto: .* it changes `sum` in place"):
        testops.add_into(tf.Variable(X[0]), X[0])
    array = np.ones((2, 2), np.float32)
    zero_out.zero_out_in_place(array)
    assert array.tolist() == [[1, 0], [0, 0]]


def test_a_gpu_that_is_asked_for_is_out_of_reach(distances: opsmith.Library) -> None:
    x = tf.ones((2, 3))

    def call() -> tf.Tensor:
        with tf.device("/GPU:0"):
            return distances.pairwise_manhattan_distance(x, x)

    assert "CPU" in call().device
    tf.config.set_soft_device_placement(False)
    try:
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match=r"PairwiseManhattanDistance: TensorFlow's GPU device cannot be reached through its C API",
        ):
            call()
    finally:
        tf.config.set_soft_device_placement(True)


def test_tensors_are_attributes_eagerly_too(testops: opsmith.Library) -> None:
    x = tf.constant([1.0, 2.0])
    assert testops.add_constant(x).numpy().tolist() == [3.5, 4.5]
    in_graph = lambda value: tf.function(lambda x: testops.add_constant(x, value))  # noqa: E731
    for value in (5.0, tf.constant(5.0), np.float32(5), tf.make_tensor_proto(5.0)):
        for result in (testops.add_constant(x, value), in_graph(value)(x)):
            assert result.numpy().tolist() == [6, 7]
    with pytest.raises(tf.errors.InvalidArgumentError, match="AddConstant: attribute `value` must be tensor"):
        tf.function(testops.add_constant)(x, tf.constant(5.0))
    for value in range(100):
        assert testops.add_constant(x, float(value)).numpy().tolist() == [1 + value, 2 + value]
    with pytest.raises(tf.errors.InvalidArgumentError, match="AddConstant: input `x` is float64"):
        testops.add_constant(tf.cast(x, tf.float64))


def test_the_wrappers_of_tensorflow_have_docs_and_are_those_of_load_op_library(
    distances: opsmith.Library,
) -> None:
    module = tf.load_op_library(str(library_path("distances").resolve()))
    wrapper = module.distances_pairwise_manhattan_distance
    assert inspect.getdoc(wrapper) == inspect.getdoc(distances.pairwise_manhattan_distance)
    np.testing.assert_allclose(wrapper(X, Y), expected(X, Y), rtol=1e-6)


def test_threads_agree(distances: opsmith.Library) -> None:
    def work(_: int) -> np.ndarray:
        with tf.GradientTape() as tape:
            tape.watch(X)
            y = tf.reduce_sum(distances.pairwise_manhattan_distance(X, Y) ** 2)
        return tape.gradient(y, X).numpy()

    first = work(0)
    with ThreadPoolExecutor(16) as pool:
        assert all(np.array_equal(result, first) for result in pool.map(work, range(200)))
