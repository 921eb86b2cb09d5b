"""Gradients that users give to ops which declare none, as functions of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from opsmith._definition import Arg, Op
from opsmith._errors import AlreadyExistsError, InvalidArgumentError
from opsmith._forks import LOADING
from opsmith._library import definition_of, op_of

Function: TypeAlias = Callable[[list[Any], list[Any], dict[str, Any], list[Any]], Sequence[Any]]
"""Takes inputs, outputs, attributes and the outputs' gradients; gives a gradient or `None` for each input."""

_F = TypeVar("_F", bound=Function)

NO_GRADIENT = (
    "has no gradient, so nothing can be differentiated through it; declare one by `gradient = …` at the op, "
    "or see opsmith.register_gradient; a body derives three orders, or as many as it says in its options: "
    "`orders = 4`"
)
"""What is said of an op without one."""

_registered: dict[tuple[str, str], Function] = {}


def register_gradient(op: Callable[..., Any], /, *, replace: bool = False) -> Callable[[_F], _F]:
    """Give a gradient to an op whose library declares none. It works in all frameworks and in graphs.

        @opsmith.register_gradient(library.squares)
        def squares_gradient(inputs, outputs, attributes, grads):
            return [2.0 * inputs[0] * grads[0]]

    - `op`: a function of a library.
    - `replace`: whether to replace a gradient that was registered before.

    Returns a decorator. The decorated function is called with tensors of the framework that differentiates.
    It may use that framework's functions and ops of libraries; its result can be differentiated again if
    they can. Its parameters:

    - `inputs`: one item for each input: a tensor, a list of tensors, or `None` for an absent optional input;
    - `outputs`: the same for each output, including those that only serve the gradient; `None` for one that
      the call did not ask for;
    - `attributes`: a dict with the value of each attribute that callers may pass, by its name in the
      definition. Dtypes are the framework's, and an unknown dim of a shape is `None`;
    - `grads`: for each output the gradient that arrives, with the output's structure; zeros if none does,
      and `None` for integers and for outputs that only serve the gradient.

    It must return a list with one item for each input: a gradient of the input's shape and dtype, a list of
    them for a list, or `None` if there is none, as for integers.

    The gradient applies to calls made from now on, also those by `torch.ops` and `tf.load_op_library`.
    Programs that were compiled or traced before keep what they had.

    Raises `opsmith.InvalidArgumentError` if `op` is not a function of a library, changes an input in place
    or has no inputs. Raises `opsmith.AlreadyExistsError` if the op declares a gradient, declares that it has
    none, or already has a registered one and `replace` is false. A result that does not fit is an
    `opsmith.InvalidArgumentError` of the backward pass. Exceptions of the function are passed on.
    """
    found = op_of(op)
    if found is None:
        raise InvalidArgumentError(
            f"`register_gradient` takes a function of a library from `opsmith.load`, got {op!r}"
        )
    library, definition = found
    _check(definition)
    key = (definition_of(library).name, definition.name)

    def register(function: _F) -> _F:
        if not callable(function):
            text = f"its gradient must be a function, got {function!r}"
            raise InvalidArgumentError.of(definition.name, None, text)
        with LOADING:
            if key in _registered and not replace:
                raise AlreadyExistsError(
                    f"{definition.name}: already has a registered gradient, {_name(_registered[key])}; "
                    "pass `replace=True` to replace it"
                )
            _registered[key] = function
        return function

    return register


def find(library: str, op: Op) -> Function | None:
    """The gradient that has been registered for an op of the library of this name."""
    return _registered.get((library, op.name))


def may_register(op: Op) -> bool:
    """Whether the op declares nothing of its gradient."""
    return op.gradient is None and op.differentiable


def evaluate(
    op: Op,
    function: Function,
    inputs: list[Any],
    outputs: list[Any],
    attributes: dict[str, Any],
    grads: list[Any],
    mismatch: Callable[[Any, Any], str | None],
) -> list[list[Any]]:
    """The gradients of the tensors of each input: lists of one where an input is no list.

    `mismatch` says what is wrong with a gradient of a tensor. Raises `InvalidArgumentError` for a result that
    does not fit the inputs.
    """
    found = function(list(inputs), outputs, attributes, grads)
    expected = len(op.inputs)
    if not isinstance(found, list | tuple) or len(found) != expected:
        plural = "s" if expected > 1 else ""
        raise InvalidArgumentError.of(
            op.name,
            None,
            f"its registered gradient must return a list of {expected} gradient{plural}, one for "
            f"each input, got {_form(found)}",
        )
    return [
        _group(op, arg, tensors, gradients, mismatch)
        for arg, tensors, gradients in zip(op.inputs, inputs, found, strict=True)
    ]


def _check(op: Op) -> None:
    changed = next((arg.name for arg in op.inputs if arg.ref), None)
    if changed is not None:
        raise InvalidArgumentError.of(
            op.name, changed, f"changes `{changed}` in place, so it cannot have a gradient"
        )
    if not op.inputs:
        raise InvalidArgumentError.of(op.name, None, "has no inputs, so it cannot have a gradient")
    if op.gradient is not None:
        raise AlreadyExistsError.of(op.name, None, f"declares a gradient, the op {op.gradient.op}")
    if not op.differentiable:
        raise AlreadyExistsError.of(op.name, None, "declares that it is not differentiable")


def _group(
    op: Op, arg: Arg, tensors: Any, gradients: Any, mismatch: Callable[[Any, Any], str | None]
) -> list[Any]:
    if not arg.is_list:
        tensors, gradients = [tensors], [gradients]
    elif gradients is None:
        return [None] * len(tensors)
    elif not isinstance(gradients, list | tuple) or len(gradients) != len(tensors):
        raise InvalidArgumentError.of(
            op.name,
            arg.name,
            f"the registered gradient of input `{arg.name}` must be a list of {len(tensors)}, one "
            f"for each of its tensors, or None, got {_form(gradients)}",
        )
    for position, (tensor, gradient) in enumerate(zip(tensors, gradients, strict=True)):
        if gradient is None:
            continue
        wrong = "must be None, for the input is absent" if tensor is None else mismatch(tensor, gradient)
        if wrong is not None:
            place = f"{arg.name}[{position}]" if arg.is_list else arg.name
            raise InvalidArgumentError.of(
                op.name, None, f"the registered gradient of input `{place}` {wrong}"
            )
    return list(gradients)


def _form(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return "None" if value is None else f"a {type(value).__name__}"


def _name(function: Function) -> str:
    return f"`{getattr(function, '__qualname__', None) or type(function).__name__}`"
