"""The definition of a library as Python objects, read from the JSON that the library describes itself
with."""

from __future__ import annotations

import json
import keyword
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opsmith._forks import cached


@dataclass(frozen=True)
class Arg:
    """An input or output of an op: one tensor, or a list of them."""

    name: str
    doc: str
    ref: bool
    """Whether the op changes this input in place."""
    optional: bool
    """An input that may be absent, or an output that need not be computed."""
    saved: bool
    """An output that serves the gradient only."""
    dtype: str | None
    """The dtype, where the definition fixes it."""
    type_attr: str | None
    """The `type` attribute that gives the dtype."""
    type_list_attr: str | None
    """The `list(type)` attribute that gives a dtype per element."""
    number_attr: str | None
    """The `int` attribute that gives the number of tensors."""

    @property
    def is_list(self) -> bool:
        """Whether it holds a list of tensors."""
        return self.number_attr is not None or self.type_list_attr is not None

    @property
    def python_name(self) -> str:
        """Its name as a parameter of a Python function."""
        return python_name(self.name)


@dataclass(frozen=True)
class Attr:
    """An attribute of an op: an argument that is not a tensor."""

    name: str
    type: str
    """`string`, `int`, `float`, `bool`, `type`, `shape` or `tensor`."""
    is_list: bool
    allowed: tuple[Any, ...] | None
    min: float | None
    above: float | None
    max: float | None
    below: float | None
    min_len: int | None
    inferred: bool
    """Whether the inputs decide the value, so that callers do not pass it."""
    has_default: bool
    default: Any
    """As the JSON has it; meaningless where there is none."""
    doc: str

    @property
    def python_name(self) -> str:
        """Its name as a parameter of a Python function."""
        return python_name(self.name)


@dataclass(frozen=True)
class Gradient:
    """How a gradient op is wired to its forward op."""

    op: str
    inputs: tuple[tuple[str, int], ...]
    """For each input of the gradient op: `input`, `output` or `output_gradient`, and the position."""
    outputs: tuple[int, ...]
    """For each output of the gradient op, the forward input whose gradient it is."""


@dataclass(frozen=True)
class Op:
    """An op of a library."""

    index: int
    name: str
    snake_name: str
    doc: str
    stateful: bool
    inputs: tuple[Arg, ...]
    outputs: tuple[Arg, ...]
    attrs: tuple[Attr, ...]
    gradient: Gradient | None
    differentiable: bool
    """False where the op says that zeros flow back."""
    shape: str | None
    parallel: str | None
    """The rule of the free axes."""
    autocast: str | None = None
    """What PyTorch's autocast does with the inputs: `float32`, `lower`, `widest`, or nothing."""
    cuda: bool = False
    """Whether there is a CUDA kernel."""
    host_inputs: frozenset[int] = frozenset()
    """The positions of the inputs that CUDA kernels read in host memory."""
    unsupported: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Why a framework cannot have the op, by the framework's key, such as `onnx`."""

    @cached
    def call_attrs(self) -> tuple[Attr, ...]:
        """The attributes that callers pass, in the definition's order."""
        return tuple(attr for attr in self.attrs if not attr.inferred)

    def dtype_of_empty(self, arg: Arg, value: Any) -> str | None:
        """The dtype of a list without elements, which says nothing of it, where nothing else decides it: the
        default, or one that is allowed where those that frameworks give it are not. `None` for any other
        value."""
        is_empty = isinstance(value, list | tuple) and not value
        attr = next((attr for attr in self.attrs if attr.name == arg.type_attr), None)
        if not is_empty or attr is None:
            return None
        if attr.has_default:
            return str(attr.default)
        usual = attr.allowed is None or {"float32", "float64"} <= set(attr.allowed)
        return None if usual or not attr.allowed else str(attr.allowed[0])

    @cached
    def default_attrs(self) -> tuple[None, ...]:
        """What stands for the default of each attribute that callers pass."""
        return (None,) * len(self.call_attrs)

    @cached
    def returned(self) -> tuple[int, ...]:
        """The positions of the outputs that wrappers return: all but the saved ones."""
        return tuple(i for i, output in enumerate(self.outputs) if not output.saved)

    @cached
    def constants(self) -> frozenset[int]:
        """The positions of the saved outputs through which no gradient flows: the gradient op takes none of
        theirs."""
        wired = (
            {position for kind, position in self.gradient.inputs if kind == "output_gradient"}
            if self.gradient
            else set()
        )
        return frozenset(i for i, output in enumerate(self.outputs) if output.saved and i not in wired)

    @cached
    def has_optional_outputs(self) -> bool:
        """Whether a call can say which outputs are wanted."""
        return any(output.optional for output in self.outputs)

    @cached
    def shapes(self) -> tuple[list[str], list[str]] | None:
        """The shape of each input and each output, as the shape signature writes them."""
        if self.shape is None:
            return None
        inputs, outputs = self.shape.split("->")
        return _groups(inputs), _groups(outputs)

    def attr(self, name: str) -> Attr:
        """The attribute of this name."""
        return next(attr for attr in self.attrs if attr.name == name)


@dataclass(frozen=True)
class Definition:
    """A library: its name, its version and its ops."""

    name: str
    version: str
    namespace: str
    """The namespace of its ops in frameworks where they may be without: its name, or nothing."""
    ops: tuple[Op, ...]

    @staticmethod
    def parse(text: str) -> Definition:
        """Read what a library describes itself with."""
        data = json.loads(text)
        ops = tuple(_op(index, op) for index, op in enumerate(data["ops"]))
        return Definition(data["name"], data["version"], data.get("namespace", data["name"]), ops)

    def op(self, name: str) -> Op:
        """The op of this CamelCase name."""
        return next(op for op in self.ops if op.name == name)


@dataclass(frozen=True)
class Loaded:
    """A library that has been loaded: what it says of itself, and what calls it."""

    definition: Definition
    native: Any
    """An `opsmith._native.Library`."""
    embedded: bool = False
    """Whether it is part of the package and has no file that a framework could open."""


def python_name(name: str) -> str:
    """The name, with `_` behind it where Python reserves it or the wrapper's own parameter has it."""
    return f"{name}_" if keyword.iskeyword(name) or name == "name" else name


def _groups(text: str) -> list[str]:
    """`"(n,p),(m,p)"` → `["(n,p)", "(m,p)"]`; parentheses may be nested."""
    groups, depth, start = [], 0, 0
    for position, letter in enumerate(text):
        if letter == "(":
            if depth == 0:
                start = position
            depth += 1
        elif letter == ")":
            depth -= 1
            if depth == 0:
                groups.append(text[start : position + 1])
    return groups


def _arg(data: dict[str, Any]) -> Arg:
    return Arg(
        name=data["name"],
        doc=data["doc"],
        ref=data["ref"],
        optional=data["optional"],
        saved=data["saved"],
        dtype=data.get("dtype"),
        type_attr=data.get("type_attr"),
        type_list_attr=data.get("type_list_attr"),
        number_attr=data.get("number_attr"),
    )


def _attr(data: dict[str, Any]) -> Attr:
    allowed = data.get("allowed")
    return Attr(
        name=data["name"],
        type=data["type"],
        is_list=data["list"],
        allowed=None if allowed is None else tuple(allowed),
        min=data.get("min"),
        above=data.get("above"),
        max=data.get("max"),
        below=data.get("below"),
        min_len=data.get("min_len"),
        inferred=data["inferred"],
        has_default="default" in data,
        default=data.get("default"),
        doc=data["doc"],
    )


def _op(index: int, data: dict[str, Any]) -> Op:
    gradient = data["gradient"]
    on_cuda = [kernel for kernel in data["kernels"] if kernel["device"] == "CUDA"]
    kept = {name for kernel in on_cuda for name in kernel.get("host_memory", ())}
    wiring = None
    if isinstance(gradient, dict):
        sources = tuple((kind, position) for kind, position in gradient["inputs"])
        wiring = Gradient(gradient["op"], sources, tuple(gradient["outputs"]))
    return Op(
        index=index,
        name=data["name"],
        snake_name=data["snake_name"],
        doc=data["doc"],
        stateful=data["stateful"],
        inputs=tuple(map(_arg, data["inputs"])),
        outputs=tuple(map(_arg, data["outputs"])),
        attrs=tuple(map(_attr, data["attrs"])),
        gradient=wiring,
        differentiable=gradient != "not_differentiable",
        shape=data["shape"],
        parallel=data["parallel"],
        autocast=data.get("autocast"),
        cuda=bool(on_cuda),
        host_inputs=frozenset(i for i, arg in enumerate(data["inputs"]) if arg["name"] in kept),
        unsupported=data.get("unsupported", {}),
    )
