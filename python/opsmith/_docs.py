"""Docstrings of the generated functions."""

from __future__ import annotations

import textwrap
from typing import NamedTuple

from opsmith._definition import Arg, Attr, Op

_WIDTH = 96
_NAME = "no effect on the values: frameworks with named nodes use it"

_RAISES = {
    "opsmith.InvalidArgumentError": "the arguments do not fit the op (NumPy arrays)",
    "RuntimeError": "the same, for PyTorch tensors",
    "tf.errors.InvalidArgumentError": "the same, for TensorFlow tensors; ValueError while a graph is built",
    "jax.errors.JaxRuntimeError": "the same, for JAX arrays, at the latest when the result is read",
}


class Item(NamedTuple):
    """An argument of an op, or what it returns."""

    role: str
    """`input`, `attribute` or `output`."""
    name: str
    facts: list[str]
    doc: str


def summary(op: Op) -> str:
    """The first paragraph of what the author says of the op, in one line."""
    return " ".join(op.doc.strip().split("\n\n", 1)[0].split())


def items(op: Op) -> list[Item]:
    """The inputs, the attributes and the outputs of an op's function, in that order."""
    shapes = op.shapes
    inputs = shapes[0] if shapes else [None] * len(op.inputs)
    outputs = shapes[1] if shapes else [None] * len(op.outputs)
    listed = []
    for arg, shape in zip(op.inputs, inputs, strict=True):
        absent = ["may be absent"] if arg.optional else []
        listed.append(Item("input", arg.python_name, [*_tensor(op, arg, shape), *absent], arg.doc))
    for attr in sorted(op.call_attrs, key=lambda attr: attr.has_default):
        listed.append(Item("attribute", attr.python_name, _attribute(attr), attr.doc))
    for i in op.returned:
        arg = op.outputs[i]
        listed.append(Item("output", arg.name, _tensor(op, arg, outputs[i]), arg.doc))
    return listed


def docstring(op: Op) -> str:
    """Summary, arguments with dtypes and shapes, what is returned, what is raised."""
    listed = items(op)
    arguments = [_item(item) for item in listed if item.role != "output"]
    arguments.append(_item(Item("", "name", [_NAME], "")))
    returned = [_item(item) for item in listed if item.role == "output"]
    sections = [op.doc.strip() or f"The op {op.name}.", "Args:\n" + "\n".join(arguments)]
    if returned:
        sections.append("Returns:\n" + "\n".join(returned))
    sections.append(
        "Raises:\n" + "\n".join(_item(Item("", name, [why], "")) for name, why in _RAISES.items())
    )
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
    bounds = {"at least": attr.min, "above": attr.above, "at most": attr.max, "below": attr.below}
    facts += [f"{word} {end}" for word, end in bounds.items() if end is not None]
    if attr.allowed is not None:
        facts.append("one of " + ", ".join(map(str, attr.allowed)))
    if attr.has_default:
        facts.append(f"default {attr.default}")
    return facts


def _item(item: Item) -> str:
    text = f"{item.name}: {', '.join(item.facts)}."
    if item.doc.strip():
        text += f" {' '.join(item.doc.split())}"
    return textwrap.fill(text, _WIDTH, initial_indent="    ", subsequent_indent="        ")
