"""The source of a Python function for an op, and the function."""

from __future__ import annotations

import inspect
import keyword
import math
from functools import partial
from operator import itemgetter
from types import FunctionType
from typing import Any, NoReturn

from opsmith._definition import Arg, Attr, Op
from opsmith._docs import docstring
from opsmith._meant import hint

_ANNOTATIONS = {
    "string": "str",
    "int": "int",
    "float": "float",
    "bool": "bool",
    "type": "DTypeLike",
    "shape": "ShapeLike",
    "tensor": "ArrayLike",
}


def function_name(op: Op) -> str:
    """The name of the op's function."""
    return f"{op.snake_name}_" if keyword.iskeyword(op.snake_name) else op.snake_name


def input_annotation(arg: Arg, array: str) -> str:
    """The type of an input whose tensors have the type `array`."""
    annotation = f"Sequence[{array}]" if arg.is_list else array
    return f"{annotation} | None" if arg.optional else annotation


def attr_annotation(attr: Attr) -> str:
    """The type of an attribute."""
    annotation = _ANNOTATIONS[attr.type]
    if attr.type == "string" and attr.allowed is not None:
        annotation = f"Literal[{', '.join(map(repr, attr.allowed))}]"
    if attr.is_list:
        annotation = f"Sequence[{annotation}]"
    return f"{annotation} | None" if attr.has_default and default_source(attr) == "None" else annotation


def return_annotation(op: Op, array: str) -> str:
    """The type of what the function gives back."""
    kinds = [f"list[{array}]" if op.outputs[i].is_list else array for i in op.returned]
    if len(kinds) == 1:
        return kinds[0]
    return f"tuple[{', '.join(kinds)}]" if kinds else "None"


def default_source(attr: Attr) -> str:
    """The default as Python source; `None` stands for one that has no literal, and the library fills it
    in."""
    value = attr.default
    if attr.type == "tensor" or (attr.type == "shape" and attr.is_list):
        return "None"
    if isinstance(value, list):
        if not all(map(_is_literal, value)):
            return "None"
        if attr.type == "float":
            return f"({''.join(f'{_float_source(number)}, ' for number in value)})"
        return repr(tuple(value))
    return _float_source(value) if attr.type == "float" else repr(value)


def _float_source(number: Any) -> str:
    """A number of a definition, where one that is not finite is a text, as Python writes it."""
    return repr(float(number)) if math.isfinite(float(number)) else f"float({str(number)!r})"


def _is_literal(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def parameters(op: Op, array: str) -> list[str]:
    """The parameters with types and defaults: inputs, required attributes, defaulted ones, `name`. Inputs
    with the first one's dtype are of the type `array`. Of others, a type checker would infer what both are.
    """

    def dtype(arg: Arg) -> tuple[str | None, ...]:
        return arg.dtype, arg.type_attr, arg.type_list_attr

    inputs = []
    # One that may be absent has a default only where none that is required comes behind it: else it is given
    # as None.
    required_inputs = max((at for at, arg in enumerate(op.inputs, 1) if not arg.optional), default=0)
    for at, arg in enumerate(op.inputs):
        default = " = None" if at >= required_inputs else ""
        kind = array if dtype(arg) == dtype(op.inputs[0]) else "ArrayLike"
        inputs.append(f"{arg.python_name}: {input_annotation(arg, kind)}{default}")
    required = [
        f"{attr.python_name}: {attr_annotation(attr)}" for attr in op.call_attrs if not attr.has_default
    ]
    defaulted = [
        f"{attr.python_name}: {attr_annotation(attr)} = {default_source(attr)}"
        for attr in op.call_attrs
        if attr.has_default
    ]
    attrs = [*required, *defaulted]
    # A parameter without a default cannot stand behind one that has it, unless it is given by keyword. The
    # name always is: an array too many is not to be taken for it.
    at = 0 if required and any(arg.optional for arg in op.inputs) else len(attrs)
    return [*inputs, *attrs[:at], "*", *attrs[at:], "name: str | None = None"]


def source(op: Op) -> str:
    """The function's source. With attributes it takes whatever keywords there are, to tell those that are
    wrong with what is meant. It refers to `_native`, the op in the library, to `_CALLS`, which has for each
    class of tensors of the frameworks that are there what calls the op on them, to `_named`, which calls
    it by a name on whatever the inputs are, and to `_text`, which checks a name."""
    inputs = [arg.python_name for arg in op.inputs]
    attrs = [attr.python_name for attr in op.call_attrs]
    before, after = _selection(op)
    # What is missing is told in the function: before that, what has been written wrongly instead.
    required = [attr.python_name for attr in op.call_attrs if not attr.has_default]
    given = [
        f"{each} = _MISSING" if each.partition(":")[0] in required else each
        for each in parameters(op, "Array")
    ]
    given += ["**_others"] if attrs else []
    lines = [f"def {function_name(op)}({', '.join(given)}) -> {return_annotation(op, 'Array')}:"]
    lines.append(f"    {docstring(op)!r}")
    if attrs:
        lines += ["    if _others:", "        _refuse(_others)"]
    if required:
        lines.append(f"    if {' or '.join(f'{each} is _MISSING' for each in required)}:")
        lines.append(f"        _lacks({', '.join(f'{each}={each}' for each in required)})")
    lookup = _lookup(op)
    if lookup is not None:
        lines.append(f"    _call = {lookup}")
        lines.append("    if _call is not None:")
        named = "None if name is None else _text(name)"
        lines.append(f"        return {before}_call({', '.join([*inputs, *attrs, named])}){after}")
    lines.append("    if name is not None:")
    given = ", ".join(f"({''.join(f'{each}, ' for each in group)})" for group in (inputs, attrs))
    lines.append(f"        return {before}_named({given}, name){after}")
    packed = [f"attrs=({', '.join(attrs)},)"] if attrs else []
    lines.append(f"    return {before}_native({', '.join(inputs + packed)}){after}")
    return "\n".join(lines) + "\n"


def _lookup(op: Op) -> str | None:
    """Finds what nearly every call with a framework's own tensors needs; `_native` sends back the others."""
    first = next((arg for arg in op.inputs if not arg.optional), None)
    if first is None:
        return None
    name = first.python_name
    if first.is_list:
        return f"_CALLS.get(_type({name}[0])) if _type({name}) in _LISTS and {name} else None"
    return f"_CALLS.get(_type({name}))"


def _selection(op: Op) -> tuple[str, str]:
    """What to write before and behind a call that gives all outputs, to drop the saved ones."""
    kept = op.returned
    if len(kept) == len(op.outputs) or not kept:
        return "", ""
    if len(kept) == 1:
        return "", f"[{kept[0]}]"
    if kept == tuple(range(len(kept))):
        return "", f"[:{len(kept)}]"
    return "_kept(", ")"


def build(op: Op, library: str, names: dict[str, Any]) -> FunctionType:
    """The function, `names` being what its source refers to."""
    text = source(op)
    names |= {"_refuse": partial(_refuse, op), "_lacks": partial(_lacks, op), "_MISSING": _MISSING}
    # A parameter may be called `type`, so what the source needs of Python goes by names that none has.
    names |= {"_type": type, "_LISTS": (list, tuple)}
    if len(op.returned) > 1:
        names["_kept"] = itemgetter(*op.returned)
    code = compile(
        f"from __future__ import annotations\n{text}", f"<opsmith {library}.{op.snake_name}>", "exec"
    )
    exec(code, names)
    function: FunctionType = names[function_name(op)]
    if op.call_attrs:
        seen = inspect.signature(function)
        taken = [
            each.replace(default=each.empty) if each.default is _MISSING else each
            for each in seen.parameters.values()
            if each.kind != each.VAR_KEYWORD
        ]
        function.__signature__ = seen.replace(parameters=taken)  # type: ignore[attr-defined]
    return function


_MISSING = object()
"""Stands for a required attribute that a call does not give."""


def _lacks(op: Op, /, **given: Any) -> NoReturn:
    """Raises Python's own error for required attributes that a call does not give."""
    names = [repr(name) for name, value in given.items() if value is _MISSING]
    kind = "keyword-only" if any(arg.optional for arg in op.inputs) else "positional"
    listed = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    plural = "" if len(names) == 1 else "s"
    raise TypeError(f"{function_name(op)}() missing {len(names)} required {kind} argument{plural}: {listed}")


_MEANT = {"axis": "axes", "dim": "axes", "dims": "axes", "keepdims": "keep_dims", "keepdim": "keep_dims"}
"""What NumPy and PyTorch call attributes."""


def _refuse(op: Op, others: dict[str, Any]) -> NoReturn:
    """Raises Python's own error for keywords that a function does not take, with what is meant."""
    other = next(iter(others))
    named = {arg.python_name: False for arg in op.inputs}
    named |= {attr.python_name: attr.is_list for attr in op.call_attrs}
    meant = _MEANT.get(other)
    listed = ", a list" if named.get(meant) else ""
    told = f"did you mean `{meant}`{listed}?" if meant in named else hint(other, named, "it takes")
    raise TypeError(f"{function_name(op)}() got an unexpected keyword argument {other!r}; {told}")
