"""The two primitives that ops are in JAX: a call, and its derivative along tangents.

The derivative is linear, and knows its transpose: so one rule gives forward and reverse mode, as JAX's own
functions have it, and nothing of the one is computed for the other.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import PartitionSpec

from opsmith.jax import _sharding, _varying

_CACHED = 1024


class Bound(Protocol):
    """A call without its arrays. Equal ones are the same call."""

    def shapes(self, arrays: Sequence[Any]) -> list[jax.ShapeDtypeStruct]:
        """What it gives for arrays of these shapes and dtypes."""

    def emit(self, arrays: Sequence[Any]) -> list[Any]:
        """What its handler gives."""

    def typed(self, avals: Sequence[Any]) -> list[Any]:
        """What it gives, as JAX's types say it."""

    def division(self, arrays: Sequence[Any]) -> _sharding.Division | None:
        """How it may be divided over devices; `None` where it may not."""

    def derivative(self, arrays: Sequence[Any], outputs: Sequence[Any], has: list[bool]) -> Found | None:
        """The derivative along tangents of those arrays that have one; `None` where it is zero."""

    def batched(self, size: int, is_batched: list[bool], arrays: list[Any]) -> list[Any]:
        """What calls on each element of a batch give, the batch in front of all."""


class Derivative(Protocol):
    """A function that is linear in some of its arrays, the tangents, for each value of the others. Equal ones
    are the same function."""

    def shapes(self, fixed: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        """What it gives."""

    @property
    def specs(self) -> tuple[Any, ...] | None:
        """How the results are divided on a mesh of explicit axes; `None` on any other."""

    def part(self, there: Sequence[bool]) -> Derivative:
        """The same function of some tangents, where the others are zero."""

    def push(self, fixed: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        """The function."""

    def pull(self, fixed: Sequence[Any], tangents: Sequence[Any], arriving: Sequence[Any]) -> list[Any]:
        """Its transpose: what goes back to each tangent, from what arrives at each result. Of the tangents
        only types are known. `None` stands for zero."""


@dataclass(frozen=True)
class Found:
    """The derivative of a call."""

    function: Derivative
    fixed: list[Any]
    flows: list[bool]
    """Which outputs of the call have a tangent; it gives theirs."""


def call(bound: Bound, arrays: Sequence[Any]) -> list[Any]:
    """A call, traced; under no transformation it is compiled and run."""
    found: list[Any] = call_p.bind(*_alike(arrays), bound=bound)
    return found


def linear(function: Derivative, fixed: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    """A derivative, traced."""
    arrays = _alike([*fixed, *tangents])
    found: list[Any] = linear_p.bind(*arrays, function=function, count=len(fixed))
    return found


def _alike(arrays: Sequence[Any]) -> list[Any]:
    """What varies over some axes makes all of a call vary over them."""
    # JAX has numbers that are part of the program in the place of arrays.
    given = [x if hasattr(x, "shape") else jnp.asarray(x) for x in arrays]
    found: list[Any] = _varying.over(_varying.axes_of(given), given)
    return found


call_p = Primitive("opsmith_call")
call_p.multiple_results = True
linear_p = Primitive("opsmith_derivative")
linear_p.multiple_results = True


@functools.lru_cache(_CACHED)
def _compiled(bound: Bound) -> Callable[..., list[Any]]:
    return jax.jit(lambda *arrays: call_p.bind(*arrays, bound=bound))


def _run(*arrays: Any, bound: Bound) -> list[Any]:
    # There is no other way to run it.
    with jax.disable_jit(False):
        return _compiled(bound)(*arrays)


call_p.def_impl(_run)
call_p.def_abstract_eval(lambda *avals, bound: bound.typed(avals))


def _lower(context: Any, *values: Any, bound: Bound) -> Any:
    division = bound.division(context.avals_in) if _sharding.is_spread(context) else None
    function = division or (lambda *arrays: bound.emit(arrays))
    return mlir.lower_fun(function, multiple_results=True)(context, *values)


mlir.register_lowering(call_p, _lower)
_sharding.prepare(call_p, linear_p)


def _call_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, bound: Bound) -> tuple[Any, Any]:
    outputs = call_p.bind(*primals, bound=bound)
    has = [not _is_zero(tangent) for tangent in tangents]
    zeros = [_zero_of(x) for x in outputs]
    found = bound.derivative(primals, outputs, has) if any(has) else None
    if found is None:
        return outputs, zeros
    given = [tangent for tangent, is_there in zip(tangents, has, strict=True) if is_there]
    rest = iter(linear(found.function, found.fixed, given))
    both = zip(zeros, found.flows, strict=True)
    return outputs, [next(rest) if flows else zero for zero, flows in both]


def _call_batch(arrays: Sequence[Any], dims: Sequence[Any], *, bound: Bound) -> tuple[list[Any], list[int]]:
    size, is_batched, moved = _in_front(arrays, dims)
    outputs = bound.batched(size, is_batched, moved)
    return outputs, [0] * len(outputs)


ad.primitive_jvps[call_p] = _call_jvp
batching.primitive_batchers[call_p] = _call_batch


def _linear(*arrays: Any, function: Derivative, count: int) -> list[Any]:
    return function.push(arrays[:count], arrays[count:])


linear_p.def_impl(_linear)
linear_p.def_abstract_eval(
    lambda *avals, function, count: _varying.typed(
        function.shapes(avals[:count], avals[count:]), avals, function.specs
    )
)
mlir.register_lowering(linear_p, mlir.lower_fun(_linear, multiple_results=True))


def _linear_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, function: Derivative, count: int
) -> tuple[Any, Any]:
    outputs = linear_p.bind(*primals, function=function, count=count)
    fixed = primals[:count]
    terms: list[list[Any]] = []
    there = [not _is_zero(tangent) for tangent in tangents[count:]]
    if any(there):
        along = [tangent for tangent, is_there in zip(tangents[count:], there, strict=True) if is_there]
        terms.append(linear(function if all(there) else function.part(there), fixed, along))
    places = tuple(place for place in range(count) if not _is_zero(tangents[place]))
    if places:
        second = Along(function, count, places)
        terms.append(linear(second, primals, [tangents[place] for place in places]))
    if not terms:
        return outputs, [_zero_of(x) for x in outputs]
    return outputs, terms[0] if len(terms) == 1 else list(map(operator.add, *terms))


def _linear_transpose(arriving: Sequence[Any], *arrays: Any, function: Derivative, count: int) -> list[Any]:
    given = [None if _is_zero(x) else x for x in arriving]
    tangents = [x.aval if ad.is_undefined_primal(x) else jax.typeof(x) for x in arrays[count:]]
    none = [None] * len(arrays)
    if all(x is None for x in given):
        return none
    fixed = [x if hasattr(x, "shape") else jnp.asarray(x) for x in arrays[:count]]
    found = function.pull(fixed, tangents, given)
    back = [
        ad.Zero(aval) if x is None else _varying.as_typed(x, aval)
        for x, aval in zip(found, tangents, strict=True)
    ]
    open_ = [ad.is_undefined_primal(x) for x in arrays[count:]]
    return [*none[:count], *(x if is_open else None for x, is_open in zip(back, open_, strict=True))]


def _linear_batch(
    arrays: Sequence[Any], dims: Sequence[Any], *, function: Derivative, count: int
) -> tuple[list[Any], list[int]]:
    size, is_batched, moved = _in_front(arrays, dims)
    # Their transpose sums.
    tangents = [
        x if is_there else jnp.broadcast_to(x, (size, *x.shape))
        for x, is_there in zip(moved[count:], is_batched[count:], strict=True)
    ]
    outputs = linear(Batched(function, size, tuple(is_batched[:count])), moved[:count], tangents)
    return outputs, [0] * len(outputs)


ad.primitive_jvps[linear_p] = _linear_jvp
ad.primitive_transposes[linear_p] = _linear_transpose
batching.primitive_batchers[linear_p] = _linear_batch


@dataclass(frozen=True)
class Along:
    """How a derivative changes along what it is taken at."""

    of: Derivative
    count: int
    """How many fixed arrays that has. Those here are the same, and behind them its tangents."""
    places: tuple[int, ...]
    """Which of them change."""

    @property
    def specs(self) -> tuple[Any, ...] | None:
        """As `Derivative` says."""
        return self.of.specs

    def part(self, there: Sequence[bool]) -> Along:
        """As `Derivative` says."""
        places = tuple(place for place, is_there in zip(self.places, there, strict=True) if is_there)
        return replace(self, places=places)

    def _at(self, fixed: Sequence[Any], changed: Sequence[Any]) -> list[Any]:
        found = list(fixed[: self.count])
        for place, x in zip(self.places, changed, strict=True):
            found[place] = x
        return found

    def shapes(self, fixed: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        """As `Derivative` says."""
        return self.of.shapes(fixed[: self.count], fixed[self.count :])

    def push(self, fixed: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        """As `Derivative` says."""
        of = lambda *changed: self.of.push(self._at(fixed, changed), fixed[self.count :])  # noqa: E731
        found: list[Any] = jax.jvp(of, [fixed[place] for place in self.places], list(tangents))[1]
        return found

    def pull(self, fixed: Sequence[Any], tangents: Sequence[Any], arriving: Sequence[Any]) -> list[Any]:
        """Of the inner product of what arrives with `push`, which is that of `pull` with the tangents."""
        along = fixed[self.count :]
        likes = [jax.typeof(x) for x in along]

        def back(*changed: Any) -> list[Any]:
            found = self.of.pull(self._at(fixed, changed), likes, arriving)
            return [jnp.zeros_like(t) if x is None else x for x, t in zip(found, along, strict=True)]

        return list(jax.vjp(back, *(fixed[place] for place in self.places))[1](list(along)))


@dataclass(frozen=True)
class Batched:
    """A derivative for each element of a batch, which is in front of all tangents and results."""

    of: Derivative
    size: int
    is_batched: tuple[bool, ...]
    """Which of the fixed arrays have a batch."""

    @property
    def specs(self) -> tuple[Any, ...] | None:
        """As `Derivative` says."""
        specs = self.of.specs
        return None if specs is None else tuple(PartitionSpec(None, *spec) for spec in specs)

    def part(self, there: Sequence[bool]) -> Batched:
        """As `Derivative` says."""
        return replace(self, of=self.of.part(there))

    @property
    def _dims(self) -> list[int | None]:
        return [0 if is_there else None for is_there in self.is_batched]

    def shapes(self, fixed: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        """As `Derivative` says."""
        like = lambda x, has: jax.ShapeDtypeStruct(x.shape[1:] if has else x.shape, x.dtype)  # noqa: E731
        one = self.of.shapes(
            [like(x, has) for x, has in zip(fixed, self.is_batched, strict=True)],
            [like(x, True) for x in tangents],
        )
        return [jax.ShapeDtypeStruct((self.size, *x.shape), x.dtype) for x in one]

    def push(self, fixed: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        """As `Derivative` says."""
        each = jax.vmap(self.of.push, in_axes=(self._dims, 0), axis_size=self.size)
        found: list[Any] = each(list(fixed), list(tangents))
        return found

    def pull(self, fixed: Sequence[Any], tangents: Sequence[Any], arriving: Sequence[Any]) -> list[Any]:
        """As `Derivative` says."""
        likes = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in tangents]

        def one(fixed: list[Any], arriving: list[Any]) -> list[Any]:
            return self.of.pull(fixed, likes, arriving)

        each = jax.vmap(one, in_axes=(self._dims, 0), axis_size=self.size)
        found: list[Any] = each(list(fixed), list(arriving))
        return found


def _in_front(arrays: Sequence[Any], dims: Sequence[Any]) -> tuple[int, list[bool], list[Any]]:
    """The size of a batch, which of the arrays have it, and those with it in front."""
    is_batched = [dim is not None for dim in dims]
    both = list(zip(arrays, dims, is_batched, strict=True))
    size = next(x.shape[dim] for x, dim, is_there in both if is_there)
    return size, is_batched, [jnp.moveaxis(x, dim, 0) if is_there else x for x, dim, is_there in both]


def _is_zero(tangent: Any) -> bool:
    return isinstance(tangent, ad.Zero) or tangent.dtype == jax.dtypes.float0


def _zero_of(x: Any) -> Any:
    return ad.Zero(jax.typeof(x).to_tangent_aval())
