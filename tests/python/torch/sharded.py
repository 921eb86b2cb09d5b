"""Calls of every example library and of generated bodies, and the same calls on DTensors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import axes_bodies
import dense_masks
import kernel_formulas
import numpy as np
import samples
import torch
from conftest import load
from opsmith._axes import FreeAxes, FreeAxis
from opsmith._library import op_of
from torch.distributed._local_tensor import LocalTensor
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.utils import _pytree as pytree

BODIES = 30
LIBRARIES = (
    "distances",
    "zero_out",
    "activations",
    "gelu",
    "kernels",
    "lltm",
    "masks",
    "median_pool",
    "pairwise",
    "reductions",
    "example",
)
Placements = Sequence[Any]


@dataclass(frozen=True)
class Call:
    """A function of a library and what it is called with."""

    name: str
    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    orders: int = 1
    """How many times it is differentiated."""

    def axes(self) -> list[tuple[FreeAxis, list[int | None]]]:
        """The free axes that are longer than 1, each with the dim of every tensor that is cut along it."""
        found = op_of(self.function)
        assert found is not None
        library, op = found
        groups = [x if isinstance(x, list) else [] if x is None else [x] for x in self.inputs]
        groups += [[]] * (len(op.inputs) - len(groups))
        ranks = [max((x.dim() for x in group), default=0) if group else None for group in groups]
        shapes = [[x.shape for x in group] for group in groups]
        axes = []
        for axis in FreeAxes(library._opsmith_loaded, op).of(self.attrs, ranks):
            size = axis.size(shapes)
            both = zip(axis.inputs, shapes, strict=True)
            dims = [axis.position(dim, shape, size) for dim, group in both for shape in group]
            if size > 1 and any(dim is not None for dim in dims):
                axes.append((axis, dims))
        return axes


def tensors(value: Any) -> list[torch.Tensor]:
    """Those of arguments or results, in order."""
    return [x for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor)]


def results(
    call: Call, placed: Callable[[int, torch.Tensor], torch.Tensor], counts: list[int] | None = None
) -> list[torch.Tensor | None]:
    """The outputs and their gradients, of inputs that `placed` makes; `counts` gets how often the call itself
    communicates."""
    numbers = itertools.count()

    def one(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        made = placed(next(numbers), x.detach().clone())
        return made.requires_grad_() if x.is_floating_point() and call.orders else made

    inputs = pytree.tree_map(one, call.inputs)
    with CommDebugMode() as communication:
        outputs = tensors(call.function(*inputs, **call.attrs))
    if counts is not None:
        counts.append(communication.get_total_counts())
    found: list[torch.Tensor | None] = list(outputs)
    sources = [x for x in tensors(inputs) if x.requires_grad]
    terms = [x for x in outputs if x.requires_grad]
    for order in range(call.orders if sources else 0):
        if not terms:
            break
        whole = sum((x * x * x).sum() for x in terms)
        gradients = torch.autograd.grad(
            whole, sources, allow_unused=True, create_graph=order + 1 < call.orders
        )
        found += gradients
        terms = [x for x in gradients if x is not None and x.requires_grad]
    return found


def whole(x: torch.Tensor | None) -> torch.Tensor | None:
    """As one process has it."""
    full = x.full_tensor() if isinstance(x, DTensor) else x
    return full.reconcile() if isinstance(full, LocalTensor) else full


def same(found: list[torch.Tensor | None], expected: list[torch.Tensor | None], told: str) -> None:
    """Equal but for the order of sums."""
    assert len(found) == len(expected), told
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None), told
        if one is not None and other is not None:
            exact = {} if other.dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-9}
            torch.testing.assert_close(
                whole(one), other, equal_nan=True, msg=lambda m: f"{told}: {m}", **exact
            )


def spread(mesh: Any, placements: Sequence[Placements]) -> Callable[[int, torch.Tensor], torch.Tensor]:
    """What makes DTensors of a call's tensors."""
    return lambda number, x: distribute_tensor(x, mesh, placements[number])


def compare(call: Call, mesh: Any, seed: int, axes: int | None = None) -> int:
    """The call and its gradients on DTensors against one process: cut along each free axis (the first `axes`
    of them where that is given), or along each two where the mesh has two dims, and anyhow. The number
    of calls."""
    expected = results(call, lambda _, x: x)
    count = len(tensors(call.inputs))
    free = call.axes()[:axes]
    ways: list[tuple[list[Any], str]] = [
        (list(pair), " and ".join(axis.name for axis, _ in pair))
        for pair in (itertools.combinations(free, 2) if mesh.ndim == 2 else ())
    ]
    # On a mesh of two dims those that are in no pair.
    ways += [([one], one[0].name) for one in free if not ways]
    for cut, name in ways:
        if any(dims_are_short(call, dims, mesh.size(at)) for at, (_, dims) in enumerate(cut)):
            continue
        placements = [
            [
                Replicate() if at >= len(cut) or cut[at][1][i] is None else Shard(cut[at][1][i])
                for at in range(mesh.ndim)
            ]
            for i in range(count)
        ]
        told = f"{call.name} along {name}: {placements}"
        if len(cut) == 2 and halves_are_short(call, cut, mesh):
            continue
        counts: list[int] = []
        same(results(call, spread(mesh, placements), counts), expected, told)
        assert counts == [0], f"{told} communicates {counts[0]} times"
    generator = np.random.default_rng(seed)
    anyhow = [
        [
            (Replicate(), *map(Shard, range(x.dim())))[generator.integers(x.dim() + 1)]
            for _ in range(mesh.ndim)
        ]
        for x in tensors(call.inputs)
    ]
    same(results(call, spread(mesh, anyhow)), expected, f"{call.name} placed as {anyhow}")
    return len(ways) + 1


def dims_are_short(call: Call, dims: Sequence[int | None], parts: int) -> bool:
    """Whether there are more parts than positions: such an axis is not cut."""
    both = zip(tensors(call.inputs), dims, strict=True)
    return any(dim is not None and x.shape[dim] < parts for x, dim in both)


def halves_are_short(call: Call, cut: Sequence[Any], mesh: Any) -> bool:
    """The same of a dim that is cut twice."""
    both = zip(tensors(call.inputs), cut[0][1], cut[1][1], strict=True)
    return any(a is not None and a == b and x.shape[a] < mesh.size() for x, a, b in both)


def normal(*shape: int) -> torch.Tensor:
    """Numbers around 0."""
    return torch.randn(shape, dtype=torch.float64)


def calls(library: str) -> list[Call]:
    """Of every op of a library, but for gradients of the second order on."""
    torch.manual_seed(0)
    return [call for call in _calls(library) if call.inputs]


def _calls(library: str) -> Iterator[Call]:
    loaded = load(library)

    def call(op: str, *inputs: Any, orders: int = 2, **attrs: Any) -> Call:
        return Call(f"{library}.{op}", getattr(loaded, op), inputs, attrs, orders)

    if library in ("distances", "zero_out"):
        for parameter in samples.cases(lambda case: case.library == library):
            yield from _of_sample(parameter.values[0])
    elif library == "activations":
        x, y = normal(5, 4), normal(1, 4)
        yield from [call("gelu", x), call("leaky_relu", x, slope=0.3), call("entropy", x.abs() + 0.1)]
        yield from [call("swiglu", x, normal(5, 4)), call("swiglu", x, y), call("swiglu", normal(4), x)]
        yield call("lltm_cell", x, normal(4), y, normal(5, 1))
    elif library == "gelu":
        yield from [call("gelu", normal(5, 4), approximate=how) for how in ("none", "tanh")]
    elif library == "kernels":
        for op, formula in kernel_formulas.formulas(np).items():
            inputs = [torch.from_numpy(x) for x in (*formula.numbers(), *formula.others)]
            yield call(op, *inputs, **formula.attrs)
        batch = [normal(2, 5, 3), normal(2, 6, 3), normal(2, 6, 4)]
        yield call("nearest", *batch[:2], orders=0)
        yield call("k_nearest", *batch[:2], orders=0, neighbours=2)
        yield call("gaussian_convolution", *batch)
        yield call("gaussian_convolution", batch[0], batch[1][:1], batch[2][0])
        yield call("attention", *batch, torch.tensor([6, 3]), causal=True)
    elif library == "lltm":
        yield call("lltm", normal(5, 3), normal(6, 5), normal(6), normal(5, 2), normal(5, 2), orders=1)
    elif library == "masks":
        case = next(c for c in dense_masks.random_cases(40) if min(c.embedding.shape) > 2)
        for op, attrs in dense_masks.OPS.items():
            yield call(
                op, torch.from_numpy(case.embedding), torch.from_numpy(case.rle_mask), orders=1, **attrs
            )
    elif library == "median_pool":
        images = torch.randperm(4 * 5 * 6 * 4).double().reshape(4, 5, 6, 4)
        for padding in ("VALID", "SAME"):
            yield call("median_pool", images, orders=1, ksize=[3, 2], strides=[1, 2], padding=padding)
    elif library == "pairwise":
        for op in (
            "manhattan",
            "squared_euclidean",
            "euclidean",
            "chebyshev",
            "canberra",
            "minkowski_power",
            "mean_squared",
        ):
            yield call(op, normal(5, 3), normal(4, 3), orders=1)
        yield call("euclidean", normal(4, 5, 3), normal(1, 4, 3))
    elif library == "reductions":
        x = normal(4, 5, 6)
        for axes in (1, 2):
            own = [call(op, x, orders=axes, axes=axes) for op in ("norm", "softmax", "log_sum_exp", "range")]
            yield from own
        yield call("layer_norm", x, normal(6), normal(6))
        yield call("layer_norm", x, normal(5, 6), normal(5, 6), axes=2)
    else:
        assert library == "example", library
        yield call("example", normal(5, 4).float(), orders=1)


def _of_sample(case: Any) -> Iterator[Call]:
    """Of an op of the tour of the definition language, as through `torch.ops`."""
    op = case.op
    is_pure = not op.stateful and not any(arg.ref for arg in op.inputs)
    if not is_pure or op.name == "NonZero" or "wanted" in case.sample.attrs:
        return
    orders = int(op.gradient is not None or not op.differentiable)
    yield Call(
        f"{case.library}.{op.snake_name}", case.function, case.sample.inputs(), case.sample.attrs, orders
    )


def bodies() -> list[Call]:
    """Generated ones."""
    library = axes_bodies.build()
    found = []
    for seed, body in enumerate(axes_bodies.bodies()[:BODIES]):
        inputs = [torch.from_numpy(x) for x in body.numbers({"i": 5, "j": 6, "k": 4, "l": 7}, seed)]
        # With a batch, of all inputs or of the first one.
        batches = [x * torch.linspace(0.9, 1.1, 5).reshape(5, *[1] * x.dim()) for x in inputs]
        inputs = batches if seed % 2 else [batches[0], *inputs[1:]]
        orders = 1 if seed % 4 else 2
        found.append(Call(body.name, getattr(library, body.name), tuple(inputs), {}, orders))
    return found
