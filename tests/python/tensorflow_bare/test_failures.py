"""What goes wrong says so, and the process lives on."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
import tensorflow as tf

X = tf.ones([2, 3])


def resident_kib() -> int:
    with open("/proc/self/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((X[0], X), r"Pairwise: input `x` must have rank 2, \(n,p\), got rank 1 \(shape \[3\]\)"),
        ((X, X[:, :2]), r"Pairwise: dim 1 of input `y` must equal dim 1 of input `x` \(p\): 2 ≠ 3"),
        ((tf.cast(X, tf.int32),) * 2, "Value for attr 'T' of int32 is not in the list"),
        ((X, tf.cast(X, tf.float64)), "expected to be a float"),
    ],
)
def test_arguments_that_do_not_fit(ops: ModuleType, arguments: tuple[tf.Tensor, ...], why: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=why):
        ops.testops_pairwise(*arguments)


def test_missing_and_unknown_arguments(ops: ModuleType) -> None:
    with pytest.raises(TypeError, match="'y'"):
        ops.testops_pairwise(X)
    with pytest.raises(TypeError, match="'z'"):
        ops.testops_pairwise(X, X, z=1)


@pytest.mark.parametrize("place", ["new", "compute", "thread"])
def test_a_panic_is_an_error_with_its_place(
    ops: ModuleType, place: str, capfd: pytest.CaptureFixture[str]
) -> None:
    words = {"new": "instance", "compute": "result", "thread": "thread"}
    for _ in range(3):
        with pytest.raises(
            tf.errors.InternalError,
            match=rf"Panics: panicked at .*failures\.rs:\d+:\d+: no {words[place]} today",
        ):
            ops.testops_panics(X, place=place)
    assert "panicked" not in capfd.readouterr().err.replace("Panics: panicked", "")


@pytest.mark.parametrize(("bytes", "temporary"), [(2**50, True), (2**63 - 1, False)])
def test_an_allocation_that_cannot_be(ops: ModuleType, bytes: int, temporary: bool) -> None:
    # It takes ten seconds: so long TensorFlow waits for somebody to free memory, whoever's op it is.
    with pytest.raises(tf.errors.ResourceExhaustedError, match="Allocates: "):
        ops.testops_allocates(bytes=bytes, temporary=temporary)
    assert ops.testops_allocates(bytes=8).shape == (8,)


def test_shapes_that_tensorflow_would_die_of(ops: ModuleType) -> None:
    with pytest.raises(tf.errors.ResourceExhaustedError, match="Make: "):
        ops.testops_make(shape=[2**62, 2**62, 0])
    with pytest.raises(tf.errors.ResourceExhaustedError, match="Make: "):
        ops.testops_make(shape=[1] * 255)
    assert ops.testops_make(shape=[1] * 254).shape.rank == 254


def test_a_kernel_that_forgets_its_output(ops: ModuleType) -> None:
    with pytest.raises(tf.errors.InternalError, match="Forgets: the kernel did not make output `y`"):
        ops.testops_forgets(X)


def test_a_message_of_any_text_arrives(ops: ModuleType) -> None:
    for message in ["ünïcødé", "two\nlines", "x" * 10_000, "100% {sure}"]:
        with pytest.raises(tf.errors.OutOfRangeError) as caught:
            ops.testops_fails(X, message=message)
        assert f"Fails: {message}" in caught.value.message


def test_a_message_that_begins_with_the_name_of_the_op_keeps_both(ops: ModuleType) -> None:
    with pytest.raises(tf.errors.OutOfRangeError) as caught:
        ops.testops_max(X)
    assert "Max: Maximum of 2 expected, got 3" in caught.value.message
    assert caught.value.message.count("Max: ") == 1
    assert caught.value.experimental_payloads[b"opsmith.op"] == b"Max"


def test_a_failure_in_a_graph_leaves_it_usable(ops: ModuleType) -> None:
    @tf.function
    def guarded(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return ops.testops_pairwise(x, y) + 1.0

    function = guarded.get_concrete_function(tf.TensorSpec([None, None]), tf.TensorSpec([None, None]))
    for _ in range(3):
        with pytest.raises(tf.errors.InvalidArgumentError, match="dim 1 of input `y` must equal"):
            function(X, X[:, :2])
        np.testing.assert_array_equal(function(X, X), tf.ones([2, 2]))


def test_a_failure_in_a_pipeline_skips_one_element(ops: ModuleType) -> None:
    widths = tf.data.Dataset.range(1, 6)
    rows = widths.map(
        lambda width: ops.testops_pairwise(tf.ones([1, 3]), tf.zeros([1, width])), num_parallel_calls=2
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="Pairwise: dim 1 of input `y`"):
        list(rows)
    kept = [float(x[0, 0]) for x in rows.ignore_errors()]
    assert kept == [3.0]


def leaked_kib(failing: list[Callable[[], object]], times: int) -> int:
    def fail(times: int) -> None:
        for i in range(times):
            try:
                failing[i % len(failing)]()
            except tf.errors.OpError:
                continue
            raise AssertionError("it did not fail")

    fail(times // 5)
    before = resident_kib()
    fail(times)
    return resident_kib() - before


def test_a_hundred_thousand_failures_leak_what_those_of_a_builtin_do(ops: ModuleType) -> None:
    """TensorFlow keeps some 0.7 KiB of each eager call that fails, whoever has made the op."""
    narrow = X[:, :2]
    builtin = leaked_kib([lambda: tf.raw_ops.MatMul(a=X, b=narrow)], 100_000)
    failing = [
        lambda: ops.testops_fails(X, message="after its output was made"),
        lambda: ops.testops_pairwise(X, narrow),
        lambda: ops.testops_panics(X, place="compute"),
        lambda: ops.testops_forgets(X),
    ]
    # The status that it keeps has a payload, which the status of a built-in op has not.
    assert leaked_kib(failing, 100_000) < 1.3 * builtin + 4_000


def test_a_hundred_thousand_calls_leak_nothing(ops: ModuleType) -> None:
    # Made once: TensorFlow 2.16 leaks constants and slices.
    texts, row, vector = tf.constant(["a", "b" * 100]), X[0], tf.ones([2], tf.float64)

    def call(times: int) -> None:
        for _ in range(times):
            ops.testops_pass_all([X, X])
            ops.testops_extremes(row, wanted=1)
            ops.testops_quote(texts)
            ops.testops_make(shape=[2, 3])
            ops.testops_add_optional(vector, [vector])

    call(4_000)
    before = resident_kib()
    call(20_000)
    assert resident_kib() - before < 4_000


def test_nodes_give_their_instances_back(ops: ModuleType) -> None:
    """What a graph's nodes keep goes when the graph does."""

    def build(times: int) -> None:
        for _ in range(times):
            with tf.Graph().as_default(), tf.compat.v1.Session() as session:
                session.run(ops.testops_fails(tf.ones([1]), message="x" * 100_000, name="n").op.inputs[0])
                outputs = [ops.testops_instances(a=float(i)) for i in range(20)]
                session.run(outputs)

    build(20)
    before = resident_kib()
    build(60)
    assert resident_kib() - before < 20_000


def test_differentiating_without_the_package_names_the_op(distances: ModuleType) -> None:
    with tf.GradientTape() as tape:
        tape.watch(X)
        z = distances.distances_pairwise_manhattan_distance(X, X)
    with pytest.raises(LookupError, match="Distances>PairwiseManhattanDistance"):
        tape.gradient(z, X)


def test_xla_says_that_it_does_not_have_the_op(distances: ModuleType) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="Distances>PairwiseManhattanDistance"):
        tf.function(distances.distances_pairwise_manhattan_distance, jit_compile=True)(X, X)
    np.testing.assert_array_equal(distances.distances_pairwise_manhattan_distance(X, X), tf.zeros([2, 2]))
