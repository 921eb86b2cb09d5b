"""Docstrings of the generated functions."""

from __future__ import annotations

import textwrap

from opsmith._definition import Arg, Attr, Op

_WIDTH = 96

_RAISES = {
    "opsmith.InvalidArgumentError": "the arguments do not fit the op (NumPy arrays)",
    "RuntimeError": "the same, for PyTorch tensors",
    "tf.errors.InvalidArgumentError": "the same, for TensorFlow tensors; ValueError while a graph is built",
    "jax.errors.JaxRuntimeError": "the same, for JAX arrays, at the latest when the result is read",
}


def docstring(op: Op) -> str:
    """Summary, arguments with dtypes and shapes, what is returned, what is raised."""
    summary = op.doc.strip() or f"The op {op.name}."
    shapes = op.shapes
    inputs = shapes[0] if shapes else [None] * len(op.inputs)
    outputs = shapes[1] if shapes else [None] * len(op.outputs)
    arguments = [
        _item(
            arg.python_name, [*_tensor(op, arg, shape), *(["may be absent"] if arg.optional else [])], arg.doc
        )
        for arg, shape in zip(op.inputs, inputs, strict=True)
    ]
    ordered = sorted(op.call_attrs, key=lambda attr: attr.has_default)
    arguments += [_item(attr.python_name, _attribute(attr), attr.doc) for attr in ordered]
    arguments.append(_item("name", ["no effect on the values: frameworks with named nodes use it"], ""))
    returned = [
        _item(op.outputs[i].name, _tensor(op, op.outputs[i], outputs[i]), op.outputs[i].doc)
        for i in op.returned
    ]
    sections = [summary, "Args:\n" + "\n".join(arguments)]
    if returned:
        sections.append("Returns:\n" + "\n".join(returned))
    sections.append("Raises:\n" + "\n".join(_item(name, [why], "") for name, why in _RAISES.items()))
    return "\n\n".join(sections) + "\n"


def dtypes(op: Op, arg: Arg) -> str:
    """The dtypes that an argument may have, for a person."""
    if arg.dtype is not None:
        return arg.dtype
    name = arg.type_attr or arg.type_list_attr
    assert name is not None
    allowed = op.attr(name).allowed
    if allowed is None:
        return f"any dtype ({name})"
    names = list(map(str, allowed))
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
    return f"{listed} ({name})"


def _tensor(op: Op, arg: Arg, shape: str | None) -> list[str]:
    facts = [dtypes(op, arg)]
    if shape is not None:
        facts.append(f"shape {shape}")
    if arg.is_list:
        number = f"{arg.number_attr} tensors" if arg.number_attr else "tensors"
        facts.insert(0, f"list of {number}")
    if arg.ref:
        facts.append("changed in place")
    return facts


def _attribute(attr: Attr) -> list[str]:
    facts = [f"list of {attr.type}" if attr.is_list else attr.type]
    if attr.min_len is not None:
        facts.append(f"at least {attr.min_len} element{'' if attr.min_len == 1 else 's'}")
    if attr.min is not None:
        facts.append(f"at least {attr.min}")
    if attr.max is not None:
        facts.append(f"at most {attr.max}")
    if attr.allowed is not None:
        facts.append("one of " + ", ".join(map(str, attr.allowed)))
    if attr.has_default:
        facts.append(f"default {attr.default}")
    return facts


def _item(name: str, facts: list[str], doc: str) -> str:
    text = f"{name}: {', '.join(facts)}."
    if doc.strip():
        text += f" {' '.join(doc.split())}"
    return textwrap.fill(text, _WIDTH, initial_indent="    ", subsequent_indent="        ")
