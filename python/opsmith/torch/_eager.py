"""The short way for an eager call of plain tensors: no second trip through Python for autograd.

The kernel in `_autograd` serves every call through `torch.ops`, at the price of a call into Python from the
dispatcher for each. A generated function knows enough to spare it: it calls the op with the autograd keys
switched off and, when a gradient is wanted, from within a node of its own, which does not tell PyTorch of
outputs that are saved and nothing more: each would cost about a microsecond. Whatever is out of the ordinary
takes the long way: tracing, `torch.func`, forward mode, autocast of an op that has a policy for it, and
tensor subclasses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import _C
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

from opsmith._definition import Arg, Attr, Op
from opsmith.torch._op import TorchOp, Value, inferred_by

PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
"""The classes of tensors that nothing intercepts."""

# `torch.func`, a kernel below autograd that calls this op, and forward mode.
_UNUSUAL = "transforming() or excluded(AUTOGRAD) or forward_ad._current_level >= 0"

_BELOW_AUTOGRAD = """\
{indent}exclude(AUTOGRAD, True)
{indent}try:
{indent}    {name} = {call}
{indent}finally:
{indent}    exclude(AUTOGRAD, False)
"""


def names(op: TorchOp, gradient: TorchOp | None, defaults: dict[str, Value]) -> dict[str, Value] | None:
    """What the lines of `source` refer to, with `defaults`: those of dtypes, by `default_name`. `None` for an
    op that has to take the long way always."""
    definition = op.definition
    changes = any(arg.ref for arg in definition.inputs)
    if not definition.inputs or changes or definition.stateful or op.tensor_attrs:
        return None
    shared = {
        **defaults,
        "operator": op.overload._op,
        "exclude": _C._dispatch_tls_set_dispatch_key_excluded,
        "excluded": _C._dispatch_tls_is_dispatch_key_excluded,
        "AUTOGRAD": _C.DispatchKey.AutogradFunctionality,
        "forward_ad": forward_ad,
        "grad_enabled": torch.is_grad_enabled,
        "any_requires_grad": _C._any_requires_grad,
        "transforming": _C._are_functorch_transforms_active,
        "compiling": torch.compiler.is_dynamo_compiling,
        "autocasting": _C._is_any_autocast_enabled,
        "copysign": math.copysign,
    }
    # A list is told from single outputs by being alone.
    simple = len(definition.outputs) == 1 or not any(output.is_list for output in definition.outputs)
    if gradient is not None and simple and not gradient.tensor_attrs and not inferred_by(op, gradient):
        shared["record"] = _node(op, gradient, shared).apply
    return shared


def is_plain(arg: Arg, name: str) -> str:
    """Whether an input is what the short way takes, as an expression."""
    if arg.is_list:
        return f"type({name}) in LISTS and PLAIN.issuperset(map(type, {name}))"
    plain = f"type({name}) in PLAIN"
    return f"({name} is None or {plain})" if arg.optional else plain


def _requires_grad(op: Op) -> str:
    """Whether an input requires a gradient, as an expression."""
    inputs = [f"x{i}" for i in range(len(op.inputs))]
    if any(arg.is_list or arg.optional for arg in op.inputs):
        return f"any_requires_grad({', '.join(_starred(op.inputs, 'x'))})"
    return " or ".join(f"{x}.requires_grad" for x in inputs)


def source(op: TorchOp, record: bool) -> str:
    """The lines at the beginning of a function whose parameters are `x0`, `x1`, … and attributes. They
    return for a plain call, and else fall through. Where a gradient is wanted, outputs that come last and are
    saved and nothing more are missing in what they return."""
    needs_gradient = _requires_grad(op.definition)
    casting = "" if op.definition.autocast is None else " or autocasting()"
    lines = f"    if not (compiling() or {_UNUSUAL}{casting}):\n"
    if record:
        arguments = [f"len(x{i})" for i in _lists(op.definition)]
        arguments = [*_attrs(op), *arguments, *_starred(op.definition.inputs, "x")]
        recorded = f"record({', '.join(arguments)})"
        recorded = f"list({recorded})" if op.definition.outputs[0].is_list else recorded
        lines += f"        if {needs_gradient}:\n            return {recorded}\n"
        indent = " " * 8
    else:
        lines += f"        if not ({needs_gradient}):\n"
        indent = " " * 12
    lines += _BELOW_AUTOGRAD.format(indent=indent, name="result", call=_call(op))
    return f"{lines}{indent}return result\n"


def _call(op: TorchOp) -> str:
    """The call of the op. The first keyword takes about a microsecond and each other half of one, so that
    attributes which have their defaults are left out: all, or all but one."""
    inputs = [f"x{i}" for i in range(len(op.definition.inputs))]
    parameters = {attr.name: f"a{i}" for i, attr in enumerate(op.definition.call_attrs)}
    attrs = [(name, attr, parameters[attr.name]) for name, attr in op.keyword_attrs.items()]
    keyword = [f"{name}={parameter}" for name, _, parameter in attrs]
    defaults = [_is_default(attr, parameter) for _, attr, parameter in attrs]

    def call(given: list[str]) -> str:
        return f"operator({', '.join(inputs + given)})"

    def unless(at: int) -> str | None:
        others = [default for i, default in enumerate(defaults) if i != at]
        return None if None in others else " and ".join(map(str, others))

    text = call(keyword)
    if len(attrs) > 1:
        for at, given in enumerate(keyword):
            if (others := unless(at)) is not None:
                text = f"{call([given])} if {others} else {text}"
    if attrs and None not in defaults:
        text = f"{call([])} if {' and '.join(map(str, defaults))} else {text}"
    return text


def _is_default(attr: Attr, parameter: str) -> str | None:
    """Whether an attribute has its default, as an expression; `None` where that takes more than a look."""
    if not attr.has_default:
        return None
    if attr.is_list:
        return f"not {parameter}" if attr.default == [] else None
    if attr.type == "bool":
        return parameter if attr.default else f"not {parameter}"
    if attr.type == "type":
        return f"{parameter} is {default_name(parameter)}"
    same = f"{parameter} == {attr.default!r}"
    if attr.type == "float":
        if not isinstance(attr.default, int | float) or not math.isfinite(attr.default):
            return None
        # A zero of the other sign is another value.
        sign = f" and copysign(1.0, {parameter}) == {math.copysign(1.0, attr.default)}"
        return same if attr.default else f"({same}{sign})"
    return same if attr.type in ("int", "string") else None


def default_name(parameter: str) -> str:
    """The name under which generated functions know the default of a dtype."""
    return f"default_{parameter}"


def _attrs(op: TorchOp) -> list[str]:
    return [f"a{i}" for i in range(len(op.definition.call_attrs))]


def _lists(op: Op) -> list[int]:
    """The inputs that are lists."""
    return [i for i, arg in enumerate(op.inputs) if arg.is_list]


def _starred(args: Sequence[Arg], letter: str) -> list[str]:
    """Arguments as elements of one list."""
    return [f"*{letter}{i}" if arg.is_list else f"{letter}{i}" for i, arg in enumerate(args)]


def _taken(groups: Sequence[tuple[str, str | None]], source: str, indent: str) -> str:
    """Lines that take tensors and lists of tensors out of one list. Each has a name, and a list a length."""
    if not any(length for _, length in groups):
        return f"{indent}{', '.join(name for name, _ in groups)}, = {source}\n" if groups else ""
    text, at = f"{indent}rest = {source}\n", "0"
    for name, length in groups:
        text += f"{indent}{name} = rest[{at}{f' : {at} + {length}' if length else ''}]\n"
        at += f" + {length or 1}"
    return text


def _node(op: TorchOp, gradient: TorchOp, shared: dict[str, Value]) -> Any:
    """An `autograd.Function` without the parts that transforms need."""
    scope = {
        **shared,
        "filled": _filled,
        "gradient": gradient.overload,
        "gradient_operator": gradient.overload._op,
    }
    text = _forward(op, gradient) + _backward(op, gradient)
    exec(compile(text, f"<opsmith {op.qualified_name}>", "exec"), scope)
    methods = {name: staticmethod(scope[name]) for name in ("forward", "backward")}
    node: Any = type(op.name, (_SingleLevelFunction,), methods)
    # The engine calls this. PyTorch's own looks `backward` up and checks the class in every backward pass.
    node._backward_cls.apply = scope["backward"]
    return node


def _given_none(op: TorchOp) -> list[int]:
    """The outputs whose gradients backward fills up itself, with zeros where there is none.

    Else autograd would make zeros for all outputs in every call, also for those that are only saved."""
    wiring = op.definition.gradient
    assert wiring is not None
    wired = [position for kind, position in wiring.inputs if kind == "output_gradient"]
    return wired if len(wired) < _shown(op) else []


def _shown(op: TorchOp) -> int:
    """How many outputs a node has: all, but for those at the end that are saved and nothing more."""
    definition = op.definition
    return 1 + max((i for i in range(len(definition.outputs)) if i not in definition.constants), default=0)


def _filled(
    grads: tuple[torch.Tensor | None, ...], likes: tuple[tuple[torch.Size, torch.dtype, torch.device], ...]
) -> tuple[torch.Tensor, ...]:
    """The gradients that arrived, and zeros for those that did not."""
    return tuple(
        torch.zeros(shape, dtype=dtype, device=device) if grad is None else grad
        for grad, (shape, dtype, device) in zip(grads, likes, strict=True)
    )


def _kept_attrs(op: TorchOp, gradient: TorchOp) -> dict[str, str]:
    """The attributes that the gradient op takes from the forward call: schema name → parameter."""
    parameters = {attr.name: f"a{i}" for i, attr in enumerate(op.definition.call_attrs)}
    return {
        name: parameters[attr.name]
        for name, attr in gradient.keyword_attrs.items()
        if attr.name in parameters
    }


def _forward(op: TorchOp, gradient: TorchOp) -> str:
    definition = op.definition
    assert definition.gradient is not None
    lengths = [f"n{i}" for i in _lists(definition)]
    results = [f"r{i}" for i in range(len(definition.outputs))]
    starred = {"input": _starred(definition.inputs, "x"), "output": _starred(definition.outputs, "r")}
    saved = [starred[kind][i] for kind, i in definition.gradient.inputs if kind != "output_gradient"]
    given = [(f"x{i}", f"n{i}" if arg.is_list else None) for i, arg in enumerate(definition.inputs)]
    named = [name for name, _ in given]
    text = f"def forward({', '.join(['ctx', *_attrs(op), *lengths, *(['*given'] if lengths else named)])}):\n"
    text += _taken(given, "given", "    ") if lengths else ""
    text += _BELOW_AUTOGRAD.format(indent="    ", name=", ".join(results), call=_call(op))
    # What `save_for_backward` does, without the call.
    text += f"    ctx.to_save = ({', '.join(saved)},)\n" if saved else ""
    text += "".join(f"    ctx.{name} = {name}\n" for name in (*lengths, *_kept_attrs(op, gradient).values()))
    if definition.outputs[0].is_list:
        text += "    ctx.outputs = len(r0)\n"
    shown = starred["output"][: _shown(op)]
    constants = [
        result
        for i, (result, output) in enumerate(zip(shown, definition.outputs, strict=False))
        if i in definition.constants
        or (output.dtype is not None and not getattr(torch, output.dtype).is_floating_point)
    ]
    if constants:
        text += f"    ctx.mark_non_differentiable({', '.join(constants)})\n"
    if wired := _given_none(op):
        likes = (f"({results[p]}.shape, {results[p]}.dtype, {results[p]}.device)" for p in wired)
        text += f"    ctx.materialize_grads = False\n    ctx.likes = ({', '.join(likes)},)\n"
    single = len(results) == 1 and not definition.outputs[0].is_list
    result = shown[0] if single else f"({', '.join(shown)},)"
    return f"{text}    return {result}\n\n\n"


def _backward(op: TorchOp, gradient: TorchOp) -> str:
    definition, wiring = op.definition, op.definition.gradient
    assert wiring is not None
    saved = [
        (f"s{i}", _length(definition, kind, p))
        for i, (kind, p) in enumerate(wiring.inputs)
        if kind != "output_gradient"
    ]
    arguments = [
        f"g{p}" if kind == "output_gradient" else f"s{i}" for i, (kind, p) in enumerate(wiring.inputs)
    ]
    arguments += [f"{name}=ctx.{kept}" for name, kept in _kept_attrs(op, gradient).items()]
    before = len(definition.call_attrs) + len(_lists(definition))
    inputs = [(f"needs{i}", _length(definition, "input", i)) for i in range(len(definition.inputs))]
    if _lists(definition):
        read = _taken(inputs, f"ctx.needs_input_grad[{before}:]", "    ")
        needs = [f"any({name})" if length else name for name, length in inputs]
    else:
        read = "    needs = ctx.needs_input_grad\n"
        needs = [f"needs[{before + i}]" for i in range(len(inputs))]
    if gradient.wanted is not None:
        bits = " | ".join(f"{needs[target]} << {i}" for i, target in enumerate(wiring.outputs))
        arguments.append(f"{gradient.wanted}={bits}")
    grads = ["*g0"] if definition.outputs[0].is_list else [f"g{i}" for i in range(_shown(op))]
    text = f"def backward(ctx, {', '.join(grads)}):\n{read}"
    text += _taken(saved, "ctx.saved_tensors", "    ")
    if wired := _given_none(op):
        given = ", ".join(f"g{p}" for p in wired)
        none = " or ".join(f"g{p} is None" for p in wired)
        text += f"    if {none}:\n        {given}, = filled(({given},), ctx.likes)\n"
    call = ", ".join(arguments)
    text += f"    if grad_enabled() or {_UNUSUAL}:\n        answer = gradient({call})\n    else:\n"
    text += _BELOW_AUTOGRAD.format(indent=" " * 8, name="answer", call=f"gradient_operator({call})")
    single = len(wiring.outputs) == 1
    found = {target: "answer" if single else f"answer[{i}]" for i, target in enumerate(wiring.outputs)}
    results = ["None"] * before
    for i, (_, length) in enumerate(inputs):
        if length is None:
            results.append(f"{found[i]} if {needs[i]} else None" if i in found else "None")
        else:
            none = f"[None] * {length}"
            results.append(f"*({found[i]} if {needs[i]} else {none})" if i in found else f"*({none})")
    return f"{text}    return {', '.join(results)}\n"


def _length(op: Op, kind: str, position: int) -> str | None:
    """Where a node keeps the length of a list, an input's or an output's; `None` of a single tensor."""
    arg = (op.inputs if kind == "input" else op.outputs)[position]
    if not arg.is_list:
        return None
    return f"ctx.n{position}" if kind == "input" else "ctx.outputs"
