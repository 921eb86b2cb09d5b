"""Calls of ops from the generated functions: arguments as Python users give them become what TensorFlow's
own wrappers take, and its errors get a message that names the argument."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf  # type: ignore[import-untyped]
from tensorflow.python.ops.resource_variable_ops import ResourceVariable  # type: ignore[import-untyped]

from opsmith import _attributes, _dispatch
from opsmith._definition import Arg, Attr, Loaded, Op
from opsmith._errors import Error, InvalidArgumentError
from opsmith.tensorflow import _shapes
from opsmith.tensorflow._op import TfOp, Value

_EAGER = tf.__internal__.EagerTensor
PLAIN = frozenset({_EAGER, tf.__internal__.SymbolicTensor, ResourceVariable})
"""The classes of tensors that go to TensorFlow as they are."""

_EXACT = {
    **_attributes.EXACT,
    "float": "type({0}) is float and -SINGLE <= {0} <= SINGLE",
}
"""What tells that an attribute of a type needs no conversion."""

_SINGLE = tf.float32.max
"""Attributes have 32 bits, and TensorFlow makes larger numbers infinite."""

_CACHED_FUNCTIONS = 32


def function(loaded: Loaded, op: TfOp) -> Callable[..., Value]:
    """A function of the op's inputs and attributes, in the definition's order, and a name for the node, that
    gives all outputs."""
    general = _General(loaded, op)
    return _quick(op, general) if _is_simple(op.definition) else general.call


def _is_simple(op: Op) -> bool:
    """Whether every argument is one tensor, and every attribute one that is always given as it is."""
    tensors = not any(arg.is_list or arg.optional for arg in (*op.inputs, *op.outputs))
    return tensors and bool(op.inputs) and all(a.type in _EXACT and not a.is_list for a in op.call_attrs)


def _quick(op: TfOp, general: _General) -> Callable[..., Value]:
    """A function whose source is made for the op: a call of plain tensors costs little more than one of
    TensorFlow's own wrapper."""
    inputs = [f"x{i}" for i in range(len(op.definition.inputs))]
    attrs = [f"a{i}" for i in range(len(op.definition.call_attrs))]
    keywords = [
        f"{op.attr_names[attr.name]}={a}" for attr, a in zip(op.definition.call_attrs, attrs, strict=True)
    ]
    plain = [f"type({x}) in PLAIN" for x in inputs]
    plain += [_EXACT[attr.type].format(a) for attr, a in zip(op.definition.call_attrs, attrs, strict=True)]
    packed = f"({', '.join(inputs)},), ({''.join(f'{a}, ' for a in attrs)})"
    lines = [
        f"def call({', '.join([*inputs, *attrs, 'name=None'])}):",
        f"    if not ({' and '.join(plain)}):",
        f"        return general({', '.join([*inputs, *attrs, 'name'])})",
        "    try:",
        f"        result = wrapper({', '.join([*inputs, *keywords, 'name=name'])})",
        "    except ERRORS as error:",
        f"        explain(error, {packed})",
        "        raise",
    ]
    if _shapes.depend_on_attributes(op.definition):
        first = "result" if len(op.definition.outputs) == 1 else "result[0]"
        lines += [f"    if type({first}) is not EAGER:", f"        narrow({packed}, result)"]
    names: dict[str, Any] = {
        "PLAIN": PLAIN,
        "SINGLE": _SINGLE,
        "EAGER": _EAGER,
        "ERRORS": _ERRORS,
        "general": general.call,
        "explain": general.explain,
        "narrow": general.narrow,
        "wrapper": op.wrapper,
    }
    lines.append("    return result")
    exec(compile("\n".join(lines), f"<opsmith {op.full_name}>", "exec"), names)
    call: Callable[..., Value] = names["call"]
    return call


_ERRORS = (tf.errors.OpError, TypeError, ValueError, OverflowError)
"""What TensorFlow raises for arguments that do not fit."""


_NO_GPU = (
    "TensorFlow's GPU device cannot be reached through its C API, so ops of libraries run on the CPU there: "
    "take the call out of `tf.device`, or leave `tf.config.set_soft_device_placement` on"
)


class _General:
    """Calls of an op with arguments of every kind."""

    def __init__(self, loaded: Loaded, op: TfOp) -> None:
        self._loaded = loaded
        self._op = op
        self._has_tensor_attrs = any(attr.type == "tensor" for attr in op.definition.attrs)
        self._graph_function = functools.lru_cache(_CACHED_FUNCTIONS)(self._new_graph_function)

    def call(self, *arguments: Value) -> Value:
        """Takes inputs, attributes and, if need be, a name."""
        op = self._op.definition
        count = len(op.inputs)
        inputs, given = arguments[:count], arguments[count : count + len(op.call_attrs)]
        name = arguments[-1] if len(arguments) > count + len(given) else None
        # Arrays of another framework than NumPy are refused.
        if any(_dispatch.framework_of(x) not in (None, "TensorFlow") for x in _flat(op, inputs)):
            _dispatch.adapter_for(op, inputs)
        attrs = self._converted(given)
        tensors = _tensors(op, inputs)
        try:
            outputs = self._run(tensors, attrs, name)
        except _ERRORS as error:
            self.explain(error, tensors, given)
            raise
        if _shapes.depend_on_attributes(op) and any(map(tf.is_symbolic_tensor, tf.nest.flatten(outputs))):
            self.narrow(tensors, given, outputs)
        if len(op.outputs) == 1:
            return outputs[0]
        return tuple(outputs) if outputs else None

    def _run(self, inputs: Sequence[Value], attrs: dict[str, Value], name: str | None) -> list[Value]:
        if not (self._has_tensor_attrs and tf.executing_eagerly()):
            return self._op.call(inputs, attrs, None, name)
        # An eager op cannot have a tensor as an attribute; a graph's node can.
        key = tuple(sorted((name, _frozen(value)) for name, value in attrs.items()))
        outputs: list[Value] = self._graph_function(_Attrs(key, attrs))(list(inputs))
        return outputs

    def _new_graph_function(self, attrs: _Attrs) -> Callable[[list[Value]], list[Value]]:
        run = functools.partial(self._op.call, attrs=attrs.values, wanted=None, name=None)
        graph_function: Callable[[list[Value]], list[Value]] = tf.function(
            lambda inputs: run(inputs), autograph=False, reduce_retracing=True
        )
        return graph_function

    def narrow(self, inputs: Sequence[Value], given: Sequence[Value], result: Value) -> None:
        """Tell symbolic outputs their shapes."""
        op = self._op.definition
        outputs = self._op.outputs(result) if not isinstance(result, list) else result
        try:
            _shapes.narrow(op, self._infer, inputs, self._converted(given), outputs)
        except Error as error:
            raise framework_error(error) from None

    def explain(self, error: Exception, inputs: Sequence[Value], given: Sequence[Value]) -> None:
        """Raise the library's own error for these arguments if there is one and `error` is not that."""
        op = self._op.definition
        if isinstance(error, tf.errors.OpError) and b"opsmith.op" in error.experimental_payloads:
            return
        try:
            _shapes.infer(op, self._infer, inputs, self._converted(given))
        except Error as better:
            # Nodes that are made lose all but the text.
            if better.text in str(error):
                return
            raise framework_error(better) from None
        if isinstance(error, tf.errors.OpError) and "device:GPU" in str(error):
            raise type(error)(None, None, f"{op.name}: {_NO_GPU}\n{error.message}") from None

    def _infer(self, request: str) -> str:
        answer: str = self._loaded.native.infer_shapes(self._op.definition.index, request)
        return answer

    def _converted(self, given: Sequence[Value]) -> dict[str, Value]:
        """The attributes as TensorFlow takes them, less those that take a default which has no other form."""
        op = self._op.definition
        attrs = {}
        for attr, value in zip(op.call_attrs, given, strict=False):
            if value is None and attr.has_default:
                if attr.type == "tensor":
                    continue
                value = attr.default
            conversions = _WIDE if _is_default(attr, value) else _CONVERSIONS
            try:
                attrs[attr.name] = _attributes.convert(op, attr, value, conversions)
            except InvalidArgumentError as error:
                raise framework_error(error) from None
        return attrs


class _Attrs:
    """Attributes that can be compared."""

    def __init__(self, key: Any, values: dict[str, Value]) -> None:
        self.key, self.values = key, values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Attrs) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def _frozen(value: Value) -> Any:
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return value.SerializeToString() if hasattr(value, "SerializeToString") else repr(value)


def framework_error(error: Error) -> tf.errors.OpError:
    """The error as TensorFlow raises one of its kind."""
    kind: type[tf.errors.OpError] = getattr(tf.errors, f"{error.code}Error", tf.errors.UnknownError)
    return kind(None, None, str(error))


def _elements(arg: Arg, value: Value) -> Sequence[Value]:
    if not arg.is_list:
        return [] if value is None else [value]
    return value if isinstance(value, list | tuple) else [value]


def _flat(op: Op, inputs: Sequence[Value]) -> list[Value]:
    return [x for arg, value in zip(op.inputs, inputs, strict=True) for x in _elements(arg, value)]


def _tensors(op: Op, inputs: Sequence[Value]) -> list[Value]:
    """The inputs with arrays, lists and scalars made tensors, of the dtype of the tensors beside them, as
    TensorFlow's own functions make them; where there are none, arrays decide."""
    by_attr: dict[str, tf.DType] = {}
    for framework in ("TensorFlow", "NumPy"):
        for arg, value in zip(op.inputs, inputs, strict=True):
            for x in _elements(arg, value):
                if arg.type_attr is not None and _dispatch.framework_of(x) == framework:
                    by_attr.setdefault(arg.type_attr, x.dtype)

    def refuse(arg: Arg, why: str) -> tf.errors.OpError:
        return framework_error(InvalidArgumentError.of(op.name, arg.name, f"input `{arg.name}` {why}"))

    def convert(arg: Arg, value: Value) -> Value:
        if type(value) in PLAIN:
            return value
        if isinstance(value, tf.SparseTensor | tf.RaggedTensor):
            raise refuse(
                arg,
                f"must be a dense tensor, got a {type(value).__name__}; call its to_tensor() or "
                "tf.sparse.to_dense() first",
            )
        if value is None:
            raise framework_error(InvalidArgumentError.of(op.name, arg.name, _dispatch.missing(arg)))
        dtype = None
        if _dispatch.framework_of(value) != "TensorFlow":
            dtype = by_attr.get(arg.type_attr or "") or arg.dtype or op.dtype_of_empty(arg, value)
        try:
            if isinstance(value, np.ndarray) and tf.as_dtype(value.dtype) == tf.string:
                # TensorFlow would read the texts, and make NaN of objects.
                dtype = None
            elif dtype is not None:
                dtype = tf.as_dtype(dtype)
                _refuse_loss(op, arg, value, dtype)
            return tf.convert_to_tensor(value, dtype=dtype)
        except Error as error:
            raise framework_error(error) from None
        except (TypeError, ValueError, tf.errors.OpError) as error:
            raise refuse(arg, f"is not a tensor: {error}") from error

    converted: list[Value] = []
    for arg, value in zip(op.inputs, inputs, strict=True):
        if not arg.is_list:
            converted.append(None if value is None and arg.optional else convert(arg, value))
        elif isinstance(value, list | tuple):
            converted.append([convert(arg, x) for x in value])
        else:
            raise refuse(arg, f"must be a list of tensors, got {type(value).__name__}")
    return converted


def _refuse_loss(op: Op, arg: Arg, value: Value, dtype: tf.DType) -> None:
    """Raise `InvalidArgumentError` for arrays whose values the dtype lacks: TensorFlow itself checks numbers
    and lists alone."""
    _dispatch.refuse_loss(op, arg.name, value, dtype.name)
    is_integer = dtype.is_integer and isinstance(value, np.ndarray) and value.dtype.kind in "iu"
    if is_integer and value.size and not np.can_cast(value.dtype, dtype.as_numpy_dtype):
        least, greatest = int(value.min()), int(value.max())
        if least < dtype.min or greatest > dtype.max:
            wrong = least if least < dtype.min else greatest
            raise InvalidArgumentError.of(
                op.name,
                arg.name,
                f"input `{arg.name}` holds {wrong}, and must be {dtype.name}, which does not",
            )


_PYTHON_TYPES = {int: "int64", complex: "complex64"}


def _dtype(value: Any) -> tf.DType:
    if isinstance(value, type) and value in _PYTHON_TYPES:
        return tf.as_dtype(_PYTHON_TYPES[value])
    # A number is a dtype's in TensorFlow, and nowhere else.
    if isinstance(value, int):
        raise TypeError
    return tf.as_dtype(value)


def _shape(value: Any) -> tf.TensorShape:
    return value if isinstance(value, tf.TensorShape) else tf.TensorShape(_attributes.dims(value))


def _tensor(value: Any) -> Any:
    if type(value).__name__ == "TensorProto":
        return value
    return tf.make_tensor_proto(value.numpy() if isinstance(value, tf.Tensor) else value)


def _is_default(attr: Attr, value: Any) -> bool:
    """Whether the value is the default, which the kernel knows in all its bits."""
    given = list(value) if isinstance(value, tuple) else value
    return attr.has_default and isinstance(given, float | list) and given == attr.default


def _float(value: Any) -> float:
    number: float = _attributes.PLAIN["float"](value)
    if math.isfinite(number) and abs(number) > _SINGLE:
        raise _attributes.TooLarge("TensorFlow's 32 bits")
    return number


_CONVERSIONS: dict[str, Callable[[Any], Value]] = {
    **_attributes.PLAIN,
    "float": _float,
    "type": _dtype,
    "shape": _shape,
    "tensor": _tensor,
}
_WIDE = {**_CONVERSIONS, **_attributes.PLAIN}
