"""What is wrong is an error that names it, and nothing is broken after it; what is large is right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import opsmith
import torch
from devices import Device, Job
from results import FAILED, NOT_RUN, PASSED, Results

LARGE = (1 << 31) + 5
"""More elements than 32 bits count."""
ROOM = 20 << 30
"""Bytes of free memory that the large calls take, roughly."""


class Missing(Exception):
    """Why a check cannot be made here."""


def run(job: Job, results: Results) -> None:
    """Every check, each followed by a call that must succeed."""
    for check in (no_kernel, two_devices, two_cards, no_memory, far_views, beyond_32_bits):
        what = (check.__doc__ or "").rstrip(".")
        try:
            check(job.device, job.folder, job.quick)
            usual(job.device, job.folder)
        except Missing as missing:
            results.say("misuse", what, NOT_RUN, str(missing))
        except Exception as error:
            results.say("misuse", what, FAILED, f"{type(error).__name__}: {error}")
        else:
            results.say("misuse", what, PASSED)


def load(folder: Path, name: str) -> Any:
    """A built library."""
    path = folder / f"lib{name}.so"
    if not path.exists():
        raise Missing(f"{path.name} is not among the libraries")
    return opsmith.load(path)


def usual(device: Device, folder: Path) -> None:
    """A call as any other."""
    x = torch.arange(5.0, device=device.torch)
    assert load(folder, "example").example(x).tolist() == [0.0, 2.0, 4.0, 6.0, 8.0]


def refused(function: Callable[[], object], *words: str) -> None:
    """Raise unless the call is an error with these words in it."""
    try:
        function()
    except Exception as error:
        message = str(error)
        wrong = [word for word in words if word not in message]
        assert not wrong, f"the error does not say {wrong}: {message}"
        return
    raise AssertionError("no error came")


def needs_card(device: Device) -> None:
    """Only a card can be without a kernel, or apart from the CPU."""
    if not device.is_card:
        raise Missing("the dry run has no card")


def no_kernel(device: Device, folder: Path, quick: bool) -> None:
    """An op without a CUDA kernel is named."""
    needs_card(device)
    x = torch.zeros(1, 1, 5, 5, device=device.torch)
    refused(lambda: load(folder, "median_pool").median_pool(x, ksize=[3, 3]), "median_pool", "CUDA")


def two_devices(device: Device, folder: Path, quick: bool) -> None:
    """Tensors on the CPU and on a card are an error that names the input."""
    needs_card(device)
    op = load(folder, "distances").pairwise_manhattan_distance
    refused(lambda: op(torch.zeros(3, 4, device=device.torch), torch.zeros(5, 4)), "`y`")


def two_cards(device: Device, folder: Path, quick: bool) -> None:
    """Tensors on two cards are an error that names the input."""
    needs_card(device)
    if torch.cuda.device_count() < 2:
        raise Missing("there is one card only")
    op = load(folder, "distances").pairwise_manhattan_distance
    x, y = (torch.zeros(3, 4, device=f"cuda:{i}") for i in range(2))
    refused(lambda: op(x, y), "`y`")


def no_memory(device: Device, folder: Path, quick: bool) -> None:
    """An output that no memory holds is an error."""
    op = load(folder, "distances").pairwise_manhattan_distance
    x = torch.zeros(1 << 23, 1, device=device.torch)
    refused(lambda: op(x, x), "cannot allocate" if device.is_card else "")


def far_views(device: Device, folder: Path, quick: bool) -> None:
    """Few elements that lie farther apart than 32 bits count."""
    base = far_rows(device)
    far = base.as_strided((2, 300), (LARGE, 1))
    far.copy_(torch.linspace(-3, 3, 600, device=device.torch).reshape(2, 300))
    near = far.clone()
    distances, opsmith_ops = load(folder, "distances"), load(folder, "opsmith_ops")
    calls: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "example": load(folder, "example").example,
        "distances": lambda x: distances.pairwise_manhattan_distance(x, x),
        "add": lambda x: opsmith_ops.add(x, x),
        "softmax": opsmith_ops.softmax,
        "sum": lambda x: opsmith_ops.sum(x, axes=[0]),
        "mat_mul": lambda x: opsmith_ops.mat_mul(x, x, transpose_b=True),
        "transpose": lambda x: opsmith_ops.transpose(x, perm=[1, 0]),
        "pad": lambda x: opsmith_ops.pad(x, [[1, 0], [0, 2]]),
        "slice": lambda x: opsmith_ops.slice(x, [1, 7], [1, 40]),
    }
    try:
        for name, call in calls.items():
            ours, expected = (differentiated(call, x) for x in (far, near))
            for left, right in zip(ours, expected, strict=True):
                assert torch.allclose(left, right, 1e-5, 1e-6), f"{name} gives others than of dense tensors"
    finally:
        del base, far
        device.release()


def differentiated(call: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> list[torch.Tensor]:
    """The output of a call, and the gradient."""
    x = x.detach().requires_grad_()
    y = call(x)
    return [y, *torch.autograd.grad(y, x, torch.ones_like(y))] if y.requires_grad else [y]


def needs_room(device: Device) -> None:
    """A card that is too small for the large calls cannot make them."""
    free = torch.cuda.mem_get_info(device.torch)[0]
    if free < ROOM:
        raise Missing(f"it takes {ROOM >> 30} GiB of the card's memory, {free >> 30} GiB are free")


def far_rows(device: Device) -> torch.Tensor:
    """Memory for two rows that lie farther apart than 32 bits count."""
    if device.is_card:
        needs_room(device)
    # What lies between the rows is never touched, so on a processor it takes no more than addresses.
    try:
        return torch.empty(LARGE + 300, device=device.torch)
    except RuntimeError as error:
        raise Missing(f"it takes {LARGE * 4 >> 30} GiB of addresses, which are not to be had here") from error


def beyond_32_bits(device: Device, folder: Path, quick: bool) -> None:
    """More elements than 32 bits count."""
    if not device.is_card or quick:
        raise Missing("it takes 16 GiB: on a card, and not in a quick run")
    needs_room(device)
    x = torch.zeros(LARGE, dtype=torch.int32, device=device.torch)
    x[-3:] = torch.tensor([1, 2, 3], dtype=torch.int32)
    y = load(folder, "example").example(x)
    assert y[-4:].tolist() == [0, 2, 4, 6]
    assert int(y[: 1 << 30].abs().max()) == 0
    del x, y
    device.release()
