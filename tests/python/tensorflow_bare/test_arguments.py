"""Inputs and outputs: sizes, dtypes, lists, optional ones, strings, memory that is passed on."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest
import tensorflow as tf
from conftest import library
from scipy.spatial.distance import cdist

DTYPES = [
    tf.float32,
    tf.float64,
    tf.float16,
    tf.bfloat16,
    tf.int8,
    tf.int16,
    tf.int32,
    tf.int64,
    tf.uint8,
    tf.uint16,
    tf.uint32,
    tf.uint64,
    tf.bool,
    tf.complex64,
    tf.complex128,
    tf.qint8,
    tf.quint8,
    tf.qint16,
    tf.quint16,
    tf.qint32,
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(6, 5, 8), (1, 1, 1), (0, 5, 8), (6, 0, 8), (6, 5, 0), (70, 33, 130)])
def test_distances_equal_cdist(distances: ModuleType, shape: tuple[int, ...], dtype: type) -> None:
    n, m, p = shape
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(n, p)).astype(dtype), rng.normal(size=(m, p)).astype(dtype)
    result = distances.distances_pairwise_manhattan_distance(x, y)
    assert result.dtype == dtype and result.shape == (n, m)
    expected = cdist(x, y, "cityblock") if p else np.zeros((n, m))
    np.testing.assert_allclose(result, expected, rtol=1e-5 if dtype == np.float32 else 1e-13, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_every_dtype_and_rank_passes_through(ops: ModuleType, dtype: tf.DType) -> None:
    for shape in [(), (1,), (0,), (3, 4), (2, 0, 3), (2, 1, 3, 1, 2)]:
        x = np.arange(np.prod(shape, dtype=int)).reshape(shape) % 5
        plain = {tf.qint8: tf.int8, tf.quint8: tf.uint8, tf.qint16: tf.int16, tf.quint16: tf.uint16}
        plain[tf.qint32] = tf.int32
        tensor = tf.cast(x, plain.get(dtype, dtype))
        if dtype in plain:
            tensor = tf.bitcast(tensor, dtype)
        y = ops.testops_echo(tensor)
        assert y.dtype == dtype and y.shape == shape
        if dtype in plain:
            y, tensor = tf.bitcast(y, plain[dtype]), tf.bitcast(tensor, plain[dtype])
        np.testing.assert_array_equal(y.numpy(), tensor.numpy())


def test_nan_and_infinities_are_values(ops: ModuleType) -> None:
    x = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
    np.testing.assert_array_equal(ops.testops_echo(x), x)
    assert np.signbit(ops.testops_echo(x)[3])


def test_a_strided_kernel_sees_dense_tensors(ops: ModuleType) -> None:
    x = tf.transpose(tf.ones([3, 5]))
    assert ops.testops_strides(x).numpy().tolist() == [3, 1]
    assert ops.testops_strides(tf.cast(x, tf.float64)).numpy().tolist() == [3, 1]


def test_memory_that_is_not_aligned_is_copied(ops: ModuleType) -> None:
    # A slice along the first dim shares memory, so most are off the alignment that TensorFlow likes.
    x = tf.reshape(tf.range(21.0), [7, 3])
    rows = tf.function(lambda x: [ops.testops_echo(x[i]) for i in range(7)])(x)
    np.testing.assert_array_equal(tf.stack(rows), x)


def test_a_list_of_one_dtype(ops: ModuleType) -> None:
    xs = [tf.ones([2, 3]), tf.constant(2.0), tf.zeros([0, 4])]
    ys = ops.testops_double_all(xs)
    assert isinstance(ys, list) and len(ys) == 3
    for x, y in zip(xs, ys, strict=True):
        np.testing.assert_array_equal(y, 2 * x)


def test_a_list_that_is_too_short(ops: ModuleType) -> None:
    for xs in [[], [tf.ones([1])]]:
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"'N' of . must be at least minimum 2"):
            ops.testops_double_all(xs)


def test_a_list_of_many_dtypes(ops: ModuleType) -> None:
    xs = [tf.ones([2]), tf.constant([[True, False]]), tf.range(3, dtype=tf.int64)]
    ys, count = ops.testops_pass_all(xs)
    assert count.numpy() == 3 and count.dtype == tf.int64
    for x, y in zip(xs, ys, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)
    ys, count = ops.testops_pass_all([])
    assert ys == [] and count.numpy() == 0
    with pytest.raises(tf.errors.InvalidArgumentError, match="'Ts' of double is not in the list"):
        ops.testops_pass_all([tf.ones([1], tf.float64)])


def test_an_optional_input_is_a_list_of_at_most_one(ops: ModuleType) -> None:
    x = tf.constant([1.0, 2.0], tf.float64)
    np.testing.assert_array_equal(ops.testops_add_optional(x, []), x)
    np.testing.assert_array_equal(ops.testops_add_optional(x, [x]), 2 * x)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"input `bias` may be absent.*got 2"):
        ops.testops_add_optional(x, [x, x])


def test_several_outputs_and_those_nobody_wants(ops: ModuleType) -> None:
    x = tf.constant([3.0, -1.0, 2.0])
    least, greatest, at = ops.testops_extremes(x)
    assert (least.numpy(), greatest.numpy(), at.numpy().tolist()) == (-1.0, 3.0, [1, 0])
    least, greatest, at = ops.testops_extremes(x, wanted=0b101)
    assert least.numpy() == -1.0 and at.numpy().tolist() == [1, 0]
    assert greatest.shape == (0,) and greatest.dtype == tf.float32
    least, greatest, at = ops.testops_extremes(x, wanted=0)
    assert least.numpy() == -1.0 and at.shape == (0,) and at.dtype == tf.int64


@pytest.mark.parametrize("dtype", [tf.float32, tf.int32])
def test_a_shape_that_depends_on_the_data(ops: ModuleType, dtype: tf.DType) -> None:
    x = tf.constant([[0, 1, 2], [3, 0, 0]], dtype)
    for view in [x, tf.transpose(x), x[:0], tf.constant(1, dtype)]:
        np.testing.assert_array_equal(ops.testops_non_zero(view), np.argwhere(view.numpy()))


TEXTS = ["", "a", "ünï", "x" * 22, "x" * 23, "x" * 100_000]


def test_strings_of_every_length(ops: ModuleType) -> None:
    texts = tf.constant([TEXTS, TEXTS[::-1]])
    quoted = ops.testops_quote(texts)
    assert quoted.shape == (2, 6)
    expected = tf.strings.join(["<", texts, ">"])
    np.testing.assert_array_equal(quoted, expected)
    # Once more on strings that are an op's own output.
    np.testing.assert_array_equal(ops.testops_quote(quoted), tf.strings.join(["<", expected, ">"]))
    lengths = ops.testops_string_length(texts[0])
    assert lengths.numpy().tolist() == [len(text.encode()) for text in TEXTS]
    assert ops.testops_quote(tf.constant([], tf.string)).shape == (0,)
    assert ops.testops_quote(tf.constant(b"\xff\x00")).numpy() == b"<\xff\x00>"


def test_text_becomes_numbers(zero_out: ModuleType) -> None:
    read = zero_out.zero_out_string_to_number
    np.testing.assert_array_equal(read(["1", " 2.5 "]), [1.0, 2.5])
    np.testing.assert_array_equal(read(["7"], out_type=tf.int32), [7])
    with pytest.raises(tf.errors.InvalidArgumentError, match="element 1, `x`, is no float32"):
        read(["1", "x"])


def test_names_that_python_reserves(ops: ModuleType) -> None:
    np.testing.assert_array_equal(ops.testops_lambda(in_=tf.ones(2), from_=3), [1, 1])


def test_an_op_that_changes_its_input_is_left_out(zero_out: ModuleType, ops: ModuleType) -> None:
    assert not hasattr(zero_out, "zero_out_zero_out_in_place")
    assert not hasattr(ops, "testops_increment") and not hasattr(ops, "testops_add_into")


def test_an_input_that_is_forwarded_is_nobody_elses(zero_out: ModuleType) -> None:
    kept = zero_out.zero_out_zero_out_real

    @tf.function
    def chain(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        hidden = x + 1.0
        return kept(kept(hidden)), hidden

    x = tf.range(4.0)
    for _ in range(3):
        result, hidden = chain(x)
        np.testing.assert_array_equal(result, [1, 0, 0, 0])
        np.testing.assert_array_equal(hidden, [1, 2, 3, 4])
    np.testing.assert_array_equal(kept(x + 1.0), [1, 0, 0, 0])
    np.testing.assert_array_equal(x, [0, 1, 2, 3])


FORWARDED = """
import os, resource, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf
zero_out = tf.load_op_library(sys.argv[1])

@tf.function
def chain(size):
    hidden = tf.fill([size], 2.0)
    for _ in range(3):
        hidden = zero_out.zero_out_zero_out_real(hidden)
    return hidden[0]

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

chain(tf.constant(10))
before, size = peak(), 50_000_000
chain(tf.constant(size))
print((peak() - before) * 1024 / (4 * size))
"""


def test_an_input_that_nobody_needs_any_more_becomes_the_output() -> None:
    """The kernel asks for its input's memory, which TensorFlow gives for intermediate values of a graph:
    three ops behind one another need no more memory than the first value."""
    command = [sys.executable, "-c", FORWARDED, library("zero_out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1.5


def test_partial_shapes_in_a_graph(distances: ModuleType, zero_out: ModuleType, ops: ModuleType) -> None:
    def shapes(function, *specs) -> list:  # noqa: ANN001, ANN002
        outputs = tf.function(function).get_concrete_function(*specs).structured_outputs
        return [None if x.shape.rank is None else x.shape.as_list() for x in tf.nest.flatten(outputs)]

    def spec(shape: list | None, dtype: tf.DType = tf.float32) -> tf.TensorSpec:
        return tf.TensorSpec(shape, dtype)

    pairwise = distances.distances_pairwise_manhattan_distance
    assert shapes(pairwise, spec([3, 4]), spec([5, 4])) == [[3, 5]]
    assert shapes(pairwise, spec([None, 4]), spec([5, None])) == [[None, 5]]
    assert shapes(pairwise, spec(None), spec([5, 4])) == [[None, 5]]
    assert shapes(pairwise, spec(None), spec(None)) == [[None, None]]
    assert shapes(ops.testops_echo, spec([None, 3, 0])) == [[None, 3, 0]]
    assert shapes(zero_out.zero_out_non_zero, spec([2, 3])) == [[None, 2]]
    assert shapes(zero_out.zero_out_non_zero, spec(None)) == [[None, None]]
    assert shapes(zero_out.zero_out_max_with_index, spec([None])) == [[], []]
    assert shapes(lambda x, y: zero_out.zero_out_sum_all([x, y]), spec([None, 3]), spec([2, None])) == [
        [2, 3]
    ]
    mixed = [spec([None]), spec(None, tf.int32), spec([], tf.int64)]
    assert shapes(lambda *xs: zero_out.zero_out_zero_out_each(list(xs)), *mixed) == [[None], None, []]
    assert shapes(lambda: zero_out.zero_out_zeros_of_types([tf.int32, tf.float32, tf.int32])) == [[], [], []]
    # What an attribute decides cannot be told here.
    assert shapes(lambda x: zero_out.zero_out_repeat(x, times=2), spec([4], tf.int32)) == [[None]]


def test_shapes_that_do_not_fit_are_found_when_the_graph_is_built(distances: ModuleType) -> None:
    function = tf.function(distances.distances_pairwise_manhattan_distance)
    with pytest.raises(ValueError, match=r"dim 1 of input `y` must equal dim 1 of input `x` \(p\): 5 ≠ 4"):
        function.get_concrete_function(tf.TensorSpec([None, 4]), tf.TensorSpec([3, 5]))
    with pytest.raises(ValueError, match=r"input `x` must have rank 2"):
        function.get_concrete_function(tf.TensorSpec([4]), tf.TensorSpec([3, 5]))
