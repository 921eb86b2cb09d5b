"""Forward mode: `ForwardAccumulator` over ops, eagerly and in functions, and over gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import kernel_formulas
import numpy as np
import opsmith
import pytest
import tensorflow as tf
from conftest import load
from op_samples import Sample, samples
from opsmith._definition import Op
from opsmith._library import definition_of

SAMPLES = samples()
TENSORFLOW = SimpleNamespace(
    exp=tf.exp,
    log=tf.math.log,
    sqrt=tf.sqrt,
    sum=tf.reduce_sum,
    amax=tf.reduce_max,
    amin=tf.reduce_min,
    sort=tf.sort,
    numbers=tf.convert_to_tensor,
    plain=lambda x: x.numpy(),
)
FORMULAS = kernel_formulas.formulas(TENSORFLOW)

Function = Callable[..., Any]


def gradient_of(sample: Sample, op: Op) -> Op | None:
    """The gradient op of an op."""
    ops = {each.name: each for each in definition_of(load(sample.library)).ops}
    return None if op.gradient is None else ops[op.gradient.op]


def orders(sample: Sample) -> int:
    """How many gradients of gradients are declared; many where all of them are zeros."""
    op: Op | None = sample.op
    for order in range(9):
        if op is not None and not op.differentiable:
            return 9
        op = None if op is None else gradient_of(sample, op)
        if op is None:
            return order
    return 9


def is_float(tensor: Any) -> bool:
    """Whether it can have a tangent."""
    return tensor.dtype.is_floating


def directions(inputs: Sequence[Any], seed: int = 1) -> list[Any]:
    """Tangents: zeros for what is no float."""
    generator = np.random.default_rng(seed)
    return [
        tf.cast(generator.uniform(-1, 1, x.shape), x.dtype) if is_float(x) else tf.zeros_like(x)
        for x in inputs
    ]


def pushed(function: Function, inputs: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The outputs and their tangents."""
    floats = [i for i, x in enumerate(inputs) if is_float(x)]
    with tf.autodiff.ForwardAccumulator([inputs[i] for i in floats], [tangents[i] for i in floats]) as it:
        outputs = tf.nest.flatten(function(*inputs))
    return outputs, [it.jvp(output) for output in outputs]


def differences(
    function: Function, inputs: Sequence[Any], tangents: Sequence[Any], h: float = 1e-5
) -> list[Any]:
    """Of the outputs along the tangents, of fourth order."""

    def moved(step: float) -> list[Any]:
        both = zip(inputs, tangents, strict=True)
        return tf.nest.flatten(function(*(x + step * t if is_float(x) else x for x, t in both)))

    return [
        (8.0 * (a - b) - (c - d)) / (12 * h) if is_float(a) else None
        for a, b, c, d in zip(moved(h), moved(-h), moved(2 * h), moved(-2 * h), strict=True)
    ]


def assert_close(ours: Sequence[Any], theirs: Sequence[Any], scale: float = 1e-7) -> None:
    """`None` where there is no tangent."""
    for own, other in zip(ours, theirs, strict=True):
        if other is None:
            assert own is None
        else:
            np.testing.assert_allclose(own, other, rtol=scale, atol=scale)


def flat_call(sample: Sample) -> tuple[Function, list[Any]]:
    """The call as a function of tensors, and the tensors."""
    given = [tf.nest.map_structure(tf.constant, x) for x in sample.inputs]
    function = getattr(load(sample.library), sample.op.snake_name)

    def call(*tensors: Any) -> Any:
        return function(*tf.nest.pack_sequence_as(given, list(tensors)), **sample.attrs)

    return call, tf.nest.flatten(given)


def gives_floats(sample: Sample) -> bool:
    """Whether it has an output that can have a tangent."""
    call, inputs = flat_call(sample)
    return any(is_float(x) for x in tf.nest.flatten(call(*inputs)))


def has_floats(sample: Sample) -> bool:
    """Whether finite differences of it are accurate, as float64 is."""
    _, inputs = flat_call(sample)
    floats = [x.dtype for x in inputs if is_float(x)]
    return bool(floats) and all(dtype == tf.float64 for dtype in floats)


FIRST = [
    sample
    for sample in SAMPLES
    if "_grad" not in sample.op.snake_name and has_floats(sample) and orders(sample) > 1
]
SECOND = [
    sample
    for sample in SAMPLES
    if sample.op.snake_name.endswith("_grad")
    and "_grad_grad" not in sample.op.snake_name
    # What an op saves belongs to its inputs and is no number of its own: functions of gradients, below.
    and not any(arg.name.startswith("saved_") for arg in sample.op.inputs)
    and has_floats(sample)
    and orders(sample) > 1
]
LACKING = [sample for sample in SAMPLES if has_floats(sample) and gives_floats(sample) and orders(sample) < 2]


@pytest.mark.parametrize("sample", FIRST + SECOND, ids=lambda sample: sample.id)
def test_tangents_are_finite_differences(sample: Sample) -> None:
    call, inputs = flat_call(sample)
    tangents = directions(inputs)
    outputs, found = pushed(call, inputs, tangents)
    if not sample.op.differentiable:
        # It says that nothing depends on its inputs.
        assert found == [None] * len(outputs)
        found = [tf.zeros_like(x) if is_float(x) else None for x in outputs]
    is_narrow = any(x.dtype == tf.float32 for x in outputs)
    expected = differences(call, inputs, tangents, 1e-2 if is_narrow else 1e-5)
    assert_close(found, expected, 1e-3 if is_narrow else 1e-7)


@pytest.mark.parametrize("sample", FIRST[::4], ids=lambda sample: sample.id)
def test_in_functions(sample: Sample) -> None:
    """Around the call, and around the accumulator."""
    call, inputs = flat_call(sample)
    tangents = directions(inputs)
    _, expected = pushed(call, inputs, tangents)
    compiled = tf.function(call)
    _, found = pushed(compiled, inputs, tangents)
    assert_close(found, expected)
    floats = [i for i, x in enumerate(expected) if x is not None]
    whole = tf.function(lambda: [pushed(call, inputs, tangents)[1][i] for i in floats])
    assert_close(whole(), [expected[i] for i in floats])


@pytest.mark.parametrize("op", FORMULAS)
def test_kernels_are_tensorflows(op: str) -> None:
    """Values of the formulas that TensorFlow differentiates itself, and products with the Hessian."""
    formula, function = FORMULAS[op], getattr(load("kernels"), op)
    inputs = [tf.constant(x) for x in formula.numbers()]
    tangents = directions(inputs)
    others = [tf.constant(x) for x in formula.others]

    def ours(*floats: Any) -> Any:
        return function(*floats, *others, **formula.attrs)

    def theirs(*floats: Any) -> Any:
        return formula.value(*floats)

    (output,), found = pushed(ours, inputs, tangents)
    (like,), expected = pushed(theirs, inputs, tangents)
    np.testing.assert_allclose(output, like, rtol=1e-9, atol=1e-9)
    assert_close(found, expected, 1e-9)
    assert_close(hessian_product(ours, inputs, tangents), hessian_product(theirs, inputs, tangents), 1e-8)


def hessian_product(function: Function, inputs: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    """Of a nonlinear function of the outputs, forward over reverse."""

    def gradient(*inputs: Any) -> list[Any]:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = [x for x in tf.nest.flatten(function(*inputs)) if is_float(x)]
            total = tf.add_n([tf.reduce_sum(tf.sin(x)) for x in outputs])
        return tape.gradient(total, inputs, unconnected_gradients=tf.UnconnectedGradients.ZERO)

    with tf.autodiff.ForwardAccumulator(list(inputs), list(tangents)) as it:
        found = gradient(*inputs)
    return [it.jvp(x, unconnected_gradients=tf.UnconnectedGradients.ZERO) for x in found]


def by_two_tapes(function: Function, inputs: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    """The same, reverse over reverse."""
    with tf.GradientTape() as outer:
        outer.watch(inputs)
        with tf.GradientTape() as inner:
            inner.watch(inputs)
            outputs = [x for x in tf.nest.flatten(function(*inputs)) if is_float(x)]
            total = tf.add_n([tf.reduce_sum(tf.sin(x)) for x in outputs])
        found = inner.gradient(total, inputs, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    zero = tf.UnconnectedGradients.ZERO
    return outer.gradient(found, inputs, output_gradients=list(tangents), unconnected_gradients=zero)


THREE = [
    sample
    for sample in FIRST
    if orders(sample) > 2 and gives_floats(sample) and all(is_float(x) for x in flat_call(sample)[1])
]


@pytest.mark.parametrize("sample", THREE, ids=lambda sample: sample.id)
def test_forward_over_reverse_is_reverse_over_reverse(sample: Sample) -> None:
    call, inputs = flat_call(sample)
    tangents = directions(inputs)
    expected = by_two_tapes(call, inputs, tangents)
    assert_close(hessian_product(call, inputs, tangents), expected, 1e-9)


def test_a_function_of_a_gradient() -> None:
    """The Hessian's product with one tangent, compiled."""
    call, inputs = flat_call(next(sample for sample in THREE if sample.id == "reductions.layer_norm"))
    tangents = directions(inputs)
    compiled = tf.function(lambda: hessian_product(call, inputs, tangents))
    assert_close(compiled(), by_two_tapes(call, inputs, tangents), 1e-9)


@pytest.mark.parametrize("sample", LACKING, ids=lambda sample: sample.id)
def test_what_has_none_is_an_error_that_names_it(sample: Sample) -> None:
    call, inputs = flat_call(sample)
    missing = sample.op if sample.op.gradient is None else gradient_of(sample, sample.op)
    assert missing is not None and missing.gradient is None
    message = f"{missing.name}: has no gradient, .*; declare one by `gradient = …` at the op"
    for function in (call, tf.function(call)):
        with pytest.raises(LookupError, match=message):
            pushed(function, inputs, directions(inputs))


def test_a_hessian_of_two_declared_orders(distances: opsmith.Library) -> None:
    """Forward over reverse takes a third one; two tapes do not."""
    inputs = [tf.constant(np.random.default_rng(0).random((3, 2))), tf.constant(np.ones((4, 2)) * 2)]
    tangents = directions(inputs)
    with pytest.raises(LookupError, match="PairwiseManhattanDistanceGradGrad: has no gradient"):
        hessian_product(distances.pairwise_manhattan_distance, inputs, tangents)
    by_two_tapes(distances.pairwise_manhattan_distance, inputs, tangents)


def test_integers_have_no_tangents() -> None:
    """As in TensorFlow's own ops: there is none for them, and they pass none on."""
    x = tf.constant([1, 2, 3])
    with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as it:
        y = load("zero_out").zero_out(x)
    assert it.jvp(y) is None
    scores, labels = tf.constant(np.random.default_rng(0).random((3, 4))), tf.constant([0, 1, 3], tf.int64)
    with tf.autodiff.ForwardAccumulator([scores, labels], [tf.ones_like(scores), tf.ones_like(labels)]) as it:
        loss = load("kernels").cross_entropy(scores, labels)
        nearest = load("kernels").nearest(scores, scores)
    # To add the same to all scores changes no entropy.
    np.testing.assert_allclose(it.jvp(loss), np.zeros(3), atol=1e-12)
    assert it.jvp(nearest) is None


def test_only_some_inputs_have_tangents() -> None:
    function = load("reductions").layer_norm
    x, scale, shift = (tf.constant(np.random.default_rng(0).random(n)) for n in ((4, 3), (3,), (3,)))
    tangent = directions([scale])[0]
    with tf.autodiff.ForwardAccumulator(scale, tangent) as it:
        y = function(x, scale, shift)
    expected = (y - shift) / scale * tangent
    np.testing.assert_allclose(it.jvp(y), expected, rtol=1e-9)


def test_more_shapes_than_tensorflow_traces() -> None:
    """After 32 it traces one that is for all shapes."""
    function = load("pairwise").euclidean
    for size in range(1, 40):
        generator = np.random.default_rng(size)
        inputs = [tf.constant(generator.random((n, 3))) for n in (size, 4)]
        tangents = directions(inputs)
        assert_close(pushed(function, inputs, tangents)[1], differences(function, inputs, tangents))


def test_variables_and_layers() -> None:
    """The tangent of a trained variable, through several ops."""
    scale = tf.Variable(np.ones(3))
    x = tf.constant(np.random.default_rng(0).random((4, 3)))
    softmax, norm = load("reductions").softmax, load("kernels").rms_norm
    with tf.autodiff.ForwardAccumulator(scale, tf.ones_like(scale)) as it:
        y = softmax(norm(x, scale) * 2.0)
    expected = differences(lambda s: softmax(norm(x, s) * 2.0), [scale.value()], [tf.ones(3, tf.float64)])
    assert_close([it.jvp(y)], expected)


def test_how_many_ops(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(FIRST) > 60 and len(SECOND) > 40 and len(THREE) > 40
    counts = f"{len(FIRST + SECOND)} ops, {len(THREE)} over reverse mode, {len(LACKING)} are errors"
    with capsys.disabled():
        print(f"\nforward mode in TensorFlow: {counts}")
