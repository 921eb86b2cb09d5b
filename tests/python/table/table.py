"""The table of cases that every framework runs: op x dtype x case, with the answers of NumPy and SciPy.

It is written once; `tests/python/<framework>/test_table.py` says how that framework makes its arrays and
gives them back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(np.float32), np.dtype(np.float64)]
WORDS = [*FLOATS, np.dtype(np.int32), np.dtype(np.int64)]
REAL = [
    *WORDS,
    *(np.dtype(name) for name in ("uint8", "int16", "int8", "uint16", "float16", "uint32", "uint64")),
    BFLOAT16,
]

ULPS = 16
"""How many units in the last place of the largest answer an answer that was summed up may be off."""


@dataclass(frozen=True)
class Row:
    """One call and its answers. Inputs are arrays, lists of arrays, or `None` where one is absent."""

    library: str
    op: str
    dtype: str
    case: str
    inputs: tuple[Any, ...]
    attrs: dict[str, Any]
    expected: tuple[Any, ...]
    exact: bool

    @property
    def id(self) -> str:
        """What pytest calls it."""
        return f"{self.op}-{self.dtype}-{self.case}".replace(" ", "_")

    def check(self, outputs: Iterable[np.ndarray]) -> None:
        """Compare the answers of a framework: their number, dtypes, shapes and values."""
        got = list(outputs)
        assert len(got) == len(self.expected)
        for ours, theirs in zip(got, self.expected, strict=True):
            expected = np.asarray(theirs)
            assert ours.dtype == expected.dtype
            assert ours.shape == expected.shape
            if self.exact or expected.dtype.kind not in "f":
                np.testing.assert_array_equal(ours, expected)
                continue
            largest = np.max(np.abs(expected), initial=0, where=np.isfinite(expected))
            tolerance = ULPS * np.finfo(expected.dtype).eps * largest
            np.testing.assert_allclose(ours, expected, rtol=0, atol=tolerance)


@dataclass(frozen=True)
class Mistake:
    """A call that every framework must refuse, and parts of what it must say."""

    library: str
    op: str
    case: str
    inputs: tuple[Any, ...]
    attrs: dict[str, Any]
    said: tuple[str, ...] = field(default=())

    @property
    def id(self) -> str:
        """What pytest calls it."""
        return f"{self.op}-{self.case}".replace(" ", "_")


Call = tuple[str, tuple[Any, ...], dict[str, Any], tuple[Any, ...]]
"""A case, its inputs, its attributes and the answers."""

_makers: list[tuple[str, str, list[np.dtype], bool, Callable[[np.dtype], Iterator[Call]]]] = []


def _cases(library: str, op: str, dtypes: list[np.dtype], exact: bool = True) -> Callable[..., Any]:
    def register(maker: Callable[[np.dtype], Iterator[Call]]) -> Callable[[np.dtype], Iterator[Call]]:
        _makers.append((library, op, dtypes, exact, maker))
        return maker

    return register


def rows() -> list[Row]:
    """The whole table."""
    return [
        Row(library, op, dtype.name, case, inputs, attrs, expected, exact)
        for library, op, dtypes, exact, maker in _makers
        for dtype in dtypes
        for case, inputs, attrs, expected in maker(dtype)
    ]


OUTSIDE = {
    "AttrDefaultsOfTensors": "not every framework has tensors as attributes",
    "Counter": "its answer depends on the calls before",
    "StringToNumber": "only NumPy and TensorFlow have arrays of strings",
    "ZeroOutInPlace": "it changes its argument, which not every framework can",
}
"""The ops of the examples that are not in the table, and why; each framework's own tests have them."""


def size() -> str:
    """The table's size, for people."""
    kinds = {(row.library, row.op, row.dtype) for row in rows()}
    ops = {(library, op) for library, op, _ in kinds}
    calls = f"{len(rows())} calls of {len(ops)} ops ({len(kinds)} pairs of op and dtype)"
    return f"{calls}, {len(mistakes())} mistakes"


def numbers(dtype: np.dtype, *shape: int, seed: int = 0) -> np.ndarray:
    """Some numbers, the same in every run; those of integers reach to the ends of their range."""
    rng = np.random.default_rng([seed, *shape])
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return rng.normal(size=shape).astype(dtype)


def layouts(dtype: np.dtype, *shape: int) -> Iterator[tuple[str, np.ndarray]]:
    """An array as usual, and the same numbers where they do not lie one after the other."""
    dense = numbers(dtype, *shape)
    yield "dense", dense
    yield "column-major", np.asfortranarray(dense)
    yield "every other", np.repeat(dense, 2, -1)[..., ::2]
    yield "backwards", np.ascontiguousarray(dense[::-1])[::-1]


def odd_numbers(dtype: np.dtype, *shape: int) -> np.ndarray:
    """Numbers among which are NaN and infinities."""
    values = numbers(dtype, *shape)
    values.flat[:3] = [np.nan, np.inf, -np.inf]
    return values


# distances


def _distances(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    terms = np.abs(x[:, None, :].astype(np.float64) - y[None, :, :])
    return terms.sum(-1).astype(x.dtype)


def _signs(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.sign(x[:, None, :] - y[None, :, :]).astype(np.float64)


@_cases("distances", "PairwiseManhattanDistance", FLOATS, exact=False)
def _pairwise(dtype: np.dtype) -> Iterator[Call]:
    for n, m, p in [(1, 1, 1), (3, 5, 7), (40, 33, 130), (0, 4, 3), (4, 0, 3), (4, 3, 0), (0, 0, 0)]:
        x, y = numbers(dtype, n, p), numbers(dtype, m, p, seed=1)
        yield f"{n}x{m}x{p}", (x, y), {}, (_distances(x, y),)
    y = numbers(dtype, 6, 4, seed=1)
    for layout, x in layouts(dtype, 5, 4):
        yield layout, (x, y), {}, (_distances(x, y),)
    x = numbers(dtype, 5, 4)
    yield "equal rows", (x, x.copy()), {}, (_distances(x, x),)
    x = numbers(dtype, 5, 4) + dtype.type(1000)
    yield "far from zero", (x, x[::-1].copy()), {}, (_distances(x, x[::-1]),)
    x = odd_numbers(dtype, 5, 4)
    with np.errstate(invalid="ignore"):
        yield "NaN and infinities", (x, y), {}, (_distances(x, y),)


@_cases("distances", "PairwiseManhattanDistanceGrad", FLOATS, exact=False)
def _pairwise_grad(dtype: np.dtype) -> Iterator[Call]:
    for n, m, p in [(1, 1, 1), (3, 5, 7), (40, 33, 70), (0, 4, 3), (4, 0, 3), (4, 3, 0)]:
        x, y, z_grad = numbers(dtype, n, p), numbers(dtype, m, p, seed=1), numbers(dtype, n, m, seed=2)
        signs = _signs(x, y)
        answers = np.einsum("ijk,ij->ik", signs, z_grad), -np.einsum("ijk,ij->jk", signs, z_grad)
        expected = tuple(answer.astype(dtype) for answer in answers)
        yield f"{n}x{m}x{p}", (x, y, z_grad), {}, expected
        yield f"{n}x{m}x{p}, a=2", (x, y, z_grad), {"a": 2}, expected


@_cases("distances", "PairwiseManhattanDistanceGradGrad", FLOATS, exact=False)
def _pairwise_grad_grad(dtype: np.dtype) -> Iterator[Call]:
    x, y = numbers(dtype, 4, 3), numbers(dtype, 5, 3, seed=1)
    a, b = numbers(dtype, 4, 3, seed=2), numbers(dtype, 5, 3, seed=3)
    signs = _signs(x, y)
    from_a, from_b = np.einsum("ijk,ik->ij", signs, a), np.einsum("ijk,jk->ij", signs, b)
    yield "both", (x, y, a, b), {}, ((from_a - from_b).astype(dtype),)
    yield "first", (x, y, a, None), {}, (from_a.astype(dtype),)
    yield "second", (x, y, None, b), {}, ((-from_b).astype(dtype),)


# zero_out


def _kept(x: np.ndarray, index: int = 0) -> np.ndarray:
    kept = np.zeros_like(x, order="C")
    kept.reshape(-1)[index : index + 1] = np.ravel(x)[index : index + 1]
    return kept


def _zero_out(dtype: np.dtype, ranks: Iterable[int] = (0, 1, 2, 3), empty: bool = True) -> Iterator[Call]:
    for rank in ranks:
        x = numbers(dtype, *(3, 4, 2)[:rank])
        yield f"rank {rank}", (x,), {}, (_kept(x),)
    if 2 in ranks:
        for layout, x in layouts(dtype, 3, 4):
            yield layout, (x,), {}, (_kept(x),)
    if empty:
        x = numbers(dtype, 0)
        yield "empty", (x,), {}, (x.copy(),)
    if dtype.kind == "f":
        x = odd_numbers(dtype, 5)
        yield "NaN and infinities", (x,), {}, (_kept(x),)


def _zero_out_at(dtype: np.dtype, ranks: Iterable[int] = (1, 2, 3)) -> Iterator[Call]:
    for rank in ranks:
        x = numbers(dtype, *(3, 4, 2)[:rank])
        for index in (0, 2):
            yield f"rank {rank}, at {index}", (x,), {"preserve_index": index}, (_kept(x, index),)


_INT32 = [np.dtype(np.int32)]
_cases("zero_out", "ZeroOut", _INT32)(_zero_out)
_cases("zero_out", "ZeroOutVector", _INT32)(lambda dtype: _zero_out(dtype, ranks=(1,)))
_cases("zero_out", "ZeroOutPreserve", _INT32)(_zero_out_at)
_cases("zero_out", "ZeroOutPreserveDefault", _INT32)(lambda dtype: _zero_out(dtype, empty=False))
_cases("zero_out", "ZeroOutPreserveDefault", _INT32)(_zero_out_at)
_cases("zero_out", "ZeroOutFloatInt", [FLOATS[0], *_INT32])(_zero_out)
_cases("zero_out", "ZeroOutDefaultType", [*FLOATS, *_INT32])(_zero_out_at)
_cases("zero_out", "ZeroOutReal", REAL)(_zero_out_at)
_cases("zero_out", "ZeroOutReal", REAL)(lambda dtype: _zero_out(dtype, empty=False))
_cases("zero_out", "ZeroOutGrad", REAL)(_zero_out_at)
_cases("zero_out", "ZeroOutGradGrad", REAL)(_zero_out_at)


def _zero_out_rows(dtype: np.dtype) -> Iterator[Call]:
    for shape in [(5,), (4, 3), (2, 4, 3), (2, 0, 3), (0, 3)]:
        x = numbers(dtype, *shape)
        for index in (0, 2):
            expected = np.zeros_like(x)
            expected[..., index] = x[..., index]
            name = "x".join(map(str, shape))
            yield f"{name}, at {index}", (x,), {"preserve_index": index}, (expected,)


for _name in ("ZeroOutRows", "ZeroOutRowsGrad", "ZeroOutRowsGradGrad"):
    _cases("zero_out", _name, WORDS)(_zero_out_rows)


@_cases("zero_out", "AttrDefaults", [FLOATS[1]])
def _attr_defaults(dtype: np.dtype) -> Iterator[Call]:
    seen = [3, 0, 1, 1, 4, 0, 17, 0.75, 1, 3, 8]
    yield "defaults", (), {}, (np.array(seen, dtype),)
    given: list[tuple[int, str, Any, float]] = [
        (0, "s", "käse", 5),
        (1, "i", -(2**53), -(2**53)),
        (2, "f", 2.5, 2.5),
        (3, "b", False, 0),
        (4, "ty", np.float64, 8),
        (5, "l_empty", [4, -6], -2),
        (6, "l_int", [], 0),
        (7, "l_float", [1.5], 1.5),
        (8, "l_bool", [True, True, False], 2),
        (9, "l_string", ["", "abcd"], 4),
        (10, "l_type", [np.int8, np.int64], 9),
    ]
    for place, name, value, answer in given:
        expected = np.array(seen, dtype)
        expected[place] = answer
        yield name, (), {name: value}, (expected,)
    every = {name: value for _, name, value, _ in given}
    yield "all", (), every, (np.array([answer for *_, answer in given], dtype),)


@_cases("zero_out", "FruitPrice", [FLOATS[0]])
def _fruit_price(dtype: np.dtype) -> Iterator[Call]:
    for fruit, price in (("apple", 0.5), ("orange", 0.75)):
        yield fruit, (), {"fruit": fruit}, (np.array(price, dtype),)


@_cases("zero_out", "Repeat", _INT32)
def _repeat(dtype: np.dtype) -> Iterator[Call]:
    for length, times in [(3, 2), (3, 4), (0, 2)]:
        x = numbers(dtype, length)
        yield f"{length} by {times}", (x,), {"times": times}, (np.tile(x, times),)


@_cases("zero_out", "ZerosOfTypes", [FLOATS[0]])
def _zeros_of_types(_: np.dtype) -> Iterator[Call]:
    for types in ([np.int32] * 4, [np.float32, np.int32, np.float32]):
        yield f"{len(types)}", (), {"types": types}, tuple(np.zeros((), kind) for kind in types)


def _sums(dtype: np.dtype) -> Iterator[Call]:
    for count, shape in [(2, (2, 3)), (5, (4,)), (2, ()), (3, (0, 2))]:
        terms = [numbers(dtype, *shape, seed=seed) for seed in range(count)]
        total = terms[0].copy()
        for term in terms[1:]:
            total = np.add(total, term, dtype=dtype)
        yield f"{count} of {'x'.join(map(str, shape))}", (terms,), {}, (total,)


_cases("zero_out", "SumInts", _INT32)(_sums)
_cases("zero_out", "SumAll", WORDS, exact=False)(_sums)
_cases("zero_out", "SumAllGradGrad", WORDS, exact=False)(_sums)


@_cases("zero_out", "SumAllGrad", WORDS)
def _sum_all_grad(dtype: np.dtype) -> Iterator[Call]:
    for count in (2, 3):
        terms = [numbers(dtype, 2, 3, seed=seed) for seed in range(count)]
        upstream = numbers(dtype, 2, 3, seed=9)
        yield f"{count} terms", (terms, upstream), {}, (upstream,) * count


@_cases("zero_out", "ZeroOutEach", [FLOATS[0]])
def _zero_out_each(_: np.dtype) -> Iterator[Call]:
    tensors = [numbers(dtype, *shape) for dtype, shape in zip(WORDS, [(2, 3), (), (5,), (0,)], strict=True)]
    for count in (1, 3, 4):
        yield f"{count}", (tensors[:count],), {}, tuple(_kept(x) for x in tensors[:count])


@_cases("zero_out", "MaxWithIndex", FLOATS)
def _max_with_index(dtype: np.dtype) -> Iterator[Call]:
    ties = np.array([1, 3, 3, 2], dtype)
    odd = np.array([1, np.inf, np.nan, 5, np.nan], dtype)
    for case, x in [("usual", numbers(dtype, 9)), ("one", numbers(dtype, 1)), ("ties", ties), ("NaN", odd)]:
        yield case, (x,), {}, (np.max(x), np.argmax(x))


@_cases("zero_out", "MaxWithIndexGrad", FLOATS)
def _max_with_index_grad(dtype: np.dtype) -> Iterator[Call]:
    upstream = np.array(2.5, dtype)
    expected = np.zeros(4, dtype)
    expected[3] = upstream
    yield "at 3", (numbers(dtype, 4), np.array(3), upstream), {}, (expected,)


@_cases("zero_out", "MaxWithIndexGradGrad", FLOATS)
def _max_with_index_grad_grad(dtype: np.dtype) -> Iterator[Call]:
    x = numbers(dtype, 4)
    yield "at 3", (np.array(3), x), {}, (x[3],)


@_cases("zero_out", "NonZero", REAL)
def _non_zero(dtype: np.dtype) -> Iterator[Call]:
    for shape in [(7,), (3, 4), (2, 3, 2), (0, 3), (5, 0)]:
        x = numbers(dtype, *shape)
        x[np.random.default_rng(1).random(shape) < 0.5] = 0
        yield "x".join(map(str, shape)), (x,), {}, (np.argwhere(x),)
    yield "all zero", (np.zeros((3, 2), dtype),), {}, (np.zeros((0, 2), np.int64),)


def mistakes() -> list[Mistake]:
    """Calls that no framework may answer."""
    good = np.ones((2, 3), np.float32)
    pair = "PairwiseManhattanDistance"
    vector = np.arange(4, dtype=np.int32)
    unfit: list[tuple[str, str, str, tuple[Any, ...], dict[str, Any], tuple[str, ...]]] = [
        ("distances", pair, "rank of x", (np.ones(3, np.float32), good), {}, ("`x`", "rank 2")),
        ("distances", pair, "rank of y", (good, good[None]), {}, ("`y`", "rank 2")),
        ("distances", pair, "dims", (good, np.ones((2, 4), np.float32)), {}, ("`y`", "`x`", "4", "3")),
        ("distances", pair, "two dtypes", (good, good.astype(np.float64)), {}, ("`y`", "float")),
        ("distances", pair, "dtype", (good.astype(np.int32),) * 2, {}, ("int32",)),
        ("zero_out", "ZeroOutVector", "rank", (np.ones((2, 3), np.int32),), {}, ("rank 1",)),
        (
            "zero_out",
            "ZeroOutPreserve",
            "below 0",
            (vector,),
            {"preserve_index": -1},
            ("preserve_index", "-1"),
        ),
        ("zero_out", "ZeroOutPreserve", "65 bits", (vector,), {"preserve_index": 2**64}, ("preserve_index",)),
        ("zero_out", "ZeroOutPreserve", "too far", (vector,), {"preserve_index": 4}, ("preserve_index", "4")),
        ("zero_out", "FruitPrice", "one of", (), {"fruit": "pear"}, ("fruit", "pear")),
        ("zero_out", "FruitPrice", "type", (), {"fruit": 3}, ("fruit",)),
        ("zero_out", "AttrDefaults", "type in a list", (), {"l_int": ["a"]}, ("l_int",)),
        ("zero_out", "SumAll", "one term", ([good],), {}, ("at least 2",)),
        ("zero_out", "SumAll", "no term", ([],), {}, ("terms",)),
        ("zero_out", "SumAll", "not a list", (good,), {}, ("terms",)),
        ("zero_out", "SumAll", "shapes", ([good, good[:1]],), {}, ("terms",)),
        ("zero_out", "Repeat", "once", (vector,), {"times": 1}, ("times", "2", "1")),
        (
            "zero_out",
            "ZerosOfTypes",
            "two types",
            (),
            {"types": [np.int32] * 2},
            ("types", "at least 3", "2"),
        ),
        ("zero_out", "MaxWithIndex", "empty", (np.ones(0, np.float32),), {}, ("values",)),
    ]
    return [Mistake(library, f"{op}", case, *rest) for library, op, case, *rest in unfit]
