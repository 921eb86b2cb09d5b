"""An op as TensorFlow has it: its names there, and how many tensors each argument of a node holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import tensorflow as tf  # type: ignore[import-untyped]

from opsmith._definition import Arg, Op

Value: TypeAlias = Any
"""An input, an output or an attribute."""

Node: TypeAlias = Any
"""An operation of a graph, or what stands for one that has run."""


class TfOp:
    """An op of a library in TensorFlow.

    Its attributes are those of the definition, then for each optional input, which is a list of at most one
    tensor, how many it has, and last, where there are optional outputs, a mask of those that are wanted.
    """

    def __init__(self, definition: Op, op_def: Any, wrapper: Callable[..., Any]) -> None:
        self.definition = definition
        self.full_name: str = op_def.name
        self.wrapper = wrapper
        names = [attr.name for attr in op_def.attr]
        self._attr_types = {attr.name: attr.type for attr in op_def.attr}
        # The registry has them in the definition's order.
        self.attr_names = dict(zip((attr.name for attr in definition.attrs), names, strict=False))
        rest = iter(names[len(definition.attrs) :])
        self._presence = {arg.name: next(rest) for arg in definition.inputs if arg.optional}
        self.wanted = next(rest, None)

    @property
    def name(self) -> str:
        """The op's CamelCase name, as messages say it."""
        return self.definition.name

    def attr(self, node: Node, name: str) -> Value:
        """The value of the definition's attribute `name`, as wrappers take it."""
        return self._plain(node, self.attr_names[name])

    def input_counts(self, node: Node) -> list[int]:
        """How many tensors each input holds."""
        return [self._count(node, arg, self._presence.get(arg.name)) for arg in self.definition.inputs]

    def output_counts(self, node: Node) -> list[int]:
        """How many tensors each output holds."""
        return [self._count(node, arg, None) for arg in self.definition.outputs]

    def wanted_outputs(self, node: Node) -> int:
        """A bit for each output, set where it is wanted."""
        return -1 if self.wanted is None else int(node.get_attr(self.wanted))

    def _count(self, node: Node, arg: Arg, presence: str | None) -> int:
        if arg.number_attr is not None:
            return int(self.attr(node, arg.number_attr))
        if arg.type_list_attr is not None:
            return len(self.attr(node, arg.type_list_attr))
        return 1 if presence is None else int(self._plain(node, presence))

    def _plain(self, node: Node, name: str) -> Value:
        value = node.get_attr(name)
        convert = _CONVERSIONS.get(self._attr_types[name].removeprefix("list(").removesuffix(")"))
        if convert is None:
            return value
        return [convert(x) for x in value] if self._attr_types[name].startswith("list(") else convert(value)

    def call(
        self, inputs: Sequence[Value], attrs: dict[str, Value], wanted: int | None, name: str | None
    ) -> list[Value]:
        """All outputs. `attrs` has the definition's names; `None` stands for an absent input."""
        arguments = [
            ([] if value is None else [value]) if arg.optional else value
            for arg, value in zip(self.definition.inputs, inputs, strict=True)
        ]
        keywords = {self.attr_names[key]: value for key, value in attrs.items()}
        if wanted is not None and self.wanted is not None:
            keywords[self.wanted] = wanted
        return self.outputs(self.wrapper(*arguments, **keywords, name=name))

    def outputs(self, result: Value) -> list[Value]:
        """What a wrapper has given, output by output."""
        return [result] if len(self.definition.outputs) == 1 else list(result or ())


def _shape(value: Value) -> tf.TensorShape:
    return tf.TensorShape(value)


_CONVERSIONS: dict[str, Callable[[Value], Value]] = {"type": tf.as_dtype, "shape": _shape}
"""For attributes that nodes of graphs and ops that have run tell in different ways."""


def split(values: Sequence[Value], counts: Sequence[int]) -> Iterator[list[Value]]:
    """Consecutive slices of these lengths."""
    start = 0
    for count in counts:
        yield list(values[start : start + count])
        start += count
