"""Work goes where the caller says: on its current stream and card, also in a graph that is captured and from
several threads. Nothing waits for anything here but what is asked to."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from devices import Card, Device, Job, tensors
from results import FAILED, NOT_RUN, PASSED, Results
from values import libraries, subjects

Function = Callable[..., Any]

SUBJECTS: dict[str, dict[str, tuple[tuple[int, ...], ...]]] = {
    "example": {"Example": ((1000, 33),)},
    "distances": {"PairwiseManhattanDistance": ((200, 64), (150, 64))},
    "gelu": {"Gelu": ((1000, 33),)},
    "activations": {"Swiglu": ((33,), (1000, 33))},
    "reductions": {"LayerNorm": ((300, 65), (65,), (65,))},
    "pairwise": {"Manhattan": ((100, 64), (150, 64))},
    "lltm": {"Lltm": ((16, 32), (384, 160), (384,), (16, 128), (16, 128))},
    "opsmith": {"MatMul": ((65, 33), (33, 70)), "Softmax": ((64, 100),)},
}
"""What is called: ops with temporary memory, with several launches, and with sums of gradients among them."""

WORKERS = 4


def run(job: Job, results: Results) -> None:
    """Look at some ops of each library."""
    for library in libraries(job.folder):
        for name, shapes in SUBJECTS.get(library.__name__, {}).items():
            subject = subjects(library)[name]
            what = f"{library.__name__}.{name}"
            for title, check in CHECKS.items():
                if not subject.has_cuda:
                    results.say("streams", f"{what}: {title}", NOT_RUN, "the op has no CUDA kernel")
                    continue
                try:
                    missing = check(job.device, subject.function, shapes)
                except Exception as error:
                    results.say("streams", f"{what}: {title}", FAILED, f"{type(error).__name__}: {error}")
                    continue
                results.say("streams", f"{what}: {title}", NOT_RUN if missing else PASSED, missing or "")


def drawn(shapes: tuple[tuple[int, ...], ...], seed: int) -> list[torch.Tensor]:
    """Inputs in host memory."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def with_gradients(function: Function, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Outputs, and where they have any, gradients of their sum."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    outputs = tensors(function(*leaves))
    sources = [x for x in outputs if x.requires_grad]
    gradients = torch.autograd.grad(sources, leaves, [torch.ones_like(x) for x in sources], allow_unused=True)
    return [*(x.detach() for x in outputs), *(x for x in gradients if x is not None)]


def same(actual: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    """Raise where the two differ."""
    for left, right in zip(actual, expected, strict=True):
        scale = max(1.0, float(right.abs().max()))
        torch.testing.assert_close(left.cpu(), right, rtol=1e-4, atol=1e-4 * scale)


def on_a_side_stream(device: Device, function: Function, shapes: tuple[tuple[int, ...], ...]) -> None:
    """A stream that is busy: what is launched anywhere else reads its inputs before they are there."""
    inputs = drawn(shapes, 1)
    with_gradients(function, [x.to(device.torch) for x in inputs])
    # From memory of the card: a copy from the processor's may wait for the stream, and then nothing would be
    # too early.
    there = [x.to(device.torch) for x in inputs]
    places = [torch.zeros_like(x) for x in there]
    device.synchronize()
    with device.stream():
        for place, x in zip(places, there, strict=True):
            place.copy_(x)
        found = with_gradients(function, places)
    same(found, with_gradients(function, inputs))


def captured(device: Device, function: Function, shapes: tuple[tuple[int, ...], ...]) -> None:
    """Captured with its gradients, and replayed on other numbers."""
    inputs = drawn(shapes, 2)
    places = [x.to(device.torch) for x in inputs]
    outputs, replay = device.capture(lambda: with_gradients(function, places))
    for seed in (3, 4):
        inputs = drawn(shapes, seed)
        for place, x in zip(places, inputs, strict=True):
            place.copy_(x)
        replay()
        device.synchronize()
        same(outputs, with_gradients(function, inputs))


def from_threads(device: Device, function: Function, shapes: tuple[tuple[int, ...], ...]) -> None:
    """Several threads, each on a stream of its own."""

    def work(seed: int) -> None:
        inputs = drawn(shapes, seed)
        there = [x.to(device.torch) for x in inputs]
        device.synchronize()
        for _ in range(5):
            with device.stream():
                found = with_gradients(function, [x.clone() for x in there])
            same(found, with_gradients(function, inputs))

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(work, range(WORKERS)))


def on_another_card(device: Device, function: Function, shapes: tuple[tuple[int, ...], ...]) -> str | None:
    """Tensors on a card that is not the current one."""
    if not device.is_card:
        return "the dry run has no second card"
    if torch.cuda.device_count() < 2:
        return "there is one card only"
    inputs = drawn(shapes, 5)
    other = Card(1)
    found = with_gradients(function, [x.to(other.torch) for x in inputs])
    assert all(x.device == other.torch for x in found)
    assert torch.cuda.current_device() == device.torch.index
    same(found, with_gradients(function, inputs))
    return None


CHECKS: dict[str, Callable[..., str | None]] = {
    "on a stream that is busy": on_a_side_stream,
    "captured in a graph and replayed": captured,
    "from several threads": from_threads,
    "on another card than the current one": on_another_card,
}
