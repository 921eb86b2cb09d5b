"""The autograd kernel of an op: it makes `torch.ops.<library>.<op>` differentiable by itself, under
`torch.func`'s transforms too, and in forward mode."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import _C
from torch.autograd import forward_ad
from torch.autograd.forward_ad import _set_fwd_grad_enabled
from torch.autograd.function import _SingleLevelFunction

from opsmith import _forward, _registered
from opsmith.torch import _composed
from opsmith.torch._forward import Derivative
from opsmith.torch._op import TorchOp, Value, split

_LEVEL = 0
"""The only level of forward mode that PyTorch has."""

Context: TypeAlias = Any
"""What PyTorch hands to `setup_context` and `backward`."""


def kernel(derivative: Derivative) -> Callable[..., Value]:
    """The function for the dispatch key `Autograd`."""
    op = derivative.op
    node = _node(derivative)
    changes_inputs = [arg.name for arg in op.definition.inputs if arg.ref]
    # Every call of the op comes by here, so names are looked up once.
    is_grad_enabled, any_requires_grad = torch.is_grad_enabled, _C._any_requires_grad
    below_autograd, below_keys = _C._AutoDispatchBelowAutograd, _C._after_autograd_keyset
    redispatch = op.overload._handle.redispatch_boxed

    def autograd(keyset: _C.DispatchKeySet, *args: Value, **kwargs: Value) -> Value:
        if is_grad_enabled() and any_requires_grad(*args):
            if changes_inputs:
                raise RuntimeError(
                    f"{op.name}: changes `{changes_inputs[0]}` in place and has no gradient; call it under "
                    "torch.no_grad() or on detached tensors"
                )
            tensors, layout = _flatten(args)
            recorded = _Recorded(keyset, layout, kwargs)
            recorded.has_tangents = any(_dual(t)[1] is not None for t in tensors)
            with _within_functorch():
                outputs = node.apply(recorded, *tensors)
            return op.unflatten(outputs, recorded.output_counts)
        # Not only where Python sees a level: compiled programs enter theirs by themselves.
        tensors, layout = _flatten(args)
        duals = [_dual(t) for t in tensors]
        if any(tangent is not None for _, tangent in duals):
            recorded = _Recorded(keyset, layout, kwargs)
            return _with_tangents(derivative, partial(autograd, keyset), recorded, duals)
        with below_autograd():
            return redispatch(keyset & below_keys, *args, **kwargs)

    return autograd


@dataclass
class _Recorded:
    """A call without its tensors: what autograd may keep without keeping memory."""

    keyset: _C.DispatchKeySet
    layout: tuple[int | None, ...]
    """For each positional argument the number of tensors if it is a list, else None."""
    kwargs: dict[str, Value]
    output_counts: tuple[int, ...] = ()
    has_tangents: bool = False

    def arguments(self, tensors: Sequence[torch.Tensor | None]) -> list[Value]:
        """The positional arguments again."""
        groups = split(tensors, [1 if count is None else count for count in self.layout])
        return [
            group[0] if count is None else list(group)
            for count, group in zip(self.layout, groups, strict=True)
        ]


def _flatten(args: Sequence[Value]) -> tuple[list[torch.Tensor | None], tuple[int | None, ...]]:
    tensors: list[torch.Tensor | None] = []
    layout: list[int | None] = []
    for value in args:
        is_list = isinstance(value, list | tuple)
        tensors.extend(value if is_list else [value])
        layout.append(len(value) if is_list else None)
    return tensors, tuple(layout)


@contextlib.contextmanager
def _within_functorch() -> Iterator[None]:
    """Lets this kernel record a node at one level of `torch.func`'s transforms, as PyTorch's own kernels
    do."""
    if not _C._are_functorch_transforms_active():
        yield
        return
    allowed = _C._functorch.get_single_level_autograd_function_allowed()
    _C._functorch.set_single_level_autograd_function_allowed(True)
    try:
        yield
    finally:
        _C._functorch.set_single_level_autograd_function_allowed(allowed)


def _redispatch(op: TorchOp, recorded: _Recorded, tensors: Sequence[torch.Tensor | None]) -> Value:
    keyset = recorded.keyset & _C._after_autograd_keyset
    with contextlib.ExitStack() as stack:
        if _C._are_functorch_transforms_active():
            # `forward` runs with gradients switched off, but the levels below record theirs.
            stack.enter_context(torch.enable_grad())
            stack.enter_context(_set_fwd_grad_enabled(True))
        stack.enter_context(_C._AutoDispatchBelowAutograd())
        return op.overload.redispatch(keyset, *recorded.arguments(tensors), **recorded.kwargs)


def _node(derivative: Derivative) -> Any:
    op, gradient = derivative.op, derivative.gradient
    library, may_register = op.overload.namespace, _registered.may_register(op.definition)

    def forward(recorded: _Recorded, *tensors: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        outputs, recorded.output_counts = op.flatten(_redispatch(op, recorded, tensors))
        return outputs

    def setup_context(ctx: Context, inputs: tuple[Value, ...], output: tuple[torch.Tensor, ...]) -> None:
        recorded, *tensors = inputs
        ctx.recorded = recorded
        ctx.set_materialize_grads(False)
        if recorded.has_tangents:
            ctx.call = (tensors, output)
        flows = _flows(op, recorded, output)
        ctx.mark_non_differentiable(*(t for t, is_open in zip(output, flows, strict=True) if not is_open))
        ctx.composed = None
        if may_register and (function := _registered.find(library, op.definition)) is not None:
            ctx.save_for_backward(*tensors, *output)
            ctx.composed = _composed.Composed(function, flows, _wanted(op, recorded), recorded.kwargs)
        elif gradient is not None:
            _save(derivative, ctx, tensors, output)
            ctx.inferred = _inferred(op, gradient, recorded, tensors)
        elif not op.definition.differentiable:
            ctx.inputs = [None if t is None else _Like.of(t) for t in tensors]

    def backward(ctx: Context, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        if ctx.composed is not None:
            return None, *_composed_gradients(op, ctx, grads)
        if gradient is not None:
            return None, *_gradients(op, gradient, ctx, grads)
        if not op.definition.differentiable:
            needed = zip(ctx.inputs, ctx.needs_input_grad[1:], strict=True)
            return None, *(like.zeros() if needs and like else None for like, needs in needed)
        raise NotImplementedError(f"{op.name}: {_registered.NO_GRADIENT}")

    def jvp(ctx: Context, _: None, *tangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        tensors, output = ctx.call
        # What is saved keeps what it needs.
        del ctx.call
        primals = [_dual(t)[0] for t in tensors]
        found = _tangents(derivative, ctx.recorded, primals, output, list(tangents))
        # PyTorch takes nothing else for what is differentiable.
        flows = _flows(op, ctx.recorded, output)
        return tuple(
            torch.zeros_like(x) if t is None and is_open else t
            for x, t, is_open in zip(output, found, flows, strict=True)
        )

    methods: dict[str, Any] = {
        "forward": forward,
        "setup_context": setup_context,
        "backward": backward,
        "jvp": jvp,
    }
    # PyTorch calls what it records by this name with `Backward` behind it.
    return type(
        op.name, (_SingleLevelFunction,), {key: staticmethod(method) for key, method in methods.items()}
    )


def _wanted(op: TorchOp, recorded: _Recorded) -> int:
    """Bit i is set when output i of the definition is wanted."""
    return recorded.kwargs.get(op.wanted, -1) if op.wanted else -1


def _flows(op: TorchOp, recorded: _Recorded, output: Sequence[torch.Tensor]) -> list[bool]:
    """For each tensor of the outputs, whether a gradient flows through it: not through integers, what is
    saved and nothing more, and placeholders of outputs that nobody wants."""
    wanted = _wanted(op, recorded)
    found: list[bool] = []
    groups = zip(op.definition.outputs, split(output, recorded.output_counts), strict=True)
    for position, (arg, group) in enumerate(groups):
        is_open = (not arg.optional or wanted >> position & 1) and position not in op.definition.constants
        found += [bool(is_open) and (t.is_floating_point() or t.is_complex()) for t in group]
    return found


def _input_counts(op: TorchOp, recorded: _Recorded) -> list[int]:
    """How many tensors each input of the definition holds."""
    counts = [1 if count is None else count for count in recorded.layout]
    return [*counts[: len(op.definition.inputs)], *[0] * (len(op.definition.inputs) - len(counts))]


def _save(
    derivative: Derivative,
    ctx: Context,
    tensors: Sequence[torch.Tensor | None],
    output: Sequence[torch.Tensor],
) -> None:
    """Saves what the gradient op takes, and nothing else."""
    op = derivative.op
    wiring = op.definition.gradient
    assert wiring is not None
    inputs = list(split(tensors, _input_counts(op, ctx.recorded)))
    outputs = list(split(output, ctx.recorded.output_counts))
    groups = {"input": inputs, "output": outputs}
    saved = [groups[kind][position] for kind, position in wiring.inputs if kind in groups]
    ctx.saved_counts = list(map(len, saved))
    ctx.save_for_backward(*(tensor for group in saved for tensor in group))
    # What is there for an output that is not wanted has no shape.
    wanted, twin = _wanted(op, ctx.recorded), derivative.chain.twin
    for at, arg in enumerate(op.definition.outputs):
        if arg.optional and not wanted >> at & 1 and (place := twin(at)) is not None:
            outputs[at] = inputs[place]
    ctx.outputs = [[_Like.of(t) for t in group if t is not None] for group in outputs]


def _inferred(
    op: TorchOp, gradient: TorchOp, recorded: _Recorded, tensors: Sequence[torch.Tensor | None]
) -> dict[str, Value]:
    """What the inputs decide and the gradient op, which takes other inputs, has to be told."""
    groups = list(split(tensors, _input_counts(op, recorded)))
    known = _forward.inferred(op.definition, gradient.definition, groups, lambda tensor: tensor.dtype)
    return {name: known[attr.name] for name, attr in gradient.keyword_attrs.items() if attr.name in known}


@dataclass(frozen=True)
class _Like:
    """What zeros in the place of a tensor are made by, without keeping its memory."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    mesh: Any
    """The device mesh of a DTensor, `None` for any other tensor."""
    placements: tuple[Any, ...]

    @staticmethod
    def of(tensor: torch.Tensor) -> _Like:
        """As this tensor is."""
        mesh = getattr(tensor, "device_mesh", None)
        placements = () if mesh is None else tensor.placements  # type: ignore[attr-defined]
        return _Like(tensor.shape, tensor.dtype, tensor.device, mesh, placements)

    def zeros(self) -> torch.Tensor:
        """Made anew."""
        if self.mesh is None:
            return torch.zeros(self.shape, dtype=self.dtype, device=self.device)
        from torch.distributed import tensor

        placements = [tensor.Replicate() if p.is_partial() else p for p in self.placements]
        zeros: torch.Tensor = tensor.zeros(
            self.shape, dtype=self.dtype, device_mesh=self.mesh, placements=placements
        )
        return zeros


def _gradients(
    op: TorchOp,
    gradient: TorchOp,
    ctx: Context,
    grads: Sequence[torch.Tensor | None],
) -> list[torch.Tensor | None]:
    """The gradient with respect to each tensor of the call, `None` where there is none."""
    wiring = op.definition.gradient
    assert wiring is not None
    result: list[torch.Tensor | None] = [None] * (len(ctx.needs_input_grad) - 1)
    if all(grad is None for grad in grads):
        return result
    counts = _input_counts(op, ctx.recorded)
    needs = [any(group) for group in split(ctx.needs_input_grad[1:], counts)]
    wanted = [needs[target] for target in wiring.outputs]
    answer = gradient.overload(
        *_gradient_inputs(op, gradient, ctx, grads), **_gradient_kwargs(op, gradient, ctx, wanted)
    )
    tensors, answer_counts = gradient.flatten(answer)
    starts = [sum(counts[:i]) for i in range(len(counts))]
    groups = split(tensors, answer_counts)
    for target, is_wanted, group in zip(wiring.outputs, wanted, groups, strict=True):
        if is_wanted:
            result[starts[target] : starts[target] + counts[target]] = group
    return result


def _composed_gradients(
    op: TorchOp, ctx: Context, grads: Sequence[torch.Tensor | None]
) -> list[torch.Tensor | None]:
    """The gradient with respect to each tensor of the call, by a function that a user has registered."""
    needs = ctx.needs_input_grad[1:]
    if all(grad is None for grad in grads):
        return [None] * len(needs)
    recorded: _Recorded = ctx.recorded
    tensors = ctx.saved_tensors
    counts = [1 if count is None else count for count in recorded.layout]
    found = _composed.gradients(
        op,
        ctx.composed,
        list(split(tensors[: len(needs)], counts)),
        list(split(tensors[len(needs) :], recorded.output_counts)),
        list(split(grads, recorded.output_counts)),
    )
    return [gradient if is_needed else None for gradient, is_needed in zip(found, needs, strict=True)]


def _gradient_inputs(
    op: TorchOp,
    gradient: TorchOp,
    ctx: Context,
    grads: Sequence[torch.Tensor | None],
) -> list[Value]:
    wiring = op.definition.gradient
    assert wiring is not None
    saved = split(ctx.saved_tensors, ctx.saved_counts)
    by_output = list(split(grads, ctx.recorded.output_counts))
    arguments: list[Value] = []
    for arg, (kind, position) in zip(gradient.definition.inputs, wiring.inputs, strict=True):
        if kind != "output_gradient":
            group: Sequence[Value] = next(saved)
        elif arg.optional and all(grad is None for grad in by_output[position]):
            group = [None]
        else:
            likes = ctx.outputs[position]
            pairs = zip(by_output[position], likes, strict=True)
            group = [like.zeros() if grad is None else grad for grad, like in pairs]
        arguments.append(list(group) if arg.is_list else (group[0] if group else None))
    return arguments


def _gradient_kwargs(
    op: TorchOp, gradient: TorchOp, ctx: Context, wanted: Sequence[bool]
) -> dict[str, Value]:
    """The attributes that both ops have, as the forward call had them, and which gradients are wanted."""
    given = {
        op.keyword_attrs[name].name: value for name, value in ctx.recorded.kwargs.items() if name != op.wanted
    }
    kwargs = {name: given[attr.name] for name, attr in gradient.keyword_attrs.items() if attr.name in given}
    kwargs |= ctx.inferred
    if gradient.wanted is not None:
        kwargs[gradient.wanted] = sum(1 << i for i, is_wanted in enumerate(wanted) if is_wanted)
    return kwargs


def _dual(tensor: torch.Tensor | None) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The tensor without its tangent, and that."""
    if tensor is None:
        return None, None
    primal, tangent = forward_ad.unpack_dual(tensor, level=_LEVEL)  # type: ignore[no-untyped-call]
    return primal, tangent


def _with_tangents(
    derivative: Derivative,
    call: Callable[..., Value],
    recorded: _Recorded,
    duals: list[tuple[torch.Tensor | None, torch.Tensor | None]],
) -> Value:
    """The outputs of a call with their tangents; `call` computes without."""
    op = derivative.op
    primals = [primal for primal, _ in duals]
    result = call(*recorded.arguments(primals), **recorded.kwargs)
    tensors, recorded.output_counts = op.flatten(result)
    tangents = _tangents(derivative, recorded, primals, tensors, [tangent for _, tangent in duals])
    return op.unflatten(
        [
            x if t is None else forward_ad.make_dual(x, t, level=_LEVEL)  # type: ignore[no-untyped-call]
            for x, t in zip(tensors, tangents, strict=True)
        ],
        recorded.output_counts,
    )


def _tangents(
    derivative: Derivative,
    recorded: _Recorded,
    primals: Sequence[torch.Tensor | None],
    outputs: Sequence[torch.Tensor],
    tangents: Sequence[torch.Tensor | None],
) -> list[torch.Tensor | None]:
    """The tangent of each tensor of the outputs, `None` where none flows."""
    op = derivative.op
    flows = _flows(op, recorded, outputs)
    if not op.definition.differentiable or not any(flows):
        return [None] * len(outputs)
    is_registered = _registered.find(op.overload.namespace, op.definition) is not None
    if is_registered or any(arg.ref for arg in op.definition.inputs):
        raise derivative.missing()
    counts = _input_counts(op, recorded)
    count = sum(counts)
    if any(tangent is not None for tangent in tangents[count:]):
        raise derivative.missing()
    found = derivative.tangents(
        [list(group) for group in split(primals[:count], counts)],
        [list(group) for group in split(outputs, recorded.output_counts)],
        [list(group) for group in split(tangents[:count], counts)],
        recorded.kwargs,
    )
    flat = [tangent for group in found for tangent in group]
    return [tangent if is_open else None for tangent, is_open in zip(flat, flows, strict=True)]
