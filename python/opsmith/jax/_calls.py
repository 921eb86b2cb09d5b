"""Calls of ops from the generated wrappers: arguments as Python users give them become what JAX traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from opsmith import _dispatch, _registered
from opsmith._attributes import EXACT
from opsmith._definition import Arg, Attr, Loaded, Op
from opsmith._errors import Error, InvalidArgumentError
from opsmith.jax._attributes import canonical
from opsmith.jax._constants import Constant
from opsmith.jax._gradients import Differentiable
from opsmith.jax._op import Value, result, wide_dtype
from opsmith.jax._shapes import DataDependentShape, framework_error

try:
    from jax._src.array import ArrayImpl
except ImportError:
    PLAIN: frozenset[type] = frozenset()
else:
    PLAIN = frozenset({ArrayImpl})
"""The class of arrays that are there, not traced. Without it every call takes the long way."""


def function(loaded: Loaded, op: Op, differentiable: Differentiable) -> Callable[..., Value]:
    """A function of the op's inputs, its attributes and a name, in the definition's order, that gives all
    outputs. JAX has no use for the name.

    Its source is made for the op: a call on arrays costs little more than one of a compiled function.
    Other calls go by the package's dispatch, which comes back by `general`.
    """
    other = partial(_dispatch.call, loaded, op) if op.inputs else partial(general, loaded, op, differentiable)
    inputs = [f"x{i}" for i in range(len(op.inputs))]
    attrs = [f"a{i}" for i in range(len(op.call_attrs))]
    # One that may come to have a gradient has to be asked for its function every time.
    keyed = bool(attrs) or _registered.may_register(op)
    scope: dict[str, Any] = {
        "other": other,
        "function": differentiable.function if keyed else differentiable.function(()),
        "PLAIN": PLAIN,
        "DataDependentShape": DataDependentShape,
        "JaxRuntimeError": jax.errors.JaxRuntimeError,
        "is_weak": lambda inputs: any(map(_is_weak, jax.tree.leaves(inputs))),
    }
    keys = []
    for i, attr in enumerate(op.call_attrs):
        scope[f"canonical{i}"] = partial(canonical, op, attr)
        keys.append(_key(attr, f"a{i}", f"canonical{i}"))
    compiled = f"function(({''.join(f'{key}, ' for key in keys)}))" if keyed else "function"
    checks = [_is_plain(arg, x) for arg, x in zip(op.inputs, inputs, strict=True)]
    only = "[0]" if len(op.outputs) == 1 and not any(arg.ref for arg in op.inputs) else ""
    lines = [f"def call({', '.join([*inputs, *attrs, 'name=None'])}):"]
    if only:
        lines += [
            f"    if {' and '.join(checks) or True}:",
            "        try:",
            f"            return {compiled}({', '.join(inputs)}){only}",
            "        except DataDependentShape:",
            "            pass",
            "        except JaxRuntimeError:",
            f"            if not is_weak(({''.join(f'{x}, ' for x in inputs)})):",
            "                raise",
        ]
    lines.append(
        f"    return other(({''.join(f'{x}, ' for x in inputs)}), ({''.join(f'{a}, ' for a in attrs)}))"
    )
    exec(compile("\n".join(lines), f"<opsmith {op.name} in JAX>", "exec"), scope)
    call: Callable[..., Value] = scope["call"]
    return call


def _key(attr: Attr, name: str, convert: str) -> str:
    """The attribute's canonical value, as source."""
    exact = _EXACT.get(attr.type)
    if exact is None or attr.is_list:
        return f"{convert}({name})"
    return f"{name} if {exact.format(name)} else {convert}({name})"


_EXACT = {
    "int": EXACT["int"],
    "bool": EXACT["bool"],
    "string": f"{EXACT['string']} and {{0}}.isascii()",
}
"""What tells that a value is canonical as it is."""


def _is_plain(arg: Arg, name: str) -> str:
    if arg.is_list:
        return f"type({name}) is list and all(type(x) in PLAIN for x in {name})"
    check = f"type({name}) in PLAIN"
    return f"({name} is None or {check})" if arg.optional else check


def general(
    loaded: Loaded, op: Op, differentiable: Differentiable, inputs: Sequence[Any], attrs: Sequence[Any]
) -> Value:
    """Call the op on arrays, tracers, and lists and scalars beside them."""
    key = tuple(canonical(op, attr, value) for attr, value in zip(op.call_attrs, attrs, strict=True))
    values = arrays(op, inputs)
    try:
        return result(op, differentiable.function(key)(*values))
    except DataDependentShape:
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(values)):
            raise
        _refuse_cards(op, values)
        return _through_numpy(loaded, op, values, attrs)


def _refuse_cards(op: Op, values: Sequence[Value]) -> None:
    """Raise `InvalidArgumentError` for arrays on a card: nothing is copied back from there unasked."""
    for arg, value in zip(op.inputs, values, strict=True):
        for x in _elements(op, arg, value):
            if isinstance(x, jax.Array) and any(place.platform != "cpu" for place in x.devices()):
                raise InvalidArgumentError.of(
                    op.name,
                    arg.name,
                    f"the shape of an output is decided by values, and input `{arg.name}` is on "
                    f"{next(iter(x.devices()))}: give what decides it as a list or a number, or move the "
                    "arrays to the CPU by jax.device_put",
                )


def _through_numpy(loaded: Loaded, op: Op, values: Sequence[Value], attrs: Sequence[Any]) -> Value:
    """Call the op on the embedded engine, which makes outputs of any shape."""
    inputs = [
        [_to_numpy(arg, x) for x in value]
        if isinstance(value, list)
        else value
        if value is None
        else _to_numpy(arg, value)
        for arg, value in zip(op.inputs, values, strict=True)
    ]
    try:
        answer = loaded.native.op(op.index).call(tuple(inputs), tuple(attrs) if attrs else None)
    except Error as error:
        raise framework_error(error) from None
    outputs = (answer,) if len(op.outputs) == 1 else tuple(answer or ())
    changed = tuple(x for arg, x in zip(op.inputs, inputs, strict=True) if arg.ref)
    return jax.tree.map(jnp.asarray, result(op, outputs + changed))


def _to_numpy(arg: Arg, x: jax.Array) -> np.ndarray[Any, Any]:
    array = np.array(x) if arg.ref else np.asarray(x)
    wide = wide_dtype(arg, array.dtype)
    return array if wide is None else array.astype(wide)


def arrays(op: Op, inputs: Sequence[Any]) -> list[Value]:
    """The inputs with NumPy's arrays, lists and scalars made JAX's; or made part of the program, where a CUDA
    kernel reads an input in host memory. Arrays have the dtype that JAX has for their own, lists and scalars
    that of what is beside them.

    Raises `InvalidArgumentError` for what cannot be an array.
    """
    weak: dict[str, Any] = {}
    dtypes: dict[str, Any] = {}
    for kind in (jax.Array, np.ndarray):
        for arg, value in zip(op.inputs, inputs, strict=True):
            for x in _elements(op, arg, value):
                if arg.type_attr is None or not isinstance(x, kind):
                    continue
                if _is_weak(x):
                    weak[arg.type_attr] = jnp.promote_types(weak.get(arg.type_attr, x.dtype), x.dtype)
                else:
                    dtypes.setdefault(arg.type_attr, x.dtype)
    for arg, value in zip(op.inputs, inputs, strict=True):
        for x in _elements(op, arg, value):
            if arg.type_attr in weak and type(x) in (int, float, complex):
                weak[arg.type_attr] = jnp.promote_types(weak[arg.type_attr], jnp.result_type(x))
    dtypes = weak | dtypes

    def convert(arg: Arg, x: Any) -> Value:
        if isinstance(x, jax.Array | Constant):
            return _as(x, arg.dtype or dtypes.get(arg.type_attr or "")) if _is_weak(x) else x
        if x is None:
            raise InvalidArgumentError.of(op.name, arg.name, _dispatch.missing(arg))
        if arg.dtype == "int64" and isinstance(x, np.integer):
            x = np.asarray(x)
        dtype: Any = arg.dtype or dtypes.get(arg.type_attr or "") or op.dtype_of_empty(arg, x)
        if dtype and not isinstance(x, np.ndarray):
            _dispatch.refuse_loss(op, arg.name, x, arg.dtype or jax.dtypes.canonicalize_dtype(dtype).name)
        try:
            if isinstance(x, np.ndarray):
                x = _fitting(op, arg, x)
                own = jax.dtypes.canonicalize_dtype(x.dtype)
                dtype = own if own.kind in "iu" else wide_dtype(arg, own) or own
            if arg in in_cpu_memory:
                return Constant.of(x, dtype)
            own = dtype and jax.dtypes.canonicalize_dtype(dtype)
            # JAX takes NumPy's arrays as they are, and makes its own of a number ten times as slowly.
            return np.asarray(x, own) if own and type(x) in (bool, int, float) else jnp.asarray(x, own)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidArgumentError.of(
                op.name, arg.name, f"input `{arg.name}` is not an array: {error}"
            ) from error

    in_cpu_memory = [op.inputs[i] for i in op.host_inputs if not op.inputs[i].is_list]
    converted: list[Value] = []
    for arg, value in zip(op.inputs, inputs, strict=True):
        if value is None and arg.optional:
            converted.append(None)
        else:
            values = [convert(arg, x) for x in _elements(op, arg, value)]
            converted.append(values if arg.is_list else values[0])
    return converted


def _is_weak(x: Any) -> bool:
    """Whether an array or tracer is of a number of Python's, whose dtype JAX takes from what is beside it."""
    return getattr(x, "weak_type", False) is True


def _as(x: jax.Array, dtype: Any) -> jax.Array:
    """Such an array in the dtype that is asked for, where JAX would take it: integers become any number,
    floats any float or complex number."""
    # Not `dtype in (None, "string")`: NumPy's float64 equals `None`.
    if dtype is None or str(dtype) == "string":
        return x
    own = jax.dtypes.canonicalize_dtype(dtype)
    return x.astype(own) if _rank(own) >= _rank(x.dtype) else x


def _rank(dtype: Any) -> int:
    """Where a dtype stands among those whose numbers become each other; truth values and text are none."""
    kinds = (jnp.complexfloating, jnp.floating, jnp.integer)
    return 3 - next((at for at, kind in enumerate(kinds) if jnp.issubdtype(dtype, kind)), 3)


def _fitting(op: Op, arg: Arg, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """NumPy's integers for an input of int64, refused where JAX would cut off bits."""
    if arg.dtype != "int64" or x.dtype.kind not in "iu":
        return x
    own = jax.dtypes.canonicalize_dtype(x.dtype)
    if x.dtype == np.uint64 or (x.size and own != x.dtype and (x != x.astype(own)).any()):
        what = "is uint64" if x.dtype == np.uint64 else "has numbers that 32 bits do not hold"
        advice = "" if jax.config.jax_enable_x64 else "; JAX has 64 bits with `jax_enable_x64`"
        raise InvalidArgumentError.of(
            op.name, arg.name, f"input `{arg.name}` {what}, but must be int64{advice}"
        )
    return x


def _elements(op: Op, arg: Arg, value: Any) -> Iterator[Any]:
    if not arg.is_list:
        yield value
    elif isinstance(value, list | tuple):
        yield from value
    else:
        kind = type(value).__name__
        raise InvalidArgumentError.of(
            op.name, arg.name, f"input `{arg.name}` must be a list of tensors, got {kind}"
        )
