"""Gradients, registered for TensorFlow's tapes and graphs from what the definition declares."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import tensorflow as tf  # type: ignore[import-untyped]

from opsmith.tensorflow._op import Node, TfOp, Value, split


def register(op: TfOp, gradient: TfOp | None) -> None:
    """Register the gradient of `op`, which `gradient` computes; one that somebody has registered before
    stays."""

    def backward(node: Node, *grads: Value) -> list[Value]:
        if gradient is not None:
            return _gradients(op, gradient, node, grads)
        if op.definition.differentiable:
            raise LookupError(f"{op.name}: has no gradient, so nothing can be differentiated through it")
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
    output_counts = op.output_counts(node)
    # What stands in for an output that nobody wanted has no gradient, though TensorFlow may fill in zeros.
    wanted = op.wanted_outputs(node)
    grads = [
        None if not wanted >> position & 1 else grad
        for position, group in enumerate(split(list(grads), output_counts))
        for grad in group
    ]
    groups = {
        "input": list(split(list(node.inputs), counts)),
        "output": list(split(list(node.outputs), output_counts)),
        "output_gradient": list(split(grads, output_counts)),
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


def _dense(grad: Value, like: Value) -> Value:
    return tf.zeros_like(like) if grad is None else tf.convert_to_tensor(grad)


def _attributes(op: TfOp, gradient: TfOp, node: Node) -> dict[str, Value]:
    """The attributes that the gradient op has to be given and the forward op has too."""
    names = {attr.name for attr in op.definition.attrs}
    return {
        attr.name: op.attr(node, attr.name) for attr in gradient.definition.call_attrs if attr.name in names
    }
