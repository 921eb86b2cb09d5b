"""The standard operators: for each a reference, inputs to try, and what PyTorch has in its place."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.special
import torch
import torch.nn.functional as F

FLOATS = ("float16", "float32", "float64")
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
ANY = (*FLOATS, *INTS, "bool")
NONE = np.zeros(0, "int64")
SPECIALS = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -2.5, 30.0]

Inputs = tuple[Any, ...]
Attributes = dict[str, Any]
Case = tuple[Inputs, Attributes]
Cases = Callable[[np.random.Generator, str], Iterator[Case]]


@dataclass
class Op:
    """An operator, and how it is tested."""

    name: str
    reference: Callable[..., Any]
    cases: Cases
    dtypes: tuple[str, ...] = FLOATS
    torch: Callable[..., Any] | None = None
    differentiated: tuple[int, ...] = ()
    """The inputs that gradients are taken of."""
    orders: int = 2
    tolerance: float = 1.0
    """How many times the usual difference is allowed."""
    specials: bool = False
    """Whether inputs have infinities and NaN among them in some cases."""
    listed: bool = False
    """Whether the first input is a list of tensors."""
    extra: dict[str, Any] = field(default_factory=dict)


def numbers(
    rng: np.random.Generator, dtype: str, shape: tuple[int, ...], low: float = -3, high: float = 3
) -> np.ndarray:
    """Numbers of a dtype; those of floats do not repeat, so that there are no ties."""
    if dtype == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    if dtype in INTS:
        least = max(int(np.floor(low)), 0 if dtype.startswith("u") else -128)
        return np.asarray(rng.integers(least, int(high) + 4, shape)).astype(dtype)
    return np.asarray(rng.uniform(low, high, shape)).astype(dtype)


def tensor(x: Any) -> torch.Tensor:
    """The array, dense, as PyTorch's."""
    return torch.from_numpy(np.array(x, order="C"))


def layouts(x: np.ndarray) -> Iterator[np.ndarray]:
    """The array as it is, and the same kind of array with other strides."""
    yield x
    if x.ndim > 1:
        yield np.ascontiguousarray(x.T).T
    if x.ndim > 0:
        yield np.repeat(x, 2, axis=-1)[..., ::2]
        yield x[::-1]


def shape_of(rng: np.random.Generator) -> tuple[int, ...]:
    """A shape drawn at random: up to four dims of up to five elements, seldom of none."""
    return tuple(int(n) for n in rng.choice(6, rng.integers(1, 5), p=[0.04, 0.16, 0.2, 0.2, 0.2, 0.2]))


def broadcast_with(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape drawn at random that broadcasts with another: some dims are 1, and some in front are gone."""
    return tuple(1 if rng.random() < 0.3 else n for n in shape)[int(rng.integers(0, len(shape) + 1)) :]


def unary(low: float = -3, high: float = 3, specials: bool = True) -> Cases:
    """One tensor of several shapes, with other strides, and with special values."""

    def cases(rng: np.random.Generator, dtype: str) -> Iterator[Case]:
        drawn = [shape_of(rng) for _ in range(4)]
        for shape in [(), (1,), (7,), (3, 5), (2, 0, 3), (300,), (4, 33, 17), *drawn]:
            for x in layouts(numbers(rng, dtype, shape, low, high)):
                yield (x,), {}
        if specials and dtype in FLOATS:
            yield (np.array(SPECIALS * 14, dtype),), {}

    return cases


BROADCASTS = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((2, 1, 4), (3, 1)),
    ((), (5,)),
    ((0, 3), (1, 3)),
    ((257,), (257,)),
]


def binary(low: float = -3, high: float = 3, specials: bool = True) -> Cases:
    """Two tensors that broadcast."""

    def cases(rng: np.random.Generator, dtype: str) -> Iterator[Case]:
        drawn = [(shape, broadcast_with(rng, shape)) for shape in (shape_of(rng) for _ in range(4))]
        for left, right in [*BROADCASTS, ((40, 1), (1, 50)), *drawn]:
            x, y = numbers(rng, dtype, left, low, high), numbers(rng, dtype, right, low, high)
            yield (x, y), {}
            yield (y, x), {}
            for a, b in zip(layouts(x), layouts(y), strict=False):
                yield (a, b), {}
        if specials and dtype in FLOATS:
            grid = np.meshgrid(np.array(SPECIALS, dtype), np.array(SPECIALS, dtype))
            yield tuple(grid), {}

    return cases


def reduced(specials: bool = True, empty: bool = True) -> Cases:
    """One tensor, and dims of it."""

    def cases(rng: np.random.Generator, dtype: str) -> Iterator[Case]:
        tries: list[tuple[tuple[int, ...], list[list[int]]]] = [
            ((), [[]]),
            ((7,), [[], [0], [-1]]),
            ((300,), [[0]]),
            ((4, 5), [[0], [1], [0, 1], [-2]]),
            ((3, 4, 5), [[], [1], [0, 2], [2, 1], [-1], [0]]),
            ((2, 70, 90), [[1], [0], [0, 1], [1, 2]]),
            ((5, 4000), [[1], [0], []]),
            ((0, 3), [[1]]),
        ]
        if empty:
            tries += [((0, 3), [[0], []]), ((3, 0), [[1]])]
        for shape in (tuple(n or 1 for n in shape_of(rng)) for _ in range(4)):
            dims = rng.permutation(len(shape))[: rng.integers(1, len(shape) + 1)]
            tries.append((shape, [[int(axis) - len(shape) * int(rng.integers(2)) for axis in dims]]))
        for shape, lists in tries:
            for axes in lists:
                for x in layouts(numbers(rng, dtype, shape)):
                    yield (x,), {"axes": axes, "keep_dims": bool(rng.random() < 0.5)}
        if specials and dtype in FLOATS:
            yield (np.array([SPECIALS, SPECIALS[::-1]], dtype),), {"axes": [0]}
            yield (np.array([SPECIALS[:6], SPECIALS[:6]], dtype),), {"axes": [1]}

    return cases


def over(function: Callable[..., Any], wide: bool = True, **options: Any) -> Callable[..., np.ndarray]:
    """A reduction of NumPy's as the operators' attributes say it; in double precision."""

    def reference(x: np.ndarray, axes: list[int], keep_dims: bool = False) -> np.ndarray:
        axis = tuple(axes) if axes else None
        if wide and x.dtype.kind == "f":
            x = x.astype("float64")
        return np.asarray(function(x, axis=axis, keepdims=keep_dims, **options))

    return reference


def over_torch(function: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """The same of PyTorch's."""

    def reference(x: torch.Tensor, axes: list[int], keep_dims: bool = False) -> torch.Tensor:
        return function(x, dim=tuple(axes) if axes else tuple(range(x.ndim)), keepdim=keep_dims)

    return reference


def extreme(function: Callable[..., Any], initial: Callable[[np.dtype], Any]) -> Callable[..., np.ndarray]:
    """A largest or smallest number, which there is of none as well."""

    def reference(x: np.ndarray, axes: list[int], keep_dims: bool = False) -> np.ndarray:
        axis = tuple(axes) if axes else None
        return np.asarray(function(x, axis=axis, keepdims=keep_dims, initial=initial(x.dtype)))

    return reference


def least(dtype: np.dtype) -> Any:
    """What is below all numbers."""
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def greatest(dtype: np.dtype) -> Any:
    """What is above all numbers."""
    return np.inf if dtype.kind == "f" else np.iinfo(dtype).max


def position(function: Callable[..., Any]) -> Callable[..., np.ndarray]:
    """Where an extreme is, of several dims in row-major order."""

    def reference(x: np.ndarray, axes: list[int], keep_dims: bool = False) -> np.ndarray:
        dims = sorted(axis % x.ndim for axis in axes) if axes else list(range(x.ndim))
        kept = [dim for dim in range(x.ndim) if dim not in dims]
        shape = [x.shape[dim] for dim in kept]
        flat = x.transpose(kept + dims).reshape([*shape, math.prod(x.shape[dim] for dim in dims)])
        found = np.asarray(function(flat, axis=-1)) if flat.size else np.zeros(shape, int)
        return (
            found.reshape([1 if dim in dims else x.shape[dim] for dim in range(x.ndim)])
            if keep_dims
            else found
        )

    return reference


def rows(rng: np.random.Generator, dtype: str) -> Iterator[Case]:
    """A tensor whose last dims are rows."""
    for shape in [(7,), (5, 130), (3, 4, 5), (2, 3000)]:
        for x in layouts(numbers(rng, dtype, shape)):
            yield (x,), {}
    yield (numbers(rng, dtype, (3, 4, 5)),), {"axes": 2}


def matrices(rng: np.random.Generator, dtype: str) -> Iterator[Case]:
    """Factors of products, each of them transposed or not, and stacks."""
    sizes = [
        (1, 1, 1),
        (3, 4, 5),
        (16, 40, 9),
        (1, 300, 70),
        (70, 300, 1),
        (1, 17, 1),
        (65, 1, 33),
        (130, 70, 90),
    ]
    for n, k, m in [*sizes, (0, 3, 4), (3, 0, 4), (3, 4, 0)]:
        for transpose_a in (False, True):
            for transpose_b in (False, True):
                a = numbers(rng, dtype, (k, n) if transpose_a else (n, k), -1, 1)
                b = numbers(rng, dtype, (m, k) if transpose_b else (k, m), -1, 1)
                yield (a, b), {"transpose_a": transpose_a, "transpose_b": transpose_b}
    for left, right in [
        ((2, 3, 4), (2, 4, 5)),
        ((5, 1, 3, 4), (2, 4, 2)),
        ((3, 4), (6, 4, 2)),
        ((0, 2, 3), (3, 2)),
    ]:
        yield (numbers(rng, dtype, left, -1, 1), numbers(rng, dtype, right, -1, 1)), {}
    strided = numbers(rng, dtype, (20, 24), -1, 1)
    yield (strided[::2, ::-3], strided.T[4:12, 1:8]), {}


def product(a: np.ndarray, b: np.ndarray, transpose_a: bool = False, transpose_b: bool = False) -> np.ndarray:
    """The product: of floats in double precision."""
    if a.dtype.kind == "f":
        a, b = a.astype("float64"), b.astype("float64")
    return (np.swapaxes(a, -1, -2) if transpose_a else a) @ (np.swapaxes(b, -1, -2) if transpose_b else b)


def torch_product(
    a: torch.Tensor, b: torch.Tensor, transpose_a: bool = False, transpose_b: bool = False
) -> torch.Tensor:
    """The same of PyTorch's."""
    return (a.mT if transpose_a else a) @ (b.mT if transpose_b else b)


def each(*tries: tuple[tuple[int, ...], tuple[Any, ...], Attributes]) -> Cases:
    """A tensor of each of these shapes, with further inputs and attributes."""

    def cases(rng: np.random.Generator, dtype: str) -> Iterator[Case]:
        for shape, parameters, attributes in tries:
            for x in layouts(numbers(rng, dtype, shape)):
                yield (x, *parameters), attributes

    return cases


def lists(*tries: tuple[list[tuple[int, ...]], int]) -> Cases:
    """A list of tensors of these shapes, and a dim."""

    def cases(rng: np.random.Generator, dtype: str) -> Iterator[Case]:
        for shapes, axis in tries:
            yield ([numbers(rng, dtype, shape) for shape in shapes],), {"axis": axis}
            yield ([numbers(rng, dtype, shape[::-1]).T for shape in shapes],), {"axis": axis}

    return cases


def sum_to(x: Any, shape: list[int]) -> Any:
    """The sum over what broadcasting repeats; of NumPy's and PyTorch's arrays."""
    extra = x.ndim - len(shape)
    if extra:
        x = x.sum(tuple(range(extra)))
    axes = tuple(i for i, dim in enumerate(shape) if dim == 1 and x.shape[i] != 1)
    sizes = [int(dim) for dim in shape]
    return x.sum(axes).reshape(sizes) if axes else x.reshape(sizes)


def sliced(x: Any, begin: list[int], size: list[int]) -> Any:
    """A part; of NumPy's and PyTorch's arrays."""
    starts = [
        int(first) % dim if first < 0 else int(first) for first, dim in zip(begin, x.shape, strict=True)
    ]
    parts = zip(starts, (int(length) for length in size), x.shape, strict=True)
    return x[tuple(slice(first, dim if length == -1 else first + length) for first, length, dim in parts)]


def patches(
    x: np.ndarray, ksize: list[int], strides: Any = (1, 1), rates: Any = (1, 1), padding: str = "VALID"
) -> Any:
    """Windows of images, in plain loops."""
    batch, *dims, channels = x.shape
    reach = [(size - 1) * rate + 1 for size, rate in zip(ksize, rates, strict=True)]
    if padding == "SAME":
        counts = [-(-dim // stride) for dim, stride in zip(dims, strides, strict=True)]
        needed = [
            max((n - 1) * s + r - d, 0) for n, s, r, d in zip(counts, strides, reach, dims, strict=True)
        ]
        x = np.pad(x, [(0, 0), *[(n // 2, n - n // 2) for n in needed], (0, 0)])
    else:
        counts = [max((d - r) // s + 1, 0) for d, r, s in zip(dims, reach, strides, strict=True)]
    y = np.zeros((batch, *counts, ksize[0] * ksize[1] * channels), x.dtype)
    for i, j in np.ndindex(*counts):
        top, left = i * strides[0], j * strides[1]
        window = x[:, top : top + reach[0] : rates[0], left : left + reach[1] : rates[1]]
        y[:, i, j] = window.reshape(batch, y.shape[-1])
    return y


def images(rng: np.random.Generator, dtype: str) -> Iterator[Case]:
    """Images and windows."""
    tries: list[tuple[tuple[int, ...], Attributes]] = [
        ((2, 5, 6, 3), {"ksize": [2, 3]}),
        ((1, 7, 7, 1), {"ksize": [3, 3], "strides": [2, 2], "padding": "SAME"}),
        ((2, 6, 5, 2), {"ksize": [2, 2], "rates": [2, 1], "strides": [1, 2]}),
        ((1, 4, 4, 2), {"ksize": [3, 2], "rates": [1, 2], "padding": "SAME"}),
        ((1, 2, 2, 1), {"ksize": [3, 3]}),
        ((0, 4, 4, 1), {"ksize": [2, 2]}),
    ]
    for shape, attributes in tries:
        yield (numbers(rng, dtype, shape),), attributes


def selections(rng: np.random.Generator, dtype: str) -> Iterator[Case]:
    """A condition and two tensors, which broadcast."""
    for shapes in [
        ((3,), (3,), (3,)),
        ((2, 1), (3,), ()),
        ((), (4,), (2, 1)),
        ((0,), (1,), (1,)),
        ((300,), (1,), (300,)),
    ]:
        condition, x, y = (
            numbers(rng, kind, shape) for kind, shape in zip(("bool", dtype, dtype), shapes, strict=True)
        )
        yield (condition, x, y), {}
        yield (condition[..., ::-1] if condition.ndim else condition, x, y), {}


def gathers(rng: np.random.Generator, dtype: str) -> Iterator[Case]:
    """A tensor and positions along a dim."""
    for shape, axis, indices in [
        ((5,), 0, [0, 4, -1]),
        ((4, 3), 0, [[1, 1], [3, 0]]),
        ((2, 5, 3), 1, [2]),
        ((2, 5), -1, 3),
    ]:
        for x in layouts(numbers(rng, dtype, shape)):
            yield (x, np.array(indices)), {"axis": axis}
    yield (numbers(rng, dtype, (3, 2)), np.zeros((0,), "int32")), {"axis": 0}


def dense(values: np.ndarray, indices: np.ndarray, shape: list[int]) -> np.ndarray:
    """Values in their places."""
    y = np.zeros(shape, values.dtype)
    for value, index in zip(values, np.asarray(indices).reshape(len(values), len(shape)), strict=True):
        y[tuple(index)] = value
    return y


def torch_dense(values: torch.Tensor, indices: Any, shape: list[int]) -> torch.Tensor:
    """The same of PyTorch's."""
    index = torch.as_tensor(indices).reshape(len(values), len(shape)).T
    return torch.sparse_coo_tensor(index, values, shape).to_dense()


def places(rng: np.random.Generator, dtype: str) -> Iterator[Case]:
    """Values and places, no place twice."""
    for shape, count in [((6,), 3), ((4, 5), 7), ((2, 3, 4), 24), ((3,), 0)]:
        flat = rng.permutation(int(np.prod(shape)))[:count]
        yield (numbers(rng, dtype, (count,)), np.stack(np.unravel_index(flat, shape), -1), list(shape)), {}


def one_hot(indices: np.ndarray, depth: int, axis: int = -1, dtype: str = "float32") -> np.ndarray:
    """A one at each position."""
    return np.moveaxis((np.asarray(indices)[..., None] == np.arange(depth)).astype(dtype), -1, axis)


def hot(rng: np.random.Generator, dtype: str) -> Iterator[Case]:
    """Positions, some of them out of range."""
    for shape in [(), (5,), (2, 3), (0,)]:
        for axis in range(-1, len(shape) + 1):
            indices = rng.integers(-1, 6, shape)
            yield (indices,), {"depth": 4, "axis": axis, "dtype": dtype}


def sort(x: np.ndarray, axis: int = -1, descending: bool = False) -> np.ndarray:
    """Positions in order, equal numbers in theirs, NaN as the largest."""
    if not descending:
        return np.argsort(x, axis, kind="stable")
    flipped = np.argsort(np.flip(x, axis), axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - flipped, axis)


def sorts(rng: np.random.Generator, dtype: str) -> Iterator[Case]:
    """Tensors with equal numbers, dims, and either direction."""
    for shape, axis in [((7,), 0), ((3, 50), -1), ((50, 3), 0), ((2, 5, 3), 1), ((2, 0), 1)]:
        for x in layouts(np.round(numbers(rng, dtype, shape)).astype(dtype)):
            yield (x,), {"axis": axis, "descending": bool(rng.random() < 0.5)}
    if dtype in FLOATS:
        yield (np.array(SPECIALS, dtype),), {"descending": True}
        yield (np.array(SPECIALS, dtype),), {}


def top(x: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest numbers and where they are."""
    indices = sort(x, -1, True)[..., :k]
    return np.take_along_axis(x, indices, -1), indices


def tops(rng: np.random.Generator, dtype: str) -> Iterator[Case]:
    """Rows, and how many of their numbers."""
    for shape, k in [((7,), 3), ((4, 50), 5), ((2, 3, 4), 4), ((3, 4), 0)]:
        for x in layouts(numbers(rng, dtype, shape)):
            yield (x,), {"k": k}


def cast_cases(rng: np.random.Generator, dtype: str) -> Iterator[Case]:
    """Numbers that every dtype has."""
    for to in ANY:
        for x in layouts(numbers(rng, dtype, (4, 9), 0, 60)):
            yield (x,), {"dtype": to}


def normal_gelu(x: np.ndarray, approximate: bool = False) -> np.ndarray:
    """As its definition says."""
    if approximate:
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return x * scipy.special.ndtr(x)


def _pointwise() -> list[Op]:
    real = (*FLOATS, *INTS)
    one: dict[str, Any] = {"differentiated": (0,), "specials": True}
    two: dict[str, Any] = {"differentiated": (0, 1), "specials": True}
    positive, small = unary(0.1, 3), unary(-3, 3)
    gelu_cases: Cases = lambda rng, dtype: (  # noqa: E731
        (inputs, {"approximate": approximate})
        for approximate in (False, True)
        for inputs, _ in unary(-3, 3, False)(rng, dtype)
    )
    return [
        Op("add", np.add, binary(), real, torch.add, **two),
        Op("sub", np.subtract, binary(), real, torch.sub, **two),
        Op("mul", np.multiply, binary(), real, torch.mul, **two),
        Op("div", np.divide, binary(0.5, 3), FLOATS, torch.div, **two),
        Op("pow", np.power, binary(0.2, 3), FLOATS, torch.pow, tolerance=4, **two),
        Op("maximum", np.maximum, binary(), real, torch.maximum, **two),
        Op("minimum", np.minimum, binary(), real, torch.minimum, **two),
        Op("neg", np.negative, small, real, torch.neg, **one),
        Op("abs", np.abs, small, real, torch.abs, **one),
        Op("sign", np.sign, small, real, torch.sign, **one),
        Op("square", np.square, small, real, torch.square, **one),
        Op("sqrt", np.sqrt, positive, FLOATS, torch.sqrt, **one),
        Op("rsqrt", lambda x: 1 / np.sqrt(x), positive, FLOATS, torch.rsqrt, **one),
        Op("exp", np.exp, small, FLOATS, torch.exp, **one),
        Op("expm1", np.expm1, small, FLOATS, torch.expm1, **one),
        Op("log", np.log, positive, FLOATS, torch.log, **one),
        Op("log1p", np.log1p, unary(-0.8, 3), FLOATS, torch.log1p, **one),
        Op("sin", np.sin, small, FLOATS, torch.sin, **one),
        Op("cos", np.cos, small, FLOATS, torch.cos, **one),
        Op("tanh", np.tanh, small, FLOATS, torch.tanh, **one),
        Op("sigmoid", scipy.special.expit, small, FLOATS, torch.sigmoid, **one),
        Op("erf", scipy.special.erf, small, FLOATS, torch.erf, **one),
        Op("floor", np.floor, small, FLOATS, torch.floor, **one),
        Op("softplus", lambda x: np.logaddexp(0, x), small, FLOATS, F.softplus, **one),
        Op("relu", lambda x: np.maximum(x, 0), small, FLOATS, torch.relu, **one),
        Op("elu", lambda x: np.where(x > 0, x, np.expm1(x)), small, FLOATS, F.elu, **one),
        Op(
            "gelu",
            normal_gelu,
            gelu_cases,
            FLOATS,
            lambda x, approximate: F.gelu(x, approximate="tanh" if approximate else "none"),
            differentiated=(0,),
        ),
        *[
            Op(name, function, binary(), real)
            for name, function in [
                ("equal", np.equal),
                ("not_equal", np.not_equal),
                ("less", np.less),
                ("less_equal", np.less_equal),
                ("greater", np.greater),
                ("greater_equal", np.greater_equal),
            ]
        ],
        Op("logical_and", np.logical_and, binary(), ("bool",)),
        Op("logical_or", np.logical_or, binary(), ("bool",)),
        Op("logical_not", np.logical_not, unary(), ("bool",)),
        Op("select", np.where, selections, ANY, torch.where, (1, 2)),
        Op("cast", lambda x, dtype: x.astype(dtype), cast_cases, ANY),
    ]


def _reductions() -> list[Op]:
    real = (*FLOATS, *INTS)
    soft = {"differentiated": (0,)}

    def last(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, axes=1: function(x.astype("float64"), tuple(range(-axes, 0)))

    def last_torch(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, axes=1: function(x.flatten(-axes), -1).reshape(x.shape)

    return [
        Op(
            "sum",
            over(lambda x, **k: np.sum(x, dtype=x.dtype, **k)),
            reduced(),
            real,
            over_torch(torch.sum),
            (0,),
        ),
        Op("mean", over(np.mean), reduced(empty=False), FLOATS, over_torch(torch.mean), (0,)),
        Op("max", extreme(np.max, least), reduced(), real, over_torch(torch.amax), (0,)),
        Op("min", extreme(np.min, greatest), reduced(), real, over_torch(torch.amin), (0,)),
        Op("arg_max", position(np.argmax), reduced(empty=False), real),
        Op("arg_min", position(np.argmin), reduced(empty=False), real),
        Op("softmax", last(scipy.special.softmax), rows, FLOATS, last_torch(torch.softmax), **soft),
        Op(
            "log_softmax",
            last(scipy.special.log_softmax),
            rows,
            FLOATS,
            last_torch(torch.log_softmax),
            tolerance=4,
            **soft,
        ),
        Op("mat_mul", product, matrices, (*FLOATS, *INTS), torch_product, (0, 1), tolerance=20),
    ]


def _layout() -> list[Op]:
    shapes = each(
        ((2, 6), ([3, 4],), {}), ((2, 3, 4), ([-1, 6],), {}), ((1,), (NONE,), {}), ((0, 3), ([3, 0],), {})
    )
    perms = each(
        *[((2, 3, 4), (), {"perm": perm}) for perm in ([], [1, 0, 2], [2, 0, 1], [-1, 0, 1])],
        ((70, 90), (), {}),
    )
    spread = each(
        ((3,), ([2, 3],), {}), ((2, 1), ([4, 2, 5],), {}), ((), ([3],), {}), ((1, 3), ([0, 3],), {})
    )
    narrowed = each(
        ((2, 3), ([3],), {}), ((4, 2, 5), ([2, 1],), {}), ((3,), (NONE,), {}), ((0, 3), ([1, 3],), {})
    )
    cut = each(
        ((5, 6), ([1, 2], [3, -1]), {}),
        ((4,), ([-2], [1]), {}),
        ((3, 0), ([0, 0], [2, 0]), {}),
        ((), (NONE, NONE), {}),
    )
    padded = each(
        ((2, 3), ([[1, 0], [0, 2]],), {}), ((4,), ([[0, 0]],), {}), ((0, 2), ([[1, 1], [0, 0]],), {})
    )
    joined = lists(([(2, 3), (2, 1), (2, 0)], 1), ([(3,), (4,)], 0), ([(2, 3), (5, 3)], -2))
    stacked = lists(([(2, 3), (2, 3)], 0), ([(3,), (3,), (3,)], -1), ([(2, 3)], 1))
    parts = each(
        ((6, 2), (), {"axis": 0, "N": 3}),
        ((2, 4), (), {"axis": -1, "N": 2}),
        ((0, 3), (), {"axis": 0, "N": 2}),
    )
    filled: Cases = lambda rng, dtype: ((([2, 3], numbers(rng, dtype, shape)), {}) for shape in [(), (1, 1)])  # noqa: E731

    def transposed(x: Any, perm: list[int] | None = None) -> Any:
        order = [axis % x.ndim for axis in perm] if perm else list(range(x.ndim))[::-1]
        return x.permute(order) if isinstance(x, torch.Tensor) else x.transpose(order)

    def torch_padded(x: torch.Tensor, paddings: list[list[int]]) -> torch.Tensor:
        return F.pad(x, [number for pair in paddings[::-1] for number in pair])

    return [
        Op("reshape", np.reshape, shapes, ANY, lambda x, shape: x.reshape([int(dim) for dim in shape]), (0,)),
        Op("transpose", transposed, perms, ANY, transposed, (0,)),
        Op("broadcast_to", np.broadcast_to, spread, ANY, torch.broadcast_to, (0,)),
        Op("sum_to", lambda x, shape: sum_to(x.astype("float64"), shape), narrowed, FLOATS, sum_to, (0,)),
        Op("slice", sliced, cut, ANY, sliced, (0,)),
        Op("pad", np.pad, padded, ANY, torch_padded, (0,)),
        Op(
            "concat",
            lambda xs, axis: np.concatenate(xs, axis),
            joined,
            ANY,
            lambda *xs, axis: torch.cat(xs, axis),
            (0,),
            listed=True,
        ),
        Op(
            "stack",
            lambda xs, axis: np.stack(xs, axis),
            stacked,
            ANY,
            lambda *xs, axis: torch.stack(xs, axis),
            (0,),
            listed=True,
        ),
        Op(
            "split",
            lambda x, axis, N: np.split(x, N, axis),
            parts,
            ANY,
            lambda x, axis, N: x.tensor_split(N, axis),
            (0,),
        ),
        Op("extract_patches", patches, images, ANY, None, (0,)),
        Op("gather", lambda x, indices, axis: np.take(x, indices, axis), gathers, ANY, torch_gather, (0,)),
        Op("sparse_to_dense", dense, places, ANY, torch_dense, (0,)),
        Op("one_hot", one_hot, hot, ANY),
        Op("arg_sort", sort, sorts, (*FLOATS, *INTS)),
        Op("top_k", top, tops, (*FLOATS, *INTS), lambda x, k: torch.topk(x, k)[0], (0,)),
        Op("identity", lambda x: x, unary(), ANY, torch.clone, (0,)),
        Op("stop_gradient", lambda x: x, unary(), ANY),
        Op("shape", lambda x: np.array(x.shape, "int64"), unary(), ANY),
        Op("zeros_like", np.zeros_like, unary(), ANY),
        Op(
            "fill",
            lambda dims, value: np.full(dims, np.asarray(value).reshape(())),
            filled,
            ANY,
            torch_fill,
            (1,),
        ),
    ]


def torch_gather(x: torch.Tensor, indices: Any, axis: int) -> torch.Tensor:
    """Parts by their positions, of PyTorch's tensors."""
    index = torch.as_tensor(indices).long()
    picked = torch.index_select(x, axis, index.reshape(-1) % x.shape[axis])
    axis %= x.ndim
    return picked.reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])


def torch_fill(dims: list[int], value: torch.Tensor) -> torch.Tensor:
    """One value everywhere, of PyTorch's tensors."""
    return value.reshape(()).expand(dims)


OPS = [*_pointwise(), *_reductions(), *_layout()]
