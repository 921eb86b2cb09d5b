"""Values: the answers for every dtype and layout are those of NumPy and SciPy."""

from __future__ import annotations

import array
from collections.abc import Callable
from typing import Any

import numpy as np
import opsmith
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist

Ops = Callable[[str], Any]

DTYPES = [
    *(np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *(np.dtype(f"float{bits}") for bits in (16, 32, 64)),
    np.dtype("complex64"),
    np.dtype("complex128"),
    np.dtype("bool"),
]


def numbers(shape: tuple[int, ...], dtype: Any = np.float64, seed: int = 0) -> np.ndarray:
    """Some numbers, the same in every run."""
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n, m, p", [(1, 1, 1), (3, 5, 7), (64, 33, 17), (200, 100, 64), (1, 300, 2)])
def test_distances_are_those_of_scipy(
    distances: opsmith.Library, n: int, m: int, p: int, dtype: type
) -> None:
    x, y = numbers((n, p), dtype), numbers((m, p), dtype, 1)
    z = distances.pairwise_manhattan_distance(x, y)
    assert z.dtype == dtype
    assert z.shape == (n, m)
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    assert_allclose(z, cdist(x.astype(float), y.astype(float), "cityblock"), rtol=tolerance, atol=tolerance)


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "row-major": np.ascontiguousarray,
    "column-major": np.asfortranarray,
    "transposed": lambda x: np.ascontiguousarray(x.T).T,
    "every other": lambda x: np.repeat(np.repeat(x, 2, 0), 3, 1)[::2, ::3],
    "upside down": lambda x: np.ascontiguousarray(x[::-1])[::-1],
    "backwards": lambda x: np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
    "other byte order": lambda x: x.astype(x.dtype.newbyteorder()),
    "unaligned": lambda x: unaligned(x),
    "field of a record": lambda x: field(x),
    "read-only": lambda x: read_only(x),
    "subclass": lambda x: x.view(Subclass),
}


class Subclass(np.ndarray):
    """An array of another class."""


def unaligned(x: np.ndarray) -> np.ndarray:
    """A copy that begins one byte after where it should."""
    memory = np.zeros(x.nbytes + 1, np.uint8)
    copy = memory[1:].view(x.dtype).reshape(x.shape)
    copy[...] = x
    assert x.dtype.itemsize == 1 or not copy.flags.aligned
    return copy


def field(x: np.ndarray) -> np.ndarray:
    """A copy with gaps of one byte, which no stride in elements can say."""
    records = np.zeros(x.shape, np.dtype([("gap", np.uint8), ("value", x.dtype)]))
    records["value"] = x
    return records["value"]


def read_only(x: np.ndarray) -> np.ndarray:
    """A copy that may not be written."""
    copy = x.copy()
    copy.flags.writeable = False
    return copy


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("op", ["strided", "dense"])
def test_layouts_make_no_difference(testops: Ops, distances: opsmith.Library, layout: Any, op: str) -> None:
    call = testops("pairwise") if op == "strided" else distances.pairwise_manhattan_distance
    x, y = numbers((6, 4)), numbers((5, 4), seed=1)
    expected = cdist(x, y, "cityblock")
    assert_allclose(call(layout(x), layout(y)), expected)
    assert_allclose(call(x, layout(y)), expected)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_goes_in_and_comes_back(testops: Ops, dtype: np.dtype, layout: Any) -> None:
    x = (
        (numbers((3, 4)) * 3).astype(dtype)
        if dtype.kind != "u"
        else np.arange(12).reshape(3, 4).astype(dtype)
    )
    if dtype.kind == "c":
        x = x + x * 1j
    y = testops("echo")(layout(x))
    assert type(y) is np.ndarray
    assert y.dtype == x.dtype
    assert_array_equal(y, x)


def test_bfloat16_goes_in_and_comes_back(testops: Ops) -> None:
    import ml_dtypes

    x = np.array([1.5, -2.0, np.inf], ml_dtypes.bfloat16)
    y = testops("echo")(x)
    assert y.dtype == x.dtype
    assert_array_equal(y.astype(np.float32), x.astype(np.float32))


@pytest.mark.parametrize("shape", [(), (0,), (1,), (0, 3), (3, 0), (2, 0, 5), (1, 1, 1, 1, 1, 1, 1, 1)])
def test_any_rank_and_empty_arrays(testops: Ops, shape: tuple[int, ...]) -> None:
    x = numbers(shape)
    y = testops("echo")(x)
    assert isinstance(y, np.ndarray)
    assert y.shape == shape
    assert_array_equal(y, x)


def test_empty_distances(distances: opsmith.Library) -> None:
    call = distances.pairwise_manhattan_distance
    assert call(np.empty((0, 3)), np.empty((2, 3))).shape == (0, 2)
    assert_array_equal(call(np.empty((2, 0)), np.empty((3, 0))), np.zeros((2, 3)))


def test_nan_and_infinities_propagate(distances: opsmith.Library) -> None:
    x = np.array([[np.nan, 1.0], [np.inf, 1.0], [-np.inf, 1.0], [np.inf, np.nan], [0.0, 1.0]])
    y = np.array([[0.0, 0.0], [np.inf, 0.0], [-np.inf, np.inf]])
    with np.errstate(invalid="ignore"):
        expected = np.abs(x[:, None] - y[None]).sum(-1)
    assert_array_equal(distances.pairwise_manhattan_distance(x, y), expected)


@given(
    n=st.integers(0, 9),
    m=st.integers(0, 9),
    p=st.integers(0, 9),
    seed=st.integers(0, 99),
    steps=st.tuples(*[st.sampled_from([-3, -2, -1, 1, 2, 3])] * 4),
)
@settings(max_examples=60, deadline=None)
def test_any_strides(n: int, m: int, p: int, seed: int, steps: tuple[int, ...]) -> None:
    from conftest import library_path

    call = opsmith.load(library_path("distances")).pairwise_manhattan_distance

    def strided(rows: int, row_step: int, column_step: int) -> np.ndarray:
        whole = numbers((rows * abs(row_step), p * abs(column_step)), seed=seed)
        return whole[::row_step, ::column_step][:rows, :p]

    x, y = strided(n, *steps[:2]), strided(m, *steps[2:])
    assert_allclose(call(x, y), np.abs(x[:, None] - y[None]).sum(-1))


def test_an_expanded_array_is_read_in_place(testops: Ops) -> None:
    x = np.broadcast_to(np.float32(2.0), (3, 4))
    assert_array_equal(testops("strides")(x), [0, 0])
    assert_array_equal(testops("pairwise")(x, x), np.zeros((3, 3)))


def test_strided_views_reach_a_kernel_that_asks_for_them_with_no_copy(testops: Ops) -> None:
    x = np.zeros((4, 6), np.float32)
    assert_array_equal(testops("strides")(x.T), [1, 6])
    assert_array_equal(testops("strides")(x[::-1, ::2]), [-6, 2])
    assert_array_equal(testops("strides")(x.astype(np.float64).T), [4, 1])


def test_outputs_are_aligned_writable_and_own_their_memory(testops: Ops) -> None:
    outputs = [testops("echo")(np.arange(i, dtype=np.float32)) for i in range(1, 200)]
    for i, y in enumerate(outputs, 1):
        assert y.ctypes.data % 64 == 0
        assert y.flags.writeable
        assert y.flags.c_contiguous
        assert_array_equal(y, np.arange(i))
        y += 1


def test_bytes_that_are_no_truth_values_are_made_so(testops: Ops) -> None:
    odd = np.array([[0, 1, 2], [255, 0, 7]], np.uint8).view(bool)
    for x in (odd, odd.T, odd[:, ::-1]):
        assert_array_equal(testops("echo")(x).view(np.uint8), (x.view(np.uint8) != 0).astype(np.uint8))


def test_scalars_and_lists_take_the_dtype_of_the_arrays(distances: opsmith.Library) -> None:
    call = distances.pairwise_manhattan_distance
    y = np.ones((1, 2), np.float32)
    assert call([[1.0, 2.0]], y).dtype == np.float32
    assert call(y, [[1, 2]]).dtype == np.float32
    assert call([[1, 2]], [[0.5, 0.5]]).dtype == np.float64
    assert call([[1, 2]], [[0, 0]]).dtype == np.float64
    assert_array_equal(call(((1, 2),), [[0, 0], [3, 3]]), [[3, 3]])


def test_scalars_and_lists_alone_take_the_default_of_the_definition(zero_out: opsmith.Library) -> None:
    assert zero_out.zero_out_default_type([4, 5]).dtype == np.int32
    assert zero_out.zero_out_default_type([4.5, 5.5]).dtype == np.float64
    assert zero_out.zero_out_float_int([4.5, 5.5]).dtype == np.float32
    assert zero_out.zero_out(7).shape == ()


def test_lists_with_an_array_of_their_own_are_cast(distances: opsmith.Library) -> None:
    class Listed(list[int]):
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            return np.array([[1.5, 2.5]])

    x = np.zeros((1, 2), np.float32)
    assert distances.pairwise_manhattan_distance(x, Listed([1, 2])) == np.float32(4)


def test_numpy_scalars_keep_their_dtype(testops: Ops) -> None:
    for value in (np.float32(1.5), np.int8(-3), np.bool_(True), np.complex64(1j), np.float64(2.0)):
        y = testops("echo")(value)
        assert y.dtype == value.dtype
        assert y.shape == ()
        assert y == value


def test_python_values_are_what_numpy_makes_of_them(testops: Ops) -> None:
    for value in (True, 3, 2.5, 1 + 2j, [[1, 2], [3, 4]], [True, False]):
        y = testops("echo")(value)
        assert y.dtype == np.asarray(value).dtype
        assert_array_equal(y, value)


class Tensor:
    """A foreign tensor with the DLPack protocol and no other."""

    def __init__(self, array: np.ndarray, device: tuple[int, int] = (1, 0)) -> None:
        self.array = array
        self.device = device

    def __dlpack__(self, **options: object) -> object:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


def test_dlpack_tensors_are_read_in_place(testops: Ops) -> None:
    x = np.zeros((4, 6), np.float32)
    assert_array_equal(testops("strides")(Tensor(x.T)), [1, 6])
    assert_array_equal(testops("echo")(Tensor(np.arange(5))), np.arange(5))


def test_objects_with_the_array_or_buffer_protocol(testops: Ops) -> None:
    class Holder:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            return np.array([1.0, 2.0])

    assert_array_equal(testops("echo")(Holder()), [1.0, 2.0])
    assert_array_equal(testops("echo")(array.array("h", [3, 4])), [3, 4])
    assert_array_equal(testops("echo")(memoryview(b"ab")), [97, 98])


def test_lists_of_tensors(testops: Ops) -> None:
    first, second = testops("double_all")([np.float32(1), [2.0, 3.0]])
    assert_array_equal(first, 2)
    assert_array_equal(second, [4, 6])
    ys, count = testops("pass_all")((np.array([1.5], np.float32), np.array([2]), np.array(True)))
    assert [y.dtype for y in ys] == [np.float32, np.int64, bool]
    assert count == 3
    assert testops("pass_all")([])[0] == []


def test_optional_inputs_may_be_none_or_left_out(testops: Ops) -> None:
    x = np.array([1.0, 2.0])
    assert_array_equal(testops("add_optional")(x, x), [2, 4])
    assert_array_equal(testops("add_optional")(x, None), x)
    assert_array_equal(testops("add_optional")(x), x)


def test_optional_outputs_are_none_unless_wanted(testops: Ops) -> None:
    x = np.array([3, 1, 2], np.float32)
    assert testops("extremes")(x, wanted=0b001)[1:] == (None, None)
    least, greatest, at = testops("extremes")(x)
    assert (least, greatest) == (1, 3)
    assert_array_equal(at, [1, 0])


def test_inputs_changed_in_place(testops: Ops) -> None:
    x = np.zeros((2, 3), np.float32)
    assert testops("increment")(x[:, ::2]) is None
    assert_array_equal(x, [[1, 0, 1], [1, 0, 1]])
    total = testops("add_into")(x[0], np.ones(3, np.float32))
    assert_array_equal(x[0], [2, 1, 2])
    assert total == 5
    numbers = array.array("f", [5.0])
    testops("increment")(numbers)
    assert list(numbers) == [6]


def test_a_dlpack_tensor_is_changed_in_place_where_numpy_lets_it_be(testops: Ops) -> None:
    x = np.array([1, 0, 1], np.float32)
    if np.from_dlpack(Tensor(x)).flags.writeable:
        testops("increment")(Tensor(x))
        assert_array_equal(x, [2, 1, 2])
    else:  # before NumPy 2.1
        with pytest.raises(opsmith.InvalidArgumentError, match="read-only"):
            testops("increment")(Tensor(x))
        assert_array_equal(x, [1, 0, 1])


@pytest.mark.parametrize(
    "texts",
    [
        ["", "zwölf", "日本"],
        np.array(["", "zwölf", "日本"]),
        np.array(["", "zwölf", "日本"], object),
        np.array([t.encode() for t in ("", "zwölf", "日本")]),
        [b"", "zwölf", "日本".encode()],
    ],
    ids=["list", "text", "objects", "bytes", "mixed"],
)
def test_strings_arrive_as_utf8(testops: Ops, texts: Any) -> None:
    assert_array_equal(testops("string_length")(texts), [0, 6, 6])


def test_strings_keep_nuls_and_what_is_not_utf8(testops: Ops) -> None:
    assert_array_equal(testops("string_length")(["a\0", b"\xff\0", "\udcff"]), [2, 2, 1])
    assert_array_equal(testops("string_length")(np.array(["a\0", "b"], object)), [2, 1])


def test_strings_come_back_as_text(testops: Ops) -> None:
    texts = np.array([["", "zwölf\0"], ["\udcff", "b"]], object)
    quoted = testops("quote")(texts)
    assert quoted.dtype == object
    assert quoted.tolist() == [["<>", "<zwölf\0>"], ["<\udcff>", "<b>"]]
    assert testops("quote")("a").item() == "<a>"
    assert testops("quote")(np.empty((0, 2), "U1")).shape == (0, 2)


def test_text_becomes_numbers(zero_out: opsmith.Library) -> None:
    numbers = zero_out.string_to_number(["1.5", "-2"])
    assert numbers.dtype == np.float32
    assert_array_equal(numbers, [1.5, -2])
    assert_array_equal(zero_out.string_to_number(["7"], out_type=np.int32), [7])


def test_a_result_depends_on_shape_and_data(zero_out: opsmith.Library) -> None:
    x = np.array([[0.0, 2.0], [0.0, 0.0], [3.0, 0.0]], np.float32)
    assert_array_equal(zero_out.non_zero(x), np.argwhere(x))


def test_an_instance_is_built_once_for_each_value(testops: Ops) -> None:
    op = testops("instances")
    first, second = op(attrs=(1.0,)), op(attrs=(2.0,))
    assert first != second
    assert op(attrs=(1.0,)) == first
    assert op(attrs=(1,)) == first
