"""An op as a differentiable function: `custom_vjp` around its handler, wired from the definition."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import CustomVJPPrimal, SymbolicZero, zero_from_primal

from opsmith import _registered
from opsmith._definition import Arg, Op
from opsmith._errors import UnimplementedError
from opsmith.jax import _varying
from opsmith.jax._attributes import plain
from opsmith.jax._constants import Constant
from opsmith.jax._op import ALL, JaxOp, Value

_CACHED = 256

_DIGIT = 16
"""How many truths a dim holds."""

Function = Callable[..., tuple[Value, ...]]
"""Takes the inputs of an op, and gives its outputs as `JaxOp.call` does."""


@jax.tree_util.register_static
@dataclass(frozen=True)
class _Static:
    """What backward has to know of a call and is no array. JAX asks for it once for all the ways in which the
    call is differentiated, so nothing here may depend on which inputs that is by."""

    dtypes: tuple[tuple[str, ...] | None, ...]
    """For each input those of its tensors; `None` for one that is absent."""
    zeros: tuple[tuple[Any, ...] | None, ...]
    """What a gradient of each would be, as JAX describes it."""


class Differentiable:
    """The functions of an op, one for each set of attributes: what JAX keeps of a function is found again."""

    def __init__(self, op: JaxOp, others: Mapping[str, Differentiable]) -> None:
        self.op = op
        self._others = others
        self._cached = functools.lru_cache(_CACHED)(self._function)
        self.function = self._newest if _registered.may_register(op.definition) else self._cached

    def _newest(self, attrs: tuple[Any, ...], wanted: int = ALL) -> Function:
        """The function with the gradient that is registered now."""
        return self._cached(attrs, wanted, _registered.find(self.op.library, self.op.definition))

    def _function(
        self, attrs: tuple[Any, ...], wanted: int = ALL, registered: _registered.Function | None = None
    ) -> Function:
        """The function for these canonical attributes, compiled when it is called on arrays."""
        function: Function = functools.partial(self._call, attrs, wanted)
        # JAX allows no effects inside of `custom_vjp`.
        if not self.op.definition.stateful:
            function = self._differentiable(attrs, wanted, registered)
        name = self.op.definition.snake_name

        def call(*inputs: Value) -> tuple[Value, ...]:
            # Outside of `custom_vjp`: what is cast to vary is differentiated by JAX, which sums its gradient.
            return function(*_varying.over(_varying.axes_of(inputs), inputs))

        call.__name__ = call.__qualname__ = name
        compiled = jax.jit(call, inline=True)

        def named(*inputs: Value) -> tuple[Value, ...]:
            try:
                outputs: tuple[Value, ...] = compiled(*inputs)
                return outputs
            except TypeError as error:
                # JAX's own message does not tell of which function.
                if "custom_vjp" in str(error) and "forward-mode" in str(error):
                    raise TypeError(
                        f"{self.op.definition.name}: cannot be differentiated in forward mode (jax.jvp, "
                        "jax.jacfwd), only in reverse mode (jax.grad, jax.vjp, jax.jacrev)"
                    ) from error
                raise

        return named

    def _call(self, attrs: tuple[Any, ...], wanted: int, *inputs: Value) -> tuple[Value, ...]:
        if self.op.definition.stateful and not self.op.definition.differentiable:
            inputs = jax.lax.stop_gradient(inputs)
        return self.op.call(inputs, attrs, wanted)

    def _differentiable(
        self, attrs: tuple[Any, ...], wanted: int, registered: _registered.Function | None
    ) -> Function:
        function = jax.custom_vjp(functools.partial(self._call, attrs, wanted))

        def forward(*primals: Value) -> tuple[tuple[Value, ...], Any]:
            inputs = _map(lambda primal: primal.value, primals)
            # Not the handler itself: who differentiates the gradient again differentiates this.
            outputs = function(*inputs)
            perturbed = _map(lambda primal: primal.perturbed, primals)
            needed = [any(jax.tree.leaves(group)) for group in perturbed]
            traced = [None if isinstance(x, Constant) else x for x in inputs]
            names = _map(lambda x: x.dtype.name, traced)
            both = zip(inputs, names, strict=True)
            dtypes = _grouped([x.dtype.name if isinstance(x, Constant) else name for x, name in both])
            zeros = _grouped(_map(lambda x: zero_from_primal(x, symbolic_zeros=True).aval, traced))
            saved = self._saved(inputs, outputs) if registered is None else [inputs, list(outputs)]
            return outputs, (saved, _as_shape(needed), _Static(dtypes, zeros))

        def backward(residuals: Any, gradients: tuple[Value, ...]) -> tuple[Value, ...]:
            saved, needed, static = residuals
            needs = _from_shape(needed)
            if registered is None:
                found = self._backward(attrs, saved, needs, static, gradients)
            else:
                found = self._composed(attrs, registered, saved, needs, gradients)
            # Zeros that are there, not `None`: JAX 0.5 wants the same structure every time.
            return tuple(
                _filled(*each) for each in zip(self.op.definition.inputs, found, static.zeros, strict=True)
            )

        function.defvjp(forward, backward, symbolic_zeros=True)
        return function

    def _saved(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> list[Value]:
        """What the gradient op takes of the forward call, and nothing else."""
        wiring = self.op.definition.gradient
        groups = {"input": inputs, "output": outputs}
        return (
            [groups[kind][position] for kind, position in wiring.inputs if kind in groups] if wiring else []
        )

    def _backward(
        self,
        attrs: tuple[Any, ...],
        saved: list[Value],
        needed: list[bool],
        static: _Static,
        gradients: tuple[Value, ...],
    ) -> tuple[Value, ...]:
        op = self.op.definition
        none = (None,) * len(op.inputs)
        leaves = jax.tree.leaves(gradients, is_leaf=_is_zero)
        if not op.differentiable or all(map(_is_zero, leaves)):
            return none
        if op.gradient is None or any(arg.ref for arg in op.inputs):
            raise UnimplementedError(
                f"{op.name}: has no gradient, so nothing can be differentiated through it"
            )
        wanted = sum(1 << i for i, target in enumerate(op.gradient.outputs) if needed[target])
        if not wanted:
            return none
        gradient = self._others[op.gradient.op]
        arguments = _gradient_inputs(op, gradient.op.definition, saved, gradients)
        given = _gradient_attrs(op, gradient.op.definition, attrs, static)
        has_choice = gradient.op.definition.has_optional_outputs
        answer = gradient.function(given, wanted if has_choice else ALL)(*arguments)
        found = dict(zip(op.gradient.outputs, answer, strict=True))
        return tuple(found.get(i) if needed[i] else None for i in range(len(op.inputs)))

    def _composed(
        self,
        attrs: tuple[Any, ...],
        function: _registered.Function,
        saved: list[Value],
        needed: list[bool],
        gradients: tuple[Value, ...],
    ) -> tuple[Value, ...]:
        """The gradient of each input by a function that a user has registered."""
        op = self.op.definition
        if not any(needed) or all(map(_is_zero, jax.tree.leaves(gradients, is_leaf=_is_zero))):
            return (None,) * len(op.inputs)
        inputs = [jnp.asarray(x) if isinstance(x, Constant) else x for x in saved[0]]
        outputs = saved[1]
        arriving = [
            None
            if position in op.constants
            else jax.tree.map(lambda like, grad: _arriving(grad, like), likes, grads)
            for position, (likes, grads) in enumerate(zip(outputs, gradients, strict=True))
        ]
        attributes = {
            attr.name: plain(op, attr, value) for attr, value in zip(op.call_attrs, attrs, strict=True)
        }
        groups = _registered.evaluate(op, function, inputs, outputs, attributes, arriving, _mismatch)
        # JAX wants the gradient of what varies to vary too.
        groups = _varying.over(_varying.axes_of(saved), groups)
        return tuple(
            None if not needed[i] else groups[i] if arg.is_list else groups[i][0]
            for i, arg in enumerate(op.inputs)
        )


def _arriving(grad: Value, like: Value) -> Value:
    # Who asks for a `vjp` may give NumPy arrays.
    return jnp.asarray(_materialised(grad)) if jnp.issubdtype(like.dtype, jnp.inexact) else None


def _mismatch(tensor: Value, gradient: object) -> str | None:
    """What is wrong with the gradient of an array."""
    if not jnp.issubdtype(tensor.dtype, jnp.inexact):
        return f"must be None, for the input is {tensor.dtype}"
    if not isinstance(gradient, jax.Array):
        return f"must be a JAX array or None, got {type(gradient).__name__}"
    if (gradient.dtype, gradient.shape) == (tensor.dtype, tensor.shape):
        return None
    return f"must be {_description(tensor)} as the input is, got {_description(gradient)}"


def _description(tensor: Value) -> str:
    return f"{tensor.dtype} of shape {tensor.shape}"


def _filled(arg: Arg, found: Value, zeros: tuple[Any, ...] | None) -> Value:
    if zeros is None:
        return found
    if not arg.is_list:
        return SymbolicZero(zeros[0]) if found is None else found
    given = [None] * len(zeros) if found is None else found
    return [SymbolicZero(aval) if x is None else x for x, aval in zip(given, zeros, strict=True)]


def _as_shape(truths: list[bool]) -> np.ndarray[Any, Any]:
    """An array without elements whose shape tells: of what backward is given, only arrays may depend on which
    inputs a call is differentiated by, and only shapes are known when it is traced."""
    digits = [truths[i : i + _DIGIT] for i in range(0, len(truths), _DIGIT)]
    return np.zeros((0, *(sum(truth << i for i, truth in enumerate(digit)) for digit in digits)), np.int8)


def _from_shape(array: Value) -> list[bool]:
    return [bool(size >> i & 1) for size in array.shape[1:] for i in range(_DIGIT)]


def _gradient_inputs(op: Op, gradient: Op, saved: list[Value], gradients: tuple[Value, ...]) -> list[Value]:
    assert op.gradient is not None
    rest = iter(saved)
    arguments: list[Value] = []
    for arg, (kind, position) in zip(gradient.inputs, op.gradient.inputs, strict=True):
        if kind != "output_gradient":
            arguments.append(next(rest))
            continue
        value = gradients[position]
        if arg.optional and _is_zero(value):
            arguments.append(None)
        else:
            arguments.append(jax.tree.map(_materialised, value, is_leaf=_is_zero))
    return arguments


def _gradient_attrs(op: Op, gradient: Op, attrs: tuple[Any, ...], static: _Static) -> tuple[Any, ...]:
    """The attributes that both ops have, as the forward call had them, and those that its inputs decided."""
    known: dict[str, Any] = {attr.name: value for attr, value in zip(op.call_attrs, attrs, strict=True)}
    for arg, dtypes in zip(op.inputs, static.dtypes, strict=True):
        if dtypes is None:
            continue
        if arg.type_attr is not None and dtypes:
            known[arg.type_attr] = dtypes[0]
        if arg.type_list_attr is not None:
            known[arg.type_list_attr] = dtypes
        if arg.number_attr is not None:
            known[arg.number_attr] = len(dtypes)
    return tuple(known.get(attr.name) for attr in gradient.call_attrs)


def _is_zero(value: object) -> bool:
    return isinstance(value, SymbolicZero)


def _materialised(value: Value) -> Value:
    return jnp.zeros(value.aval.shape, value.aval.dtype) if _is_zero(value) else value


def _map(change: Callable[[Value], Value], values: Sequence[Value]) -> list[Value]:
    """The inputs with each tensor changed."""
    is_leaf = lambda value: isinstance(value, CustomVJPPrimal)  # noqa: E731
    return [jax.tree.map(change, value, is_leaf=is_leaf) for value in values]


def _grouped(values: list[Value]) -> tuple[tuple[Any, ...] | None, ...]:
    return tuple(
        None if value is None else tuple(value) if isinstance(value, list | tuple) else (value,)
        for value in values
    )
