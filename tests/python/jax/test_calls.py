"""What the generated functions take, and what they say about what they do not take."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import opsmith
import opsmith.jax
import pytest
from jax.errors import JaxRuntimeError
from opsmith._library import definition_of
from opsmith.jax._attributes import canonical, encode

X, Y = (jnp.asarray(np.random.default_rng(seed).random((n, 4)), np.float32) for seed, n in ((0, 3), (1, 5)))


def test_the_answer_is_of_the_kind_of_the_arguments(distances: opsmith.Library) -> None:
    f = distances.pairwise_manhattan_distance
    z = f(X, Y)
    assert isinstance(z, jax.Array) and z.devices() == X.devices()
    assert type(f(np.asarray(X), np.asarray(Y))) is np.ndarray
    np.testing.assert_array_equal(z, f(np.asarray(X), np.asarray(Y)))


def test_traced_numbers_take_the_dtype_of_the_arrays_beside_them(ops: opsmith.Library) -> None:
    f = ops.mul
    half, whole = jnp.ones(2, jnp.bfloat16), jnp.ones(2, jnp.int32)
    calls = [
        (lambda: jax.jit(f)(half, 0.5), jnp.bfloat16),
        (lambda: jax.jit(f)(half, 2), jnp.bfloat16),
        (lambda: f(jnp.asarray(0.5), half), jnp.bfloat16),
        (lambda: jax.vmap(f, (0, None))(half, 0.5), jnp.bfloat16),
        (lambda: jax.jit(f)(whole, 2), jnp.int32),
        (lambda: jax.lax.fori_loop(1, 3, lambda i, x: f(x, i * 0.5), half), jnp.bfloat16),
        (lambda: jax.jit(f)(2, 0.5), jax.jit(jnp.multiply)(2, 0.5).dtype),
        (lambda: jax.jit(lambda n: f(n, 0.5))(2), jax.jit(jnp.multiply)(2, 0.5).dtype),
    ]
    for call, dtype in calls:
        assert call().dtype == dtype
    assert jax.grad(lambda x, y: f(x, y).sum(), 1)(half, 0.5) == 2
    for wrong in (lambda: jax.jit(f)(whole, 0.5), lambda: f(half, jnp.ones(2, jnp.float32))):
        with pytest.raises(JaxRuntimeError, match="must have one dtype"):
            wrong()


def test_lists_and_scalars_beside_an_array(distances: opsmith.Library, testops: opsmith.Library) -> None:
    x = jnp.array([[1.0, 2.0]])
    f = distances.pairwise_manhattan_distance
    for z in (f(x, [[1, 1], [3, 3]]), jax.jit(lambda x: f(x, [[1, 1], [3, 3]]))(x)):
        assert z.dtype == np.float64 and z.tolist() == [[1, 3]]
    assert f([[1, 1], [3, 3]], x.astype(np.float32)).dtype == np.float32
    assert testops.add_optional(jnp.zeros(2), [1, 2]).tolist() == [1, 2]
    assert testops.add_optional(jnp.ones(2)).tolist() == [1, 1]


def test_arrays_beside_an_array(distances: opsmith.Library) -> None:
    f, x, y = distances.pairwise_manhattan_distance, np.asarray(X), np.asarray(Y)
    calls = [lambda: f(X, y), lambda: f(x, Y), lambda: f(X, y=y), lambda: f(y=Y, x=x)]
    calls += [
        lambda: jax.jit(lambda x: f(x, y))(X),
        lambda: jax.jit(lambda y: f(x, y))(Y),
        lambda: f(x, Y, name="z"),
    ]
    for z in (call() for call in calls):
        assert isinstance(z, jax.Array)
        np.testing.assert_array_equal(z, f(X, Y))
    own, theirs = (jax.grad(lambda x, y=y: f(x, y).sum())(X) for y in (y, Y))
    np.testing.assert_array_equal(own, theirs)
    rows = jax.vmap(lambda row: f(row[None], y)[0])(X)
    np.testing.assert_array_equal(rows, f(X, Y))


def test_arrays_of_64_bits_beside_an_array(half: None, ops: opsmith.Library) -> None:
    """JAX's own functions take them in 32, unless they are told otherwise."""
    for total in (
        ops.add(X, np.ones(4)),
        ops.add(np.ones(4), X),
        jax.jit(lambda x: ops.add(x, np.ones(4)))(X),
    ):
        assert total.dtype == np.float32
        np.testing.assert_array_equal(total, X + 1)
    assert ops.add(jnp.ones(2, np.int32), np.ones(2, np.int64)).dtype == np.int32


def test_arrays_that_decide_shapes_are_part_of_the_program(ops: opsmith.Library) -> None:
    padded = jax.jit(lambda x: ops.pad(x, np.array([[0, 0], [1, 2]])))(X)
    np.testing.assert_array_equal(padded, np.pad(X, [[0, 0], [1, 2]]))


def test_arrays_in_lists_and_optional_inputs(testops: opsmith.Library, zero_out: opsmith.Library) -> None:
    one = jnp.ones(2)
    for terms in ([np.ones(2), one], [one, np.ones(2)], [[1, 1], np.ones(2), one]):
        total = zero_out.sum_all(terms)
        assert isinstance(total, jax.Array) and total.tolist() == [len(terms)] * 2
    assert testops.add_optional(one, np.ones(2)).tolist() == [2, 2]
    assert testops.add_optional(np.ones(2), one).tolist() == [2, 2]


def test_numbers_take_the_dtype_beside_them_and_lose_nothing(ops: opsmith.Library) -> None:
    x = jnp.array([1, 2], np.int32)
    for number in (np.int64(1), 1, True, [1, 1], np.array([1, 1], np.int32)):
        for total in (ops.add(x, number), ops.add(number, x)):
            assert total.dtype == np.int32 and total.tolist() == [2, 3]
    for number in (np.float64(2.5), 2.5, [2.5, 1]):
        with pytest.raises(opsmith.InvalidArgumentError, match=r"Add: input `y` holds float .* int32"):
            ops.add(x, number)


def test_saved_outputs_and_names(testops: opsmith.Library, zero_out: opsmith.Library) -> None:
    x = jnp.ones(2, np.float32)
    assert np.array_equal(testops.lambda_(x, from_=3), x)
    value, position = zero_out.max_with_index(jnp.array([1.0, 3.0]), name="largest")
    assert value == 3 and position == 1 and position.dtype == np.int64


def test_lists_of_arrays(zero_out: opsmith.Library) -> None:
    x = jnp.arange(3.0)
    for terms in ([x, x], (x, x), [x, [0, 1, 2]]):
        assert zero_out.sum_all(terms).tolist() == [0, 2, 4]
    zeroed = zero_out.zero_out_each([x + 1, jnp.arange(1, 3)])
    assert isinstance(zeroed, list) and [z.tolist() for z in zeroed] == [[1, 0, 0], [1, 0]]


def test_in_place_ops_give_the_new_values(testops: opsmith.Library, zero_out: opsmith.Library) -> None:
    x = jnp.arange(3, dtype=np.float32)
    assert testops.increment(x).tolist() == [1, 2, 3] and x.tolist() == [0, 1, 2]
    total, changed = jax.jit(testops.add_into)(x, x)
    assert total == 6 and changed.tolist() == [0, 2, 4] and x.tolist() == [0, 1, 2]
    assert zero_out.zero_out_in_place(jnp.ones((2, 2))).tolist() == [[1, 0], [0, 0]]
    donated = jax.jit(testops.increment, donate_argnums=0)(x + 0)
    assert donated.tolist() == [1, 2, 3]


MISTAKES: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "rank": (lambda f: f(X[0], Y), JaxRuntimeError, r"input `x` must have rank 2, \(n,p\), got rank 1"),
    "dims": (lambda f: f(X, Y[:, :2]), JaxRuntimeError, "dim 1 of input `y` must equal dim 1 .*2 ≠ 4"),
    "dtypes differ": (
        lambda f: f(X, Y.astype("float64")),
        JaxRuntimeError,
        "inputs `x` and `y` must have one dtype, got float32 and float64; cast one of them",
    ),
    "dtype": (
        lambda f: f(X.astype(int), Y.astype(int)),
        JaxRuntimeError,
        "input `x` is int64, but must be one of float32, float64",
    ),
    "a dtype that only JAX has": (
        lambda f: f(X.astype(ml_dtypes.float8_e5m2), Y),
        JaxRuntimeError,
        "float8_e5m2",
    ),
    "frameworks": (
        lambda f: f(X, opsmith.Graph().constant([[1.0]])),
        opsmith.InvalidArgumentError,
        "PairwiseManhattanDistance: .* `x` is of JAX, `y` is of an Opsmith graph",
    ),
    "frameworks, turned": (
        lambda f: f(opsmith.Graph().constant([[1.0]]), Y),
        opsmith.InvalidArgumentError,
        "`x` is of an Opsmith graph, `y` is of JAX",
    ),
    "an array of another dtype": (
        lambda f: f(X, np.ones((5, 4))),
        JaxRuntimeError,
        "inputs `x` and `y` must have one dtype, got float32 and float64; cast one of them",
    ),
    "an array of objects": (
        lambda f: f(X, np.array([[None]])),
        opsmith.InvalidArgumentError,
        "PairwiseManhattanDistance: input `y` is not an array: .*object",
    ),
    "a masked array": (
        lambda f: f(X, np.ma.array(np.asarray(Y), mask=Y > 0.5)),
        opsmith.InvalidArgumentError,
        "PairwiseManhattanDistance: input `y` is a masked array, whose mask would be lost",
    ),
    "one array too many": (
        lambda f: f(X, Y, Y),
        TypeError,
        r"pairwise_manhattan_distance\(\) takes 2 positional arguments but 3 were given",
    ),
    "missing": (lambda f: f(X), TypeError, r"pairwise_manhattan_distance\(\) missing 1 required .*'y'"),
    "unknown": (lambda f: f(X, Y, b=1), TypeError, "unexpected keyword argument 'b'"),
    "none": (lambda f: f(X, None), opsmith.InvalidArgumentError, "input `y` is missing"),
    "a name": (
        lambda f: f(X, Y, name=3),
        opsmith.InvalidArgumentError,
        r"PairwiseManhattanDistance: `name` must be text \(str\), got 3 \(int\)",
    ),
    "text": (lambda f: f(X, "y"), opsmith.InvalidArgumentError, "input `y` is not an array"),
}


@pytest.mark.parametrize(("call", "kind", "message"), MISTAKES.values(), ids=MISTAKES.keys())
@pytest.mark.parametrize("way", ["eager", "jit", "grad"])
def test_mistakes(
    distances: opsmith.Library, call: Callable[[Any], Any], kind: type[Exception], message: str, way: str
) -> None:
    f = distances.pairwise_manhattan_distance

    def traced(x: Any, *args: Any, **kwargs: Any) -> Any:
        if way == "eager" or not isinstance(x, jax.Array) or (way == "grad" and x.dtype.kind != "f"):
            return f(x, *args, **kwargs)
        return (
            jax.jit(lambda x: f(x, *args, **kwargs))(x)
            if way == "jit"
            else jax.grad(lambda x: f(x, *args, **kwargs).sum())(x)
        )

    with pytest.raises(kind, match=message):
        call(traced)
    assert f(X, Y).shape == (3, 5)


def test_none_is_the_default_of_an_attribute(zero_out: opsmith.Library) -> None:
    x = jnp.arange(1.0, 4.0)
    np.testing.assert_array_equal(zero_out.zero_out_real(x, preserve_index=None), [1, 0, 0])
    np.testing.assert_array_equal(jax.jit(lambda x: zero_out.zero_out_real(x, None))(x), [1, 0, 0])


def test_wrong_attributes(zero_out: opsmith.Library) -> None:
    x = jnp.ones(4)
    for wrong in ("k", True, 2.0, None, 2**63, -(2**63) - 1):
        message = rf"ZeroOutPreserve: attribute `preserve_index` must be int, got {wrong!r}"
        with pytest.raises(opsmith.InvalidArgumentError, match=message):
            zero_out.zero_out_preserve(x.astype(np.int32), preserve_index=wrong)
    with pytest.raises(JaxRuntimeError, match=r"INVALID_ARGUMENT: .*preserve_index"):
        zero_out.zero_out_real(x, preserve_index=-1)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'preserve_index'"):
        zero_out.zero_out_preserve(x.astype(np.int32))
    with pytest.raises(
        JaxRuntimeError, match="INVALID_ARGUMENT: Repeat: attribute `times` must be at least 2, got 1"
    ):
        zero_out.repeat(x.astype(np.int32), times=1)
    traced = r"ZeroOutReal: attribute `preserve_index` must be int, got a value that JAX traces: .*argnames"
    with pytest.raises(opsmith.InvalidArgumentError, match=traced):
        jax.jit(lambda x, i: zero_out.zero_out_real(x, preserve_index=i))(x, 1)


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("dtype", ["int8", "int32", "uint32"])
def test_integers_are_labels(
    kernels: opsmith.Library, dtype: str, wide: bool, request: pytest.FixtureRequest
) -> None:
    if not wide:
        request.getfixturevalue("half")
    x = jnp.array([[1.0, 2.0, 4.0], [3.0, 0.0, 1.0]], np.float32)
    labels = jnp.array([2, 0], dtype)
    assert labels.dtype == dtype
    expected = -jax.nn.log_softmax(x)[jnp.arange(2), labels]
    f = kernels.cross_entropy
    for y in (f(x, labels), jax.jit(f)(x, labels), jax.vmap(f)(x[:, None], labels[:, None])[:, 0]):
        np.testing.assert_allclose(y, expected, rtol=1e-5)
    slope = jax.jit(jax.grad(lambda x: f(x, labels).sum()))(x)
    np.testing.assert_allclose(slope, jax.nn.softmax(x) - jax.nn.one_hot(labels, 3), atol=1e-6)
    with pytest.raises(JaxRuntimeError, match="input `label` is float32, but must be int64"):
        f(x, labels.astype(np.float32))
    with pytest.raises(opsmith.InvalidArgumentError, match="`label` holds float values, but must be int64"):
        f(x, [1.0, 2.0])


@pytest.mark.parametrize("wide", [True, False])
def test_numpy_integers_lose_no_bits(
    ops: opsmith.Library, wide: bool, request: pytest.FixtureRequest
) -> None:
    x = jnp.ones(64)
    last = (1 << 32) - 1
    expected = ops.dropout(np.ones(64), np.int64(last), np.int64(0)) != 0
    if not wide:
        request.getfixturevalue("half")
    for seed in (np.uint32(last), jnp.array(last, "uint32")):
        np.testing.assert_array_equal(ops.dropout(x, seed, 0) != 0, expected)
    for beyond in (np.uint64(last), np.int64(1 << 40)):
        if wide and beyond.dtype == np.int64:
            continue
        with pytest.raises(opsmith.InvalidArgumentError, match=r"input `seed` .*, but must be int64"):
            ops.dropout(x, np.array(beyond), 0)
        with pytest.raises(opsmith.InvalidArgumentError, match=r"input `seed` .*, but must be int64"):
            ops.dropout(x, beyond, 0)


def test_sizes_that_no_memory_has(ops: opsmith.Library) -> None:
    places = jnp.array([0, 1])
    for depth in (2**63 - 1, 2**62, 2**60):
        f = partial(ops.one_hot, depth=depth)
        for call in (f, jax.jit(f), jax.vmap(f)):
            with pytest.raises(
                (JaxRuntimeError, MemoryError), match=r"OneHot: output `y` is too large|memory"
            ):
                call(places)


def test_lists_that_do_not_fit(zero_out: opsmith.Library) -> None:
    x = jnp.ones(2)
    with pytest.raises(opsmith.InvalidArgumentError, match=r"SumInts: .*terms"):
        zero_out.sum_ints([])
    with pytest.raises(JaxRuntimeError, match="INVALID_ARGUMENT: SumAll: input `terms` has 1 tensor, but N"):
        zero_out.sum_all([x])
    with pytest.raises(opsmith.InvalidArgumentError, match="SumAll: input `terms` must be a list of tensors"):
        zero_out.sum_all(x)
    with pytest.raises(opsmith.InvalidArgumentError, match=r"`terms\[0\]` is of JAX, `terms\[2\]` is of an"):
        zero_out.sum_all([x, np.ones(2), opsmith.Graph().constant(1.0)])


def test_special_values(distances: opsmith.Library) -> None:
    x = jnp.array([[np.nan, 0.0], [np.inf, 0.0], [1.0, 2.0]])
    z = distances.pairwise_manhattan_distance(x, jnp.zeros((1, 2))).ravel()
    assert np.isnan(z[0]) and z[1] == np.inf and z[2] == 3


def test_shapes_that_depend_on_the_data(zero_out: opsmith.Library, testops: opsmith.Library) -> None:
    x = jnp.array([[0, 1, 2], [3, 0, 0]])
    for dtype in ("float32", "int32", "bfloat16"):
        indices = zero_out.non_zero(x.astype(dtype))
        assert isinstance(indices, jax.Array) and np.array_equal(indices, np.argwhere(np.asarray(x)))
    uses: list[Callable[[Any], Any]] = [
        jax.jit(zero_out.non_zero),
        jax.vmap(zero_out.non_zero),
        jax.grad(lambda x: zero_out.non_zero(x).sum().astype(float)),
        lambda x: jax.eval_shape(zero_out.non_zero, x),
    ]
    for use in uses:
        with pytest.raises(opsmith.UnimplementedError, match=r"NonZero: .* call it outside of them"):
            use(x.astype(float))
    least, greatest, at = testops.extremes(jnp.array([3, -1, 2], np.float32))
    assert (least, greatest, at.tolist()) == (-1, 3, [1, 0])
    assert [y.tolist() for y in testops.double_all([jnp.ones(1, np.float32)] * 2)] == [[2], [2]]
    ys, count = testops.pass_all([jnp.ones(2, np.float32), jnp.array([1]), jnp.array(True)])
    assert count == 3 and [y.dtype.name for y in ys] == ["float32", "int64", "bool"]
    with pytest.raises(JaxRuntimeError, match=r"INVALID_ARGUMENT: DoubleAll: .*at least 2"):
        testops.double_all([jnp.ones(1, np.float32)])


def test_ops_of_strings_are_not_available(testops: opsmith.Library) -> None:
    with pytest.raises(opsmith.UnimplementedError, match="Quote: is not available in JAX: `texts` is string"):
        testops.quote(jnp.ones(2))


def test_quantised_numbers_are_no_dtypes_of_jax(testops: opsmith.Library) -> None:
    assert testops.echo(jnp.ones(2, np.int8)).dtype == np.int8


def test_an_op_of_another_dtype_of_its_attribute(testops: opsmith.Library) -> None:
    calls = opsmith.jax.wire(testops._opsmith_loaded)
    assert calls["Make"](None, None).tolist() == [3, 3]
    with pytest.raises(JaxRuntimeError, match="Make: attribute `T` must be one of"):
        calls["Make"]("bool", None)


def shown(library: opsmith.Library, given: list[Any]) -> dict[str, str]:
    """What an op sees of its attributes, passed as the package does. How long that is, a first call tells."""
    op = definition_of(library).op("ShowAttrs")
    pairs = list(zip(op.call_attrs, given, strict=True))
    encoded = {attr.name: encode(attr, canonical(op, attr, value)) for attr, value in pairs}

    def call(length: int) -> np.ndarray:
        result = jax.ShapeDtypeStruct((length,), np.uint8)
        return np.asarray(jax.ffi.ffi_call("testops.show_attrs", result)(**encoded).block_until_ready())

    with pytest.raises(JaxRuntimeError) as told:
        call(1)
    text = call(int(re.search(r"uint8 of shape \[(\d+)\], the", str(told.value))[1]))
    return dict(line.split(" = ", 1) for line in bytes(text).decode().splitlines())


def test_attributes_of_every_kind(testops: opsmith.Library) -> None:
    given = [
        *("it's\n", ["a", "'"], 7, (1, 2), 0.5, [1, float("inf")], True, [False, True]),
        *(jnp.float32, ["half", np.int8], None, [[2, None], None, []]),
        *(np.array([[1, 2]], np.int16), [jnp.ones(2, jnp.bfloat16), np.array(True)]),
    ]
    found = shown(testops, given)
    assert found["a_string"] == r"'it\'s\n'" and found["some_string"] == r"['a', '\'']"
    assert found["a_int"] == "7" and found["some_int"] == "[1, 2]"
    assert found["a_float"] == "0.5" and found["some_float"] == "[1.0, inf]"
    assert found["a_bool"] == "true" and found["some_bool"] == "[false, true]"
    assert found["a_type"] == "DT_FLOAT" and found["some_type"] == "[DT_HALF, DT_INT8]"
    assert found["a_shape"] == "{ unknown_rank: true }"
    assert found["some_shape"] == "[{ dim { size: 2 } dim { size: -1 } }, { unknown_rank: true }, { }]"
    assert found["a_tensor"] == "int16 [1, 2] [1, 0, 2, 0]"
    assert found["some_tensor"] == "[bfloat16 [2] [128, 63, 128, 63], bool [] [1]]"


def test_attributes_are_told_apart_by_their_bits(testops: opsmith.Library) -> None:
    number = opsmith.jax.wire(testops._opsmith_loaded)["Instances"]
    values = [0.0, -0.0, float("nan"), 1.0]
    first = [number(value).item() for value in values]
    assert len(set(first)) == 4 and first == [number(value).item() for value in values]


def test_a_tensor_attribute_of_a_traced_op(testops: opsmith.Library) -> None:
    x = jnp.array([1, 2], np.float32)
    for call in (testops.add_constant, jax.jit(testops.add_constant)):
        assert call(x).tolist() == [3.5, 4.5]
    for value in (1.0, np.float32(1), jnp.float32(1), [1.0, 0.0]):
        added = jax.jit(lambda x, value=value: testops.add_constant(x, value=value))(x)
        assert added.tolist() == [2, 3]


def test_one_library_registered_again(distances: opsmith.Library) -> None:
    loaded = distances._opsmith_loaded
    assert opsmith.jax.wire(loaded) is opsmith.jax.wire(loaded)
