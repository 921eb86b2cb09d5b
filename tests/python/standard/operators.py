"""All standard operators: those of `table`, and those along a dim, over windows and named dims."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.lib.stride_tricks import sliding_window_view
from table import FLOATS, INTS, SPECIALS, Attributes, Case, Op, layouts, numbers, sort, sorts
from table import OPS as OTHERS

REAL = (*FLOATS, *INTS)


def wide(x: np.ndarray) -> np.ndarray:
    """Floats in double precision, and complex numbers of floats."""
    return x.astype({"f": "float64", "c": "complex128"}.get(x.dtype.kind, x.dtype))


def cumulative(function: Callable[..., Any], first: Callable[[Any], Any]) -> Callable[..., Any]:
    """A function of all numbers up to each, of NumPy's or PyTorch's, as the operators' attributes say it."""

    def reference(x: Any, axis: int = -1, exclusive: bool = False, reverse: bool = False) -> Any:
        is_torch = isinstance(x, torch.Tensor)
        flip = torch.flip if is_torch else np.flip
        if not is_torch:
            x = wide(x)
        y = function(flip(x, (axis,)) if reverse else x, axis)
        if exclusive and x.shape[axis]:
            before = y.narrow(axis, 0, 1) if is_torch else np.take(y, [0], axis)
            start = first(x.dtype)
            start = torch.full_like(before, start) if is_torch else np.full_like(before, start)
            rest = y.narrow(axis, 0, x.shape[axis] - 1) if is_torch else np.delete(y, -1, axis)
            y = torch.cat([start, rest], axis) if is_torch else np.concatenate([start, rest], axis)
        return flip(y, (axis,)) if reverse else y

    return reference


def lanes(of_none: bool = True) -> Callable[..., Iterator[Case]]:
    """Tensors, dims and orders. What is infinite of no numbers has no finite differences: of float64 it may
    be left out."""

    def cases(rng: np.random.Generator, dtype: str) -> Iterator[Case]:
        tries = [
            ((7,), 0),
            ((3, 17), -1),
            ((17, 3), 0),
            ((2, 5, 3), 1),
            ((2, 0), 1),
            ((0, 2), 1),
            ((40, 1), 0),
        ]
        for shape, axis in tries:
            for exclusive in (False, True)[: 1 if dtype == "float64" and not of_none else 2]:
                for reverse in (False, True):
                    for x in layouts(numbers(rng, dtype, shape)):
                        yield (x,), {"axis": axis, "exclusive": exclusive, "reverse": reverse}
        if dtype in FLOATS:
            yield (np.array(SPECIALS, dtype),), {}
            yield (np.array(SPECIALS[:6], dtype),), {"reverse": True, "exclusive": True}

    return cases


def windows(
    x: np.ndarray, size: list[int], strides: Any = (), padding: Any = (), dilations: Any = (), fill: Any = 0
) -> np.ndarray:
    """All windows: dims in front, one for each dim that windows go over, and the elements of each."""
    dims = len(size)
    padding = list(padding) or [0] * dims
    pairs = (
        list(zip(padding[::2], padding[1::2], strict=True))
        if len(padding) == 2 * dims
        else [(p, p) for p in padding]
    )
    strides, dilations = list(strides) or [1] * dims, list(dilations) or [1] * dims
    x = np.pad(x, [(0, 0)] * (x.ndim - dims) + pairs, constant_values=fill)
    reach = [(s - 1) * d + 1 for s, d in zip(size, dilations, strict=True)]
    view = sliding_window_view(x, reach, tuple(range(-dims, 0)))
    steps = [slice(None, None, step) for step in (*strides, *dilations)]
    return view[(..., *steps)]


def last(count: int) -> tuple[int, ...]:
    """The last dims."""
    return tuple(range(-count, 0))


def conv(x: np.ndarray, filters: np.ndarray, groups: int = 1, **attributes: Any) -> np.ndarray:
    """The convolution as its definition says, in double precision."""
    size = filters.shape[2:]
    dims = len(size)
    seen = windows(wide(x), size, **attributes)
    front, counts = seen.shape[: -2 * dims - 1], seen.shape[-2 * dims : -dims]
    seen = seen.reshape(*front, groups, x.shape[-dims - 1] // groups, *counts, *size)
    kernels = wide(filters).reshape(groups, filters.shape[0] // groups, *filters.shape[1:])
    letters = "uvw"[:dims], "xyz"[:dims]
    y = np.einsum(f"...gc{''.join(letters)},goc{letters[1]}->...go{letters[0]}", seen, kernels)
    return y.reshape(*front, filters.shape[0], *counts)


def split(padding: list[int], dims: int) -> list[int]:
    """A padding as `F.pad` takes it."""
    pairs = padding if len(padding) == 2 * dims else [p for p in padding for _ in range(2)]
    return [number for at in range(dims - 1, -1, -1) for number in pairs[2 * at : 2 * at + 2]]


def torch_conv(
    x: Any, filters: Any, strides: Any, padding: Any = (), dilations: Any = (), groups: int = 1
) -> Any:
    """The same of PyTorch's."""
    dims = len(strides)
    x = F.pad(x, split(list(padding) or [0] * dims, dims))
    function = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]
    shape = x.shape
    y = function(
        x.reshape(-1, *shape[-dims - 1 :]), filters, None, list(strides), 0, list(dilations) or 1, groups
    )
    return y.reshape(*shape[: -dims - 1], *y.shape[1:])


def torch_max_pool(x: Any, ksize: Any, strides: Any = (), padding: Any = (), dilations: Any = ()) -> Any:
    """The same of PyTorch's."""
    dims = len(ksize)
    x = F.pad(x, split(list(padding) or [0] * dims, dims), value=-np.inf)
    function = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[dims - 1]
    shape = x.shape
    y = function(x.reshape(-1, 1, *shape[-dims:]), list(ksize), list(strides) or 1, 0, list(dilations) or 1)
    return y.reshape(*shape[:-dims], *y.shape[2:])


def max_pool(x: np.ndarray, ksize: list[int], **attributes: Any) -> np.ndarray:
    """The largest number of each window."""
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    return windows(x, ksize, **attributes, fill=least).max(last(len(ksize)))


def avg_pool(x: np.ndarray, ksize: list[int], count_padding: bool = True, **attributes: Any) -> np.ndarray:
    """The mean of each window."""
    sums = windows(wide(x), ksize, **attributes).sum(last(len(ksize)))
    if count_padding:
        return sums / np.prod(ksize)
    return sums / windows(np.ones(x.shape), ksize, **attributes).sum(last(len(ksize)))


def convolutions(rng: np.random.Generator, dtype: str) -> Iterator[Case]:
    """Images, filters and steps, over one to three dims."""
    tries: list[tuple[tuple[int, ...], tuple[int, ...], Attributes]] = [
        ((2, 3, 9), (4, 3, 3), {"strides": [2], "padding": [1]}),
        ((4, 7), (6, 2, 2), {"strides": [1], "groups": 2, "dilations": [3]}),
        ((1, 2, 5, 6), (3, 2, 2, 3), {"strides": [1, 1]}),
        ((2, 4, 6, 5), (4, 1, 3, 3), {"strides": [2, 1], "padding": [1, 0, 2, 1], "groups": 4}),
        ((2, 3, 4, 4), (5, 3, 1, 1), {"strides": [1, 1]}),
        (
            (1, 1, 2, 3, 4, 3),
            (2, 2, 2, 1, 2),
            {"strides": [1, 2, 1], "padding": [1, 0, 1], "dilations": [2, 1, 1]},
        ),
        ((2, 3, 20, 20), (8, 3, 3, 3), {"strides": [1, 1], "padding": [1, 1]}),
        ((0, 3, 4, 4), (2, 3, 2, 2), {"strides": [1, 1]}),
    ]
    for image, filters, attributes in tries:
        x, f = numbers(rng, dtype, image, -1, 1), numbers(rng, dtype, filters, -1, 1)
        for one, other in zip(layouts(x), layouts(f), strict=False):
            yield (one, other), attributes


def pools(means: bool) -> Callable[..., Iterator[Case]]:
    """Images and windows, over one to three dims."""

    def cases(rng: np.random.Generator, dtype: str) -> Iterator[Case]:
        tries: list[tuple[tuple[int, ...], Attributes]] = [
            ((2, 3, 9), {"ksize": [3], "strides": [2], "padding": [1]}),
            ((8,), {"ksize": [2], "dilations": [3]}),
            ((2, 2, 5, 6), {"ksize": [2, 3]}),
            ((2, 6, 7), {"ksize": [2, 2], "strides": [2, 2], "padding": [0, 1, 1, 0]}),
            ((2, 3, 4, 5), {"ksize": [2, 1, 3], "strides": [1, 2, 2], "padding": [1, 0, 1]}),
            ((0, 4, 4), {"ksize": [2, 2]}),
            ((3, 60, 50), {"ksize": [3, 3], "strides": [1, 1], "padding": [1, 1]}),
        ]
        for shape, attributes in tries:
            for x in layouts(numbers(rng, dtype, shape)):
                yield (x,), attributes
                if means:
                    yield (x,), {**attributes, "count_padding": False}

    return cases


def in_order(x: np.ndarray, axis: int = -1, descending: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Numbers in order, and their positions."""
    positions = sort(x, axis, descending)
    return np.take_along_axis(x, positions, axis), positions


def ordered(rng: np.random.Generator, dtype: str) -> Iterator[Case]:
    """As those of `arg_sort`; of float64, which gradients are checked of, without equal numbers."""
    if dtype != "float64":
        yield from sorts(rng, dtype)
        return
    for shape, axis in [((7,), 0), ((3, 20), -1), ((20, 3), 0), ((2, 5, 3), 1), ((2, 0), 1)]:
        for x in layouts(numbers(rng, dtype, shape)):
            yield (x,), {"axis": axis, "descending": bool(rng.random() < 0.5)}


def unique(x: np.ndarray) -> tuple[np.ndarray, ...]:
    """The different numbers, where each is, and how often."""
    values, inverse, counts = np.unique(x, return_inverse=True, return_counts=True)
    return values, inverse.reshape(x.shape), counts


def repeated(rng: np.random.Generator, dtype: str) -> Iterator[Case]:
    """Tensors some of whose numbers are equal."""
    for shape in [(), (9,), (4, 30), (0,), (3, 4, 5)]:
        for x in layouts(np.round(numbers(rng, dtype, shape)).astype(dtype)):
            yield (x,), {}
    if dtype in FLOATS:
        yield (np.array(SPECIALS * 2, dtype),), {}


def products(rng: np.random.Generator, dtype: str) -> Iterator[Case]:
    """Equations and tensors."""
    for equation, shapes in [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("ij,kj", [(3, 4), (5, 4)]),
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (3, 4, 2)]),
        ("ii->i", [(4, 4)]),
        ("bii->b", [(3, 4, 4)]),
        ("ij->ji", [(3, 5)]),
        ("ijk->j", [(2, 3, 4)]),
        ("i,j->ij", [(3,), (4,)]),
        ("i,i->", [(300,), (300,)]),
        ("bi,bi->b", [(5, 7), (5, 7)]),
        ("ij,ij->ij", [(3, 4), (3, 4)]),
        ("bhqd,bhkd->bhqk", [(2, 2, 3, 4), (2, 2, 5, 4)]),
        ("ij,jk,kl->il", [(3, 4), (4, 2), (2, 5)]),
        ("ab,bc,ca->", [(3, 4), (4, 2), (2, 3)]),
        ("iji,j->i", [(3, 2, 3), (2,)]),
        ("ij,k->ik", [(3, 4), (2,)]),
        ("a...,a->...", [(3, 2, 4), (3,)]),
        ("ij,jk->ik", [(3, 0), (0, 5)]),
        (",ij->ij", [(), (2, 3)]),
    ]:
        for turned in (False, True):
            given = [numbers(rng, dtype, shape, -1, 1) for shape in shapes]
            yield ([x.T.copy().T if turned else x for x in given],), {"equation": equation}


def einsum(xs: list[np.ndarray], equation: str) -> np.ndarray:
    """The product, of floats in double precision."""
    return np.asarray(np.einsum(equation, *(wide(x) for x in xs)))


def _along() -> list[Op]:
    def added(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, axis: function(x, axis, dtype=x.dtype)

    def most(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, axis: function(x, axis).values

    def least(dtype: Any) -> Any:
        return -np.inf if getattr(dtype, "kind", "f") == "f" else np.iinfo(dtype).min

    def greatest(dtype: Any) -> Any:
        return np.inf if getattr(dtype, "kind", "f") == "f" else np.iinfo(dtype).max

    first = (0,)
    return [
        Op(
            "cum_sum",
            cumulative(added(np.cumsum), lambda _: 0),
            lanes(),
            (*REAL, "complex64", "complex128"),
            cumulative(torch.cumsum, lambda _: 0),
            first,
            tolerance=4,
        ),
        Op(
            "cum_prod",
            cumulative(added(np.cumprod), lambda _: 1),
            lanes(),
            (*REAL, "complex64", "complex128"),
            cumulative(torch.cumprod, lambda _: 1),
            first,
            tolerance=20,
        ),
        Op(
            "cum_max",
            cumulative(np.maximum.accumulate, least),
            lanes(False),
            REAL,
            cumulative(most(torch.cummax), least),
            first,
        ),
        Op(
            "cum_min",
            cumulative(np.minimum.accumulate, greatest),
            lanes(False),
            REAL,
            cumulative(most(torch.cummin), greatest),
            first,
        ),
        Op(
            "sort",
            in_order,
            ordered,
            REAL,
            lambda x, axis, descending: torch.sort(x, axis, descending)[0],
            first,
        ),
        Op("unique", unique, repeated, (*REAL, "bool")),
    ]


def _over() -> list[Op]:
    return [
        Op("conv", conv, convolutions, FLOATS, torch_conv, (0, 1), tolerance=20),
        Op("max_pool", max_pool, pools(means=False), REAL, torch_max_pool, (0,)),
        Op("avg_pool", avg_pool, pools(means=True), FLOATS, None, (0,), tolerance=4),
        Op(
            "einsum",
            einsum,
            products,
            REAL,
            lambda *xs, equation: torch.einsum(equation, *xs),
            (0,),
            tolerance=20,
            listed=True,
        ),
    ]


OPS = [*OTHERS, *_along(), *_over()]
