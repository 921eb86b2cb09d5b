"""One step of an LLTM through PyTorch's autograd, float32, two threads: forward with all gradients required,
and backward alone.

The peers are the step in plain PyTorch, the same compiled by `torch.compile` for these very shapes, and
the C++ extension of PyTorch's own tutorial, with its autograd function in C++. Memory is that of a step
forward and backward at the larger size. It is compared with what the definition makes: outputs, saved
values, gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import cpp_peer
from harness import OURS, Case, Options, Target

if TYPE_CHECKING:
    import torch

TITLE = "An LLTM"

PEERS = ("C++ extension", "torch.compile", "PyTorch")
NEED = "what its definition needs"
SIZES = [((16, 32, 128), 0.6), ((64, 512, 1024), 1.0)]

Step = Callable[..., tuple["torch.Tensor", "torch.Tensor"]]


def plain(
    input: torch.Tensor,
    weights: torch.Tensor,
    bias: torch.Tensor,
    old_h: torch.Tensor,
    old_cell: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The step in plain PyTorch."""
    import torch

    gates = torch.nn.functional.linear(torch.cat([old_h, input], 1), weights, bias)
    g0, g1, g2 = gates.chunk(3, 1)
    new_cell = old_cell + torch.nn.functional.elu(g2) * torch.sigmoid(g0)
    return torch.tanh(new_cell) * torch.sigmoid(g1), new_cell


def cases(options: Options) -> Iterator[Case]:
    """Both sizes, forward and backward apart; then memory."""
    import opsmith
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(2)
    cpp_peer.load(options, "lltm")
    steps: dict[str, Step] = {
        OURS: opsmith.load(options.library("lltm")).lltm,
        "C++ extension": torch.ops.peer_lltm.lltm,
        "torch.compile": torch.compile(plain, dynamic=False),
        "PyTorch": plain,
    }
    for (batch, features, size), limit in SIZES:
        inputs = inputs_of(batch, features, size)
        upstream = [torch.randn(batch, size) for _ in range(2)]
        name, target = f"b = {batch}, f = {features}, s = {size}", [Target(limit, PEERS)]
        check(steps, inputs, upstream)
        forward = {who: partial(step, *inputs) for who, step in steps.items()}
        yield Case(f"{name}, forward", forward, target)
        yield Case(f"{name}, backward", {w: backward(s, inputs, upstream) for w, s in steps.items()}, target)

    def both(step: Step) -> Callable[[], object]:
        return lambda: torch.autograd.grad(step(*inputs), inputs, upstream)

    contenders = {**{who: both(step) for who, step in steps.items()}, NEED: partial(needed, *SIZES[-1][0])}
    yield Case("memory", contenders, [Target(1.1, (NEED,))], memory=True)


def needed(batch: int, features: int, size: int) -> object:
    """Memory for all that the definition makes: outputs, what is saved, gradients of gates and of inputs."""
    import torch

    of_state = [torch.zeros(batch, size) for _ in range(2 + 3 + 2)]
    of_gates = [torch.zeros(batch, 3 * size) for _ in range(2)]
    others = [torch.zeros(batch, size + features), torch.zeros(batch, features)]
    return of_state, of_gates, others, torch.zeros(3 * size, size + features), torch.zeros(3 * size)


def inputs_of(batch: int, features: int, size: int) -> list[torch.Tensor]:
    """The inputs of a step, parameters as a module draws them; all want gradients."""
    import torch

    shapes = [(batch, features), (3 * size, size + features), (3 * size,), (batch, size), (batch, size)]
    inputs = [torch.randn(shape) for shape in shapes]
    for parameter in inputs[1:3]:
        torch.nn.init.uniform_(parameter, -(size**-0.5), size**-0.5)
    return [x.requires_grad_() for x in inputs]


def backward(step: Step, inputs: list[torch.Tensor], upstream: list[torch.Tensor]) -> Callable[[], object]:
    """Backward alone, of a step that has been made."""
    import torch

    outputs = step(*inputs)
    return lambda: torch.autograd.grad(outputs, inputs, upstream, retain_graph=True)


def check(steps: dict[str, Step], inputs: list[torch.Tensor], upstream: list[torch.Tensor]) -> None:
    """All contenders agree, in values and gradients."""
    import torch

    found = [(*step(*inputs), *backward(step, inputs, upstream)()) for step in steps.values()]
    for other in found[1:]:
        for ours, theirs in zip(found[0], other, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
