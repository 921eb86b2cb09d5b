"""What an op gives when only shapes and dtypes are known: for `torch.compile`, `torch.export` and meta
tensors."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from opsmith.torch import _caches, _composed
from opsmith.torch._op import Call, TorchOp, Value, device_of, dtype_name

Size: TypeAlias = int | torch.SymInt

_CACHED_SHAPES = 256


def implementation(op: TorchOp, infer_shapes: Callable[[str], str], tag: str) -> Callable[..., Value]:
    """The function for `torch.library.register_fake`. `infer_shapes` takes and gives JSON; `tag` is what
    PyTorch's caches know the library by."""

    infer = _inference(op, infer_shapes)
    order = _Order(op)

    def fake(*args: Value, **kwargs: Value) -> Value:
        _caches.tell(tag)
        _composed.keep_uncached(op)
        call = op.bind(args, kwargs)
        device = _device(op, call)
        symbols = _Symbols()
        answer = infer(call, symbols)
        for constraint in answer["constraints"]:
            _check(op, constraint, symbols)
        tensors, counts = [], []
        for position, (shapes, dtypes) in enumerate(zip(answer["outputs"], answer["dtypes"], strict=True)):
            output = op.definition.outputs[position]
            is_wanted = not output.optional or call.wanted >> position & 1
            counts.append(len(shapes))
            for shape, dtype in zip(shapes, dtypes, strict=True):
                if shape is None and is_wanted:
                    raise RuntimeError(
                        f"{op.name}: the rank of output `{output.name}` does not follow from the inputs' "
                        "shapes, so the op cannot be traced or run on meta tensors"
                    )
                sizes = [symbols.evaluate(dim) for dim in shape] if is_wanted else [0]
                tensors.append(order.empty(call, sizes, dtype=getattr(torch, dtype), device=device))
        return op.unflatten(tensors, counts)

    return fake


class _Order:
    """In which order the dims of results lie in memory: as the module `order` of the library's code for
    PyTorch has it."""

    def __init__(self, op: TorchOp) -> None:
        arguments = re.findall(r"(\+?)\((.*?)\)", op.definition.parallel or "")
        self.is_kept = {dims for _, dims in arguments} == {"..."}
        self.may_be_sums = any(plus for plus, _ in arguments)

    def empty(self, call: Call, sizes: list[Size], **options: Any) -> torch.Tensor:
        """A result of this shape."""
        if self.is_kept:
            tensors = [tensor for value in call.inputs for tensor in _tensors(value)]
            alike = [tensor for tensor in tensors if _are_equal(tensor.shape, sizes)]
            if len(alike) != len(tensors) and self.may_be_sums:
                alike = []
            dense = next(filter(_is_dense, alike), None)
            if dense is not None and not _is_row_major(dense):
                return torch.empty_strided(sizes, dense.stride(), **options)
        return torch.empty(sizes, **options)


def _holds(condition: bool | torch.SymBool) -> bool:
    """Whether it is known to hold; what a traced program then relies on is checked when it is called."""
    if isinstance(condition, bool):
        return condition
    # Half a second to import, with sympy: only who traces needs it, and has it.
    from torch.fx.experimental import symbolic_shapes

    return symbolic_shapes.guard_or_false(condition)


def _is_row_major(tensor: torch.Tensor) -> bool:
    """Whether elements lie row-major without gaps. Here and below, what only the data decide is false."""
    expected: Size = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if _holds(size == 0):
            return True
        if not _holds(size == 1):
            if not _holds(stride == expected):
                return False
            expected *= size
    return True


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether there are elements, which lie without gaps and overlaps, with the dims in any order."""
    if any(_holds(size == 0) for size in tensor.shape):
        return False
    dims = zip(tensor.shape, tensor.stride(), strict=True)
    left = [dim for dim in dims if not _holds(dim[0] == 1)]
    expected: Size = 1
    while left:
        nearest = [i for i, (_, stride) in enumerate(left) if _holds(stride == expected)]
        if not nearest:
            return False
        expected *= left.pop(nearest[0])[0]
    return True


def _are_equal(shape: Sequence[Size], other: Sequence[Size]) -> bool:
    return len(shape) == len(other) and all(_holds(a == b) for a, b in zip(shape, other, strict=True))


def output_shapes(
    op: TorchOp, infer_shapes: Callable[[str], str]
) -> Callable[[Call], list[list[list[Size]]]]:
    """A function that gives the shapes of each output's tensors. The inputs of the call have to have a shape
    and a dtype, and need not be tensors."""
    infer = _inference(op, infer_shapes)

    def shapes(call: Call) -> list[list[list[Size]]]:
        symbols = _Symbols()
        found: list[list[list[Size]]] = []
        for output, group in zip(op.definition.outputs, infer(call, symbols)["outputs"], strict=True):
            if any(shape is None or None in shape for shape in group):
                raise RuntimeError(
                    f"{op.name}: the shape of output `{output.name}` does not follow from the inputs' "
                    "shapes, so a call cannot be spread over processes"
                )
            found.append([[symbols.evaluate(dim) for dim in shape] for shape in group])
        return found

    return shapes


def _inference(op: TorchOp, infer_shapes: Callable[[str], str]) -> Callable[[Call, _Symbols], Any]:
    """What the library answers about a call, sizes by names that are kept in the symbols."""

    @functools.lru_cache(_CACHED_SHAPES)
    def infer(request: str) -> Any:
        return json.loads(infer_shapes(request))

    def answer(call: Call, symbols: _Symbols) -> Any:
        request = {
            "inputs": [_shapes(value, symbols) for value in call.inputs],
            "dtypes": [_dtypes(value) for value in call.inputs],
            "attrs": {
                name: _attribute(op, name, value) for name, value in call.attrs.items() if value is not None
            },
        }
        return infer(json.dumps(request))

    return answer


class _Symbols:
    """Names for the symbolic sizes of a call: one name for one symbolic expression."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._sizes: dict[str, torch.SymInt] = {}

    def dim(self, size: Size) -> int | str:
        """The size as the request has it: a number or a symbol's name."""
        if isinstance(size, int):
            return size
        constant = size.node.maybe_as_int()
        if constant is not None:
            return constant
        name = self._names.setdefault(str(size), f"s{len(self._names)}")
        self._sizes[name] = size
        return name

    def evaluate(self, dim: Value) -> Size:
        """The size that the answer means; an unknown one becomes a symbol that only the data decide."""
        match dim:
            case None:
                return torch.library.get_ctx().new_dynamic_size()
            case int():
                return dim
            case str():
                return self._sizes[dim]
        operator, *operands = dim
        return functools.reduce(_OPERATORS[operator], map(self.evaluate, operands))


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    # Python's own would look at the values and tie the graph to the order that they are in.
    "min": torch.sym_min,
    "max": torch.sym_max,
}


def _check(op: TorchOp, constraint: dict[str, Any], symbols: _Symbols) -> None:
    left, right = symbols.evaluate(constraint["left"]), symbols.evaluate(constraint["right"])
    message = f"{op.name}: {constraint['message']}"
    if constraint["relation"] == "==":
        torch._check(left == right, lambda: f"{message}: {left} ≠ {right}")
    else:
        torch._check(left >= right, lambda: f"{message}: {left} < {right}")


def _device(op: TorchOp, call: Call) -> torch.device:
    """The device of all tensors, but for those that a CUDA kernel reads in host memory. Kernels have one
    device; without this check a meta tensor would hide a mistake."""
    found = device_of(op.definition, call.inputs)
    host_inputs = op.definition.host_inputs if found.type == "cuda" else frozenset()
    for position, (arg, value) in enumerate(zip(op.definition.inputs, call.inputs, strict=True)):
        for tensor in _tensors(value):
            if position in host_inputs:
                if tensor.device.type != "cpu":
                    raise RuntimeError(
                        f"{op.name}: input `{arg.name}` is on {tensor.device}; the CUDA kernel reads it "
                        "in host memory"
                    )
            elif tensor.device != found:
                raise RuntimeError(
                    f"{op.name}: all inputs must be on one device, but `{arg.name}` is on {tensor.device} "
                    f"and another on {found}"
                )
    return found


def _tensors(value: Value) -> list[torch.Tensor]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _shapes(value: Value, symbols: _Symbols) -> list[list[int | str]] | None:
    return (
        None
        if value is None
        else [[symbols.dim(size) for size in tensor.shape] for tensor in _tensors(value)]
    )


def _dtypes(value: Value) -> list[str] | None:
    return None if value is None else [dtype_name(tensor.dtype) for tensor in _tensors(value)]


def _attribute(op: TorchOp, name: str, value: Value) -> Value:
    """The attribute as JSON."""
    attr = op.definition.attr(name)
    convert = functools.partial(_attribute_value, op, attr.name, attr.type)
    return [convert(element) for element in value] if attr.is_list else convert(value)


def _attribute_value(op: TorchOp, name: str, kind: str, value: Value) -> Value:
    match kind:
        case "float":
            return value if math.isfinite(value) else str(value)
        case "type":
            return dtype_name(value)
        case "shape":
            return [None if dim == -1 else dim for dim in value]
        case "tensor":
            if type(value) is not torch.Tensor or value.device.type == "meta":
                raise RuntimeError(f"{op.name}: attribute `{name}` is a tensor, whose value cannot be traced")
            return {
                "dtype": dtype_name(value.dtype),
                "shape": list(value.shape),
                "values": [_attribute_value(op, name, "float", x) for x in value.flatten().tolist()],
            }
        case _:
            return value
