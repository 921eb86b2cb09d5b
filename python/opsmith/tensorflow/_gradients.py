"""Gradients, registered for TensorFlow's tapes and graphs from what the definition declares."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import tensorflow as tf  # type: ignore[import-untyped]

from opsmith import _registered
from opsmith._definition import Arg
from opsmith.tensorflow._op import Node, TfOp, Value, split


def register(library: str, op: TfOp, gradient: TfOp | None) -> None:
    """Register the gradient of `op` of the library of this name, which `gradient` computes; one that somebody
    has registered before stays."""

    def backward(node: Node, *grads: Value) -> list[Value]:
        if gradient is not None:
            return _gradients(op, gradient, node, grads)
        if op.definition.differentiable:
            function = _registered.find(library, op.definition)
            if function is not None:
                return _composed(op, function, node, grads)
            raise LookupError(f"{op.name}: {_registered.NO_GRADIENT}")
        return [tf.zeros_like(x) if _is_differentiable(x) else None for x in node.inputs]

    with contextlib.suppress(KeyError):
        tf.RegisterGradient(op.full_name)(backward)


def _is_differentiable(tensor: Value) -> bool:
    return bool(tensor.dtype.is_floating or tensor.dtype.is_complex)


def _gradients(op: TfOp, gradient: TfOp, node: Node, grads: Sequence[Value]) -> list[Value]:
    """The gradient with respect to each input tensor, `None` where there is none."""
    wiring = op.definition.gradient
    assert wiring is not None
    tensors = list(node.inputs)
    result: list[Value] = [None] * len(tensors)
    # Tapes say which gradients nobody asks for; graphs do not.
    skipped = getattr(node, "skip_input_indices", None) or ()
    needed = [i not in skipped and _is_differentiable(x) for i, x in enumerate(tensors)]
    counts = op.input_counts(node)
    needs = [any(group) for group in split(needed, counts)]
    wanted = [needs[target] for target in wiring.outputs]
    if not any(wanted) or all(grad is None for grad in grads):
        return result
    mask = sum(1 << i for i, is_wanted in enumerate(wanted) if is_wanted)
    answer = gradient.call(
        _inputs(op, gradient, node, grads, counts), _attributes(op, gradient, node), mask, None
    )
    starts = [sum(counts[:i]) for i in range(len(counts))]
    for target, is_wanted, value in zip(wiring.outputs, wanted, answer, strict=True):
        group = value if isinstance(value, list | tuple) else [value]
        for i, tensor in enumerate(group if is_wanted else (), starts[target]):
            result[i] = _with_shape(tensor, tensors[i])
    return result


def _with_shape(gradient: Value, tensor: Value) -> Value:
    if tf.is_symbolic_tensor(gradient):
        gradient.set_shape(tensor.shape)
    return gradient


def _inputs(
    op: TfOp, gradient: TfOp, node: Node, grads: Sequence[Value], counts: Sequence[int]
) -> list[Value]:
    wiring = op.definition.gradient
    assert wiring is not None
    groups = {
        "input": list(split(list(node.inputs), counts)),
        "output": list(split(list(node.outputs), op.output_counts(node))),
        "output_gradient": _arrived(op, node, grads),
    }
    arguments: list[Value] = []
    for arg, (kind, position) in zip(gradient.definition.inputs, wiring.inputs, strict=True):
        group = groups[kind][position]
        if kind == "output_gradient":
            if arg.optional and all(grad is None for grad in group):
                group = []
            likes = groups["output"][position]
            group = [_dense(grad, like) for grad, like in zip(group, likes, strict=False)]
        arguments.append(group if arg.is_list else (group[0] if group else None))
    return arguments


def _arrived(op: TfOp, node: Node, grads: Sequence[Value]) -> list[list[Value]]:
    """The gradients that arrive for each output."""
    # What stands in for an output that nobody wanted has no gradient, though TensorFlow may fill in zeros.
    wanted = op.wanted_outputs(node)
    return [
        [x if wanted >> position & 1 and not _is_filled(x) else None for x in group]
        for position, group in enumerate(split(list(grads), op.output_counts(node)))
    ]


def _is_filled(grad: Value) -> bool:
    """Whether it is what graphs fill in where no gradient arrives."""
    return tf.is_symbolic_tensor(grad) and grad.op.type == "ZerosLike"


def _composed(op: TfOp, function: _registered.Function, node: Node, grads: Sequence[Value]) -> list[Value]:
    """The gradient with respect to each input tensor, by a function that a user has registered."""
    definition, tensors = op.definition, list(node.inputs)
    if all(grad is None for grad in grads):
        return [None] * len(tensors)
    inputs = list(split(tensors, op.input_counts(node)))
    outputs = list(split(list(node.outputs), op.output_counts(node)))
    wanted = op.wanted_outputs(node)
    arriving = [
        [
            _dense(grad, like) if is_open and _is_differentiable(like) else None
            for grad, like in zip(group, likes, strict=True)
        ]
        for group, likes, is_open in zip(
            _arrived(op, node, grads),
            outputs,
            (wanted >> i & 1 and i not in definition.constants for i in range(len(outputs))),
            strict=True,
        )
    ]
    found = _registered.evaluate(
        definition,
        function,
        [_value(arg, group) for arg, group in zip(definition.inputs, inputs, strict=True)],
        [
            _value(arg, group) if wanted >> i & 1 else None
            for i, (arg, group) in enumerate(zip(definition.outputs, outputs, strict=True))
        ],
        {attr.name: _plain(op.attr(node, attr.name)) for attr in definition.call_attrs},
        [_value(arg, group) for arg, group in zip(definition.outputs, arriving, strict=True)],
        _mismatch,
    )
    flat = [x for group, given in zip(found, inputs, strict=True) for x in group[: len(given)]]
    return [
        None if gradient is None else _with_shape(gradient, tensor)
        for gradient, tensor in zip(flat, tensors, strict=True)
    ]


def _value(arg: Arg, group: list[Value]) -> Value:
    return group if arg.is_list else (group[0] if group else None)


def _plain(value: Value) -> Value:
    """The value of an attribute as a person would write it."""
    if isinstance(value, list):
        return [_plain(element) for element in value]
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, tf.TensorShape):
        return None if value.rank is None else value.as_list()
    return tf.constant(tf.make_ndarray(value)) if type(value).__name__ == "TensorProto" else value


def _mismatch(tensor: Value, gradient: object) -> str | None:
    """What is wrong with the gradient of a tensor."""
    if not _is_differentiable(tensor):
        return f"must be None, for the input is {tensor.dtype.name}"
    if not isinstance(gradient, tf.Tensor):
        return f"must be a tensor or None, got {type(gradient).__name__}"
    if gradient.dtype == tensor.dtype and gradient.shape.is_compatible_with(tensor.shape):
        return None
    return f"must be {_description(tensor)} as the input is, got {_description(gradient)}"


def _description(tensor: Value) -> str:
    return f"{tensor.dtype.name} of shape {tensor.shape}"


def _dense(grad: Value, like: Value) -> Value:
    return tf.zeros_like(like) if grad is None else tf.convert_to_tensor(grad)


def _attributes(op: TfOp, gradient: TfOp, node: Node) -> dict[str, Value]:
    """The attributes that the gradient op has to be given and the forward op has too."""
    names = {attr.name for attr in op.definition.attrs}
    return {
        attr.name: op.attr(node, attr.name) for attr in gradient.definition.call_attrs if attr.name in names
    }
