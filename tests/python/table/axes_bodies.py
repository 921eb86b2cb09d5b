"""Random bodies over named axes: their Rust, and the same formula for any array library.

A formula is evaluated in the plainest way: every number is an array with a dim for each of the four axes,
of size 1 where it does not lie on the axis, and a fold keeps its dim. `Arrays` says how a library does it.
"""

from __future__ import annotations

import inspect
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import opsmith
import pytest
from numpy.typing import NDArray
from opsmith import jit

AXES = "ijkl"
COUNT = 200
SIZES = {"i": 5, "j": 3, "k": 4, "l": 2}
CACHE = Path(os.environ.get("OPSMITH_LIB_DIR", Path(__file__).parents[3] / "target" / "release")).parent


@dataclass
class Term:
    """A part of a formula."""

    rust: str
    axes: frozenset[str]
    value: Callable[[Arrays, dict[str, Any]], Any]
    gone: frozenset[str] = frozenset()
    """Along which axes a part of it has been folded."""


@dataclass
class Body:
    """An op and what it is to compute."""

    name: str
    rust: str
    inputs: dict[str, str]
    outputs: list[tuple[str, Term]]

    def shapes(self, sizes: dict[str, int]) -> list[tuple[int, ...]]:
        """The shapes of the inputs."""
        return [tuple(sizes[axis] for axis in axes) for axes in self.inputs.values()]

    def numbers(self, sizes: dict[str, int], seed: int) -> list[NDArray[np.float64]]:
        """Inputs between 0.2 and 1.5, of which no two are equal."""
        generator = np.random.default_rng(seed)
        return [np.asarray(generator.uniform(0.2, 1.5, shape)) for shape in self.shapes(sizes)]

    def expected(self, arrays: Arrays, inputs: list[Any]) -> list[Any]:
        """The outputs by another library."""
        placed = {
            name: arrays.reshape(array, [arrays.sizes[axis] if axis in axes else 1 for axis in AXES], axes)
            for (name, axes), array in zip(self.inputs.items(), inputs, strict=True)
        }
        return [arrays.result(term.value(arrays, placed), axes) for axes, term in self.outputs]


class Arrays:
    """A library of arrays: what formulas need of it."""

    def __init__(self, sizes: dict[str, int], xp: Any) -> None:
        self.sizes, self.xp = sizes, xp

    def reshape(self, array: Any, shape: list[int], axes: str) -> Any:
        """The array with all four dims, in order."""
        order = sorted(range(len(axes)), key=lambda dim: axes[dim])
        return self.xp.reshape(self.transpose(array, order), tuple(shape))

    def transpose(self, array: Any, order: list[int]) -> Any:
        """Other order of dims."""
        return self.xp.transpose(array, tuple(order)) if order else array

    def result(self, value: Any, axes: str) -> Any:
        """What lies on these axes, in their order."""
        value = self.xp.reshape(
            self.broadcast(value, [self.sizes[a] if a in axes else 1 for a in AXES]),
            tuple(self.sizes[axis] for axis in sorted(axes)),
        )
        return self.transpose(value, [sorted(axes).index(axis) for axis in axes])

    def broadcast(self, value: Any, shape: list[int]) -> Any:
        """To a shape."""
        return self.xp.broadcast_to(value, tuple(shape))

    def full(self, value: Any, axis: str) -> Any:
        """What is to be folded along an axis lies on it."""
        shape = list(value.shape)
        shape[AXES.index(axis)] = self.sizes[axis]
        return self.broadcast(value, shape)

    def fold(self, name: str, value: Any, axis: str) -> Any:
        """A fold, whose dim is kept."""
        return getattr(self.xp, name)(self.full(value, axis), axis=AXES.index(axis), keepdims=True)

    def log_sum_exp(self, value: Any, axis: str) -> Any:
        """By its definition, without overflow."""
        largest = self.fold("amax", value, axis)
        return self.xp.log(self.fold("sum", self.xp.exp(value - largest), axis)) + largest

    def index(self, axis: str) -> Any:
        """The positions along an axis."""
        shape = [self.sizes[axis] if other == axis else 1 for other in AXES]
        return self.constant(np.arange(self.sizes[axis], dtype=np.float64).reshape(shape))

    def constant(self, value: NDArray[np.float64]) -> Any:
        """An array that is no input."""
        return self.xp.asarray(value)


class Torch(Arrays):
    """PyTorch."""

    def transpose(self, array: Any, order: list[int]) -> Any:
        """Other order of dims."""
        return array.permute(order)

    def fold(self, name: str, value: Any, axis: str) -> Any:
        """A fold, whose dim is kept."""
        return getattr(self.xp, name)(self.full(value, axis), dim=AXES.index(axis), keepdim=True)


class TensorFlow(Arrays):
    """TensorFlow's own functions."""

    def log_sum_exp(self, value: Any, axis: str) -> Any:
        """TensorFlow's own."""
        return self.xp.reduce_logsumexp(self.full(value, axis), axis=AXES.index(axis), keepdims=True)

    def transpose(self, array: Any, order: list[int]) -> Any:
        """Other order of dims."""
        return self.xp.transpose(array, order)

    def fold(self, name: str, value: Any, axis: str) -> Any:
        """A fold, whose dim is kept."""
        names = {"sum": "reduce_sum", "mean": "reduce_mean", "amax": "reduce_max", "amin": "reduce_min"}
        fold = getattr(self.xp, names[name])
        return fold(self.full(value, axis), axis=AXES.index(axis), keepdims=True)

    def constant(self, value: NDArray[np.float64]) -> Any:
        """An array that is no input."""
        return self.xp.constant(value)


def sigmoid(arrays: Arrays, x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + arrays.xp.exp(-x))


UNARY: dict[str, Callable[[Arrays, Any], Any]] = {
    "tanh": lambda a, x: a.xp.tanh(x),
    "sin": lambda a, x: a.xp.sin(x),
    "cos": lambda a, x: a.xp.cos(x),
    "sigmoid": sigmoid,
    "abs": lambda a, x: a.xp.abs(x),
}


class Generator:
    """Draws formulas."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        axes = self.random.sample(AXES, self.random.randint(1, 4))
        self.inputs = {}
        for name in "xyw"[: self.random.randint(1, 3)]:
            own = self.random.sample(axes, self.random.randint(1, min(3, len(axes))))
            self.inputs[name] = "".join(own)
        self.axes = sorted({axis for own in self.inputs.values() for axis in own})

    def leaf(self) -> Term:
        """An input, seldom a constant or a position."""
        kind = self.random.random()
        if kind < 0.06:
            axis = self.random.choice(self.axes)
            return Term(
                f"(S::index({axis}).number() * 0.25)", frozenset(axis), lambda a, _: a.index(axis) * 0.25
            )
        if kind < 0.12:
            value = round(self.random.uniform(0.2, 2.0), 2)
            number = np.full([1] * len(AXES), value)
            return Term(f"S::of({value})", frozenset(), lambda a, _: a.constant(number))
        name = self.random.choice(list(self.inputs))
        return Term(name, frozenset(self.inputs[name]), lambda _, given: given[name])

    def fold(self, term: Term) -> Term:
        """Over one of the axes that it lies on, seldom over another, never again over one that is gone."""
        others = [axis for axis in self.axes if axis in term.axes or axis not in term.gone]
        axes = sorted(term.axes) if term.axes and self.random.random() < 0.95 else others
        return self.fold_over(term, self.random.choice(axes)) if axes else term

    def fold_over(self, term: Term, axis: str) -> Term:
        name = self.random.choice(["sum", "sum", "mean", "amax", "amin", "log_sum_exp"])
        rust, left, gone = f"{term.rust}.{name}({axis})", term.axes - {axis}, term.gone | {axis}
        if name == "log_sum_exp":
            return Term(rust, left, lambda a, given: a.log_sum_exp(term.value(a, given), axis), gone)
        return Term(rust, left, lambda a, given: a.fold(name, term.value(a, given), axis), gone)

    def term(self, depth: int) -> Term:
        """A formula of some depth."""
        if depth == 0:
            return self.leaf()
        kind = self.random.random()
        if kind < 0.2:
            name, x = self.random.choice(list(UNARY)), self.term(depth - 1)
            return Term(
                f"{x.rust}.{name}()", x.axes, lambda a, given: UNARY[name](a, x.value(a, given)), x.gone
            )
        if kind < 0.5:
            return self.fold(self.term(depth - 1))
        x, y = self.term(depth - 1), self.term(depth - 1)
        axes, gone = x.axes | y.axes, x.gone | y.gone
        if kind < 0.6:
            return Term(
                f"S::select({x.rust}.lt({y.rust}), {x.rust}, {y.rust} * 0.5)",
                axes,
                lambda a, given: a.xp.where(
                    x.value(a, given) < y.value(a, given), x.value(a, given), y.value(a, given) * 0.5
                ),
                gone,
            )
        if kind < 0.68:
            return Term(
                f"({x.rust} / ({y.rust} * {y.rust} + 1.0))",
                axes,
                lambda a, given: x.value(a, given) / (y.value(a, given) * y.value(a, given) + 1.0),
                gone,
            )
        sign = self.random.choice("+-*")
        return Term(
            f"({x.rust} {sign} {y.rust})",
            axes,
            lambda a, given: binary(sign, x.value(a, given), y.value(a, given)),
            gone,
        )

    def output(self) -> tuple[str, Term]:
        """A formula on at most two axes, in any order, and at least the inputs' part of it."""
        term = self.term(self.random.randint(2, 5))
        while len(term.axes) > 2 or (term.axes and self.random.random() < 0.25):
            term = self.fold_over(term, self.random.choice(sorted(term.axes)))
        axes = sorted(term.axes)
        self.random.shuffle(axes)
        return "".join(axes), term

    def body(self, name: str) -> Body:
        """An op."""
        outputs = [self.output() for _ in range(self.random.choice([1, 1, 2]))]
        sides = [
            ",".join(f"({','.join(axes)})" for axes in side)
            for side in (self.inputs.values(), [axes for axes, _ in outputs])
        ]
        names = ["z"] if len(outputs) == 1 else ["z", "u"]
        result = "S" if len(outputs) == 1 else "(S, S)"
        value = outputs[0][1].rust if len(outputs) == 1 else f"({outputs[0][1].rust}, {outputs[1][1].rust})"
        arguments = ", ".join(f"{own}: S" for own in self.inputs)
        rust = (
            f'#[body("{sides[0]}->{sides[1]}", outputs = [{", ".join(names)}])]\n'
            f"#[allow(unused_variables, clippy::all)]\n"
            f"fn {name}<S: Indexed>({arguments}) -> {result} {{\n    {value}\n}}\n"
        )
        return Body(name, rust, dict(self.inputs), outputs)


def binary(sign: str, x: Any, y: Any) -> Any:
    """Arithmetic."""
    return x + y if sign == "+" else x - y if sign == "-" else x * y


def bodies() -> list[Body]:
    """The random bodies, the same in every run."""
    return [Generator(seed).body(f"random{seed}") for seed in range(COUNT)]


WRITTEN = """
#[body("(i,k),(j,k)->(i,j)")]
fn cosine_distance<S: Indexed>(x: S, y: S) -> S {
    S::of(1.0) - (x * y).sum(k) / ((x * x).sum(k) * (y * y).sum(k)).sqrt()
}

#[body("(i,k),(j,k)->(i,j)")]
fn radial_basis<S: Indexed>(x: S, y: S, #[attr(default = 1.0)] gamma: S) -> S {
    (((x - y) * (x - y)).sum(k) * -gamma).exp()
}

#[body("(i,j)->(i)")]
fn log_sum_exp<S: Indexed>(x: S) -> S {
    x.log_sum_exp(j)
}

#[body("(i,k),(j,k)->(i)")]
fn nearest<S: Indexed>(x: S, y: S) -> S::Index {
    ((x - y) * (x - y)).sum(k).argmin(j)
}

#[body("(i,k),(j,k)->(i)")]
fn nearest_distance<S: Indexed>(x: S, y: S) -> S {
    (x - y).abs().sum(k).amin(j)
}

#[body("(i,k),(j,k),(j,e)->(i,e)")]
fn attention<S: Indexed>(query: S, key: S, value: S, #[attr(default = true)] causal: bool) -> S {
    let fit = (query * key).sum(k) / S::count(k).sqrt();
    let above = S::select(S::index(j).gt(S::index(i)), S::of(f64::NEG_INFINITY), fit);
    let fit = if causal { above } else { fit };
    let weight = (fit - fit.amax(j).detached()).exp();
    (weight * value).sum(j) / weight.sum(j)
}

#[body("(i,j)->(i)")]
fn argmax<S: Indexed>(x: S) -> S::Index {
    x.argmax(j)
}

#[body("(i,c),(i)->(i)")]
fn cross_entropy<S: Indexed>(x: S, label: S::Index) -> S {
    x.log_sum_exp(c) - S::select(S::index(c).eq(label), x, S::of(0.0)).sum(c)
}

#[body("(i,j),(i)->(i)")]
fn mean_of_first<S: Indexed>(x: S, length: S::Index) -> S {
    let there = S::index(j).lt(length);
    S::select(there, x, S::of(0.0)).sum(j) / there.count(j)
}

#[body("(i,j),(i,j)->(i,j)")]
fn masked_softmax<S: Indexed>(x: S, keep: S::Mask) -> S {
    let x = S::select(keep, x, S::of(f64::NEG_INFINITY));
    let e = (x - x.amax(j).detached()).exp();
    e / e.sum(j)
}

#[body("(i,k),(j,k)->(i,j)")]
fn are_near<S: Indexed>(x: S, y: S, #[attr(default = 1.0)] radius: S) -> S::Mask {
    ((x - y) * (x - y)).sum(k).lt(radius * radius)
}

#[body("(i,j)->(i),(i),(i),(i)", outputs = [total, mean, most, least])]
fn folds<S: Indexed>(x: S) -> (S, S, S, S) {
    (x.sum(j), x.mean(j), x.amax(j), x.amin(j))
}

#[body("(i,j)->(i)")]
fn product<S: Indexed>(x: S) -> S {
    x.prod(j)
}

#[reduce(axes = any)]
fn product_of_rows<R: Rows>(x: R::Each) -> R::One {
    x.prod()
}
"""
"""Bodies that people write."""


def all_outputs(function: Any, *inputs: Any, **attrs: Any) -> tuple[NDArray[Any], ...]:
    """All outputs of an op, those too that it saves for its gradient and that functions do not return."""
    made = function.__globals__["_native"](*inputs, **attrs)
    return tuple(map(np.asarray, made)) if isinstance(made, tuple) else (np.asarray(made),)


def taken(function: Any, gradient: Any, inputs: list[Any], weights: list[Any]) -> list[NDArray[Any]]:
    """What a body's gradient op takes: inputs, outputs that it reads, what is saved, and output gradients."""
    made = all_outputs(function, *inputs)
    results = ["z", "u"][: len(weights)]
    saved = [f"saved_{number}" for number in range(1, len(made) - len(weights) + 1)]
    given = dict(zip([*results, *saved], made, strict=True))
    given |= dict(zip([f"{name}_grad" for name in results], weights, strict=True))
    names = list(inspect.signature(gradient).parameters)
    return [*inputs, *(given[name] for name in names[len(inputs) :] if name in given)]


def build() -> opsmith.Library:
    """Their library, compiled unless it has been before."""
    source = "\n".join([WRITTEN, *(body.rust for body in bodies())])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPSMITH_CACHE_DIR", str(CACHE / "tests" / "jit"))
        return jit.load_inline("random_axes", source)
