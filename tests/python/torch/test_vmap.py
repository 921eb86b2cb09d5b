"""`torch.vmap` of bodies, and of ops that say which dims are independent: one call for a batch."""

from __future__ import annotations

import itertools
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import kernel_formulas
import numpy as np
import opsmith
import pytest
import torch
from conftest import LIBRARIES, load
from torch.func import grad, vmap
from torch.utils._python_dispatch import TorchDispatchMode

SIZE = 3
NAMES = {"kernels", "activations", "distances", "lltm"}
FORMULAS = kernel_formulas.formulas(np)


class Calls(TorchDispatchMode):
    """Counts the calls of Opsmith's ops, but for those that only ask for shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_meta = any(isinstance(x, torch.Tensor) and x.is_meta for x in args)
        self.count += not is_meta and func.namespace in NAMES
        return func(*args, **(kwargs or {}))


def loop(f: Callable[..., Any], tensors: list[torch.Tensor], dims: tuple[int | None, ...]) -> Any:
    """What `vmap` stands for."""
    answers = [
        f(*(x if dim is None else x.select(dim, index) for x, dim in zip(tensors, dims, strict=True)))
        for index in range(SIZE)
    ]
    if isinstance(answers[0], tuple):
        return tuple(torch.stack(column) for column in zip(*answers, strict=True))
    return torch.stack(answers)


def compare(f: Callable[..., Any], tensors: list[torch.Tensor], dims: tuple[int | None, ...]) -> int:
    """The batch against a loop; how many calls of ops the batch takes."""
    with warnings.catch_warnings(), Calls() as calls:
        warnings.simplefilter("error", RuntimeWarning)
        ours = vmap(f, dims)(*tensors)
    torch.testing.assert_close(ours, loop(f, tensors, dims), rtol=1e-9, atol=1e-9)
    return calls.count


def batches(inputs: list[torch.Tensor], seed: int) -> list[tuple[list[torch.Tensor], tuple[int | None, ...]]]:
    """Every choice of inputs to be batched, each along some dim."""
    generator = np.random.default_rng(seed)
    found = []
    for choice in itertools.product([False, True], repeat=len(inputs)):
        if not any(choice):
            continue
        dims = tuple(
            int(generator.integers(x.dim() + 1)) if is_batched else None
            for x, is_batched in zip(inputs, choice, strict=True)
        )
        tensors = [
            x if dim is None else torch.stack([x + torch.rand_like(x) for _ in range(SIZE)], dim)
            for x, dim in zip(inputs, dims, strict=True)
        ]
        found.append((tensors, dims))
    return found


@pytest.mark.parametrize("op", FORMULAS)
def test_bodies_are_called_once(op: str) -> None:
    kernels, formula = load("kernels"), FORMULAS[op]
    others = [torch.from_numpy(array) for array in formula.others]

    def value(*x: torch.Tensor) -> torch.Tensor:
        return getattr(kernels, op)(*x, *others, **formula.attrs)

    inputs = [torch.from_numpy(array) for array in formula.numbers(5)]
    is_smooth = value(*inputs).is_floating_point()
    for tensors, dims in batches(inputs, 0):
        assert compare(value, tensors, dims) == 1
        if is_smooth:
            slope = grad(lambda *x: (value(*x) ** 2).sum(), argnums=tuple(range(len(inputs))))
            assert compare(slope, tensors, dims) == 2


def test_labels_and_lengths_are_batched_too() -> None:
    kernels = load("kernels")
    x, labels = torch.rand(SIZE, 5, 4, dtype=torch.float64), torch.tensor([[0, 1, 2, 3, 0]] * SIZE)
    assert compare(kernels.cross_entropy, [x, labels], (0, 0)) == 1
    assert compare(kernels.cross_entropy, [x[0], labels], (None, 0)) == 1


def test_elements_of_other_ranks_broadcast() -> None:
    swiglu = load("activations").swiglu
    pairs = [((2, 4), (4,)), ((), (2, 4)), ((1, 4), (2, 1)), ((3,), (3, 3))]
    for shapes in pairs:
        inputs = [torch.rand(shape, dtype=torch.float64) for shape in shapes]
        slope = grad(lambda x, y: (swiglu(x, y) ** 2).sum(), argnums=(0, 1))
        second = grad(lambda x, y: sum((g * g).sum() for g in slope(x, y)), argnums=(0, 1))  # noqa: B023
        for tensors, dims in batches(inputs, 1):
            assert compare(swiglu, tensors, dims) == 1
            assert compare(slope, tensors, dims) == 2
            compare(second, tensors, dims)


def test_a_batch_goes_beside_a_dim_that_is_free(distances: opsmith.Library) -> None:
    f = distances.pairwise_manhattan_distance
    x, y = torch.rand(4, 3, dtype=torch.float64), torch.rand(5, 3, dtype=torch.float64)
    for dim in range(3):
        assert compare(f, [torch.stack([x, x + 1, x * 2], dim), y], (dim, None)) == 1
        assert compare(f, [x, torch.stack([y, y + 1, y * 2], dim)], (None, dim)) == 1
    both = [torch.stack([x, x + 1, x * 2]), torch.stack([y, y + 1, y * 2])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        torch.testing.assert_close(vmap(f)(*both), loop(f, both, (0, 0)))
    # Of gradients that nobody wants nothing is a sum over the batch.
    assert compare(grad(lambda x: f(x, y).sum()), [both[0]], (0,)) == 2
    lltm = load("lltm")
    b, f_, s = 4, 3, 2
    given = [(b, f_), (3 * s, s + f_), (3 * s,), (b, s), (b, s)]
    inputs = [torch.rand(shape, dtype=torch.float64) for shape in given]
    states = [torch.stack([x, x + 1, x * 2]) for x in (inputs[0], inputs[3], inputs[4])]
    batch = [states[0], inputs[1], inputs[2], states[1], states[2]]
    assert compare(lambda *x: lltm.lltm(*x)[0], batch, (0, None, None, 0, 0)) == 1


def test_positions_of_dims_are_those_of_an_element(ops: opsmith.Library) -> None:
    x = torch.rand(SIZE, 4, 5, dtype=torch.float64)
    for axes in [[0], [1], [-1], [0, 1], []]:
        torch.testing.assert_close(
            vmap(lambda x, axes=axes: ops.sum(x, axes=axes))(x),
            torch.stack([x.sum(axes or (0, 1)) for x in x]),
        )
    assert torch.equal(vmap(lambda x: ops.transpose(x, perm=[]))(x), x.mT)
    assert torch.equal(vmap(lambda x: ops.sum(x, axes=[]))(x[:, 0, 0]), x[:, 0, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        table, rows = x[0], torch.tensor([[3, 0], [1, 1]])
        assert torch.equal(vmap(lambda i: ops.gather(table, i, axis=0))(rows), table[rows])
        assert torch.equal(vmap(vmap(lambda i: ops.gather(table, i, axis=0)))(rows), table[rows])
        assert torch.equal(vmap(lambda i: ops.gather(x, i, axis=1), 1)(rows), x[:, rows.T].movedim(1, 0))
    assert torch.equal(vmap(lambda x: ops.gather(x, torch.tensor([2, 0]), axis=1))(x), x[:, :, [2, 0]])


def test_what_is_an_error_of_one_element_is_one_of_the_batch(ops: opsmith.Library) -> None:
    kernels, softmax = load("kernels"), load("reductions").softmax
    x = torch.rand(3, 4)
    for name, f, dims, given in [
        ("mat_mul|MatMul", ops.mat_mul, (0, None), (x, torch.rand(4, 5))),
        ("(?i)softmax: `axes` is 2", lambda x: softmax(x, axes=2), 0, (x,)),
        (
            "(?i)k_?nearest: ",
            lambda x, y: kernels.k_nearest(x, y, neighbours=2),
            (0, None),
            (x, torch.rand(6, 4)),
        ),
        ("(?i)rbf_?kernel: ", kernels.rbf_kernel, (0, None), (x, torch.rand(6, 4))),
    ]:
        with pytest.raises(RuntimeError, match=name):
            f(x[0], *given[1:])
        with pytest.raises(RuntimeError, match=name):
            vmap(f, dims)(*given)


def test_in_compiled_programs() -> None:
    kernels = load("kernels")
    x, y = torch.rand(SIZE, 6, 3), torch.rand(7, 3)
    batch = vmap(kernels.rbf_kernel, (0, None))
    compiled = torch.compile(batch, fullgraph=True, backend="aot_eager", dynamic=True)
    torch.testing.assert_close(compiled(x, y), batch(x, y))
    slopes = vmap(grad(lambda x, y: kernels.rbf_kernel(x, y).sum()), (0, None))
    compiled = torch.compile(slopes, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, y), slopes(x, y))


def test_nothing_and_one() -> None:
    kernels = load("kernels")
    x, y = torch.rand(0, 6, 3), torch.rand(7, 3)
    assert vmap(kernels.rbf_kernel, (0, None))(x, y).shape == (0, 6, 7)
    assert vmap(kernels.rbf_kernel, (1, None))(torch.rand(6, 1, 3), y).shape == (1, 6, 7)
    assert vmap(kernels.rbf_kernel, (0, None))(torch.rand(2, 0, 3), y).shape == (2, 0, 7)


WARNED = """
import sys, warnings
import opsmith, torch
squares, distances = opsmith.load(sys.argv[1]).squares, opsmith.load(sys.argv[2]).pairwise_manhattan_distance
x = torch.rand(3, 7, 2, dtype=torch.float64)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    for _ in range(2):
        torch.vmap(squares)(x[..., 0])
        torch.vmap(distances)(x, x)
print(*(f"{each.category.__name__}: {each.message}" for each in told), sep="\\n")
"""


def test_calls_one_by_one_are_told_once() -> None:
    files = [str(LIBRARIES / f"lib{name}.so") for name in ("opsmith_testops", "distances")]
    command = [sys.executable, "-c", WARNED, *files]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    beginning = "RuntimeWarning: {}: vmap calls it for each element of the batch, since "
    first, second = told
    assert first.startswith(beginning.format("Squares")) and "with `parallel = " in first
    assert second.startswith(beginning.format("PairwiseManhattanDistance"))
    assert second.endswith("none of its free axes can take the batch: (n, _), (m, _) -> (n, m)")
