"""What is wrong is an error that names it, and nothing is broken after it; what is large is right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import opsmith
import torch
from devices import Device
from results import FAILED, NOT_RUN, PASSED, Results

LARGE = (1 << 31) + 5
"""More elements than 32 bits count."""
ROOM = 20 << 30
"""Bytes of free memory that the large call takes, roughly."""


class Missing(Exception):
    """Why a check cannot be made here."""


def run(device: Device, folder: Path, quick: bool, results: Results) -> None:
    """Every check, each followed by a call that must succeed."""
    for check in (no_kernel, two_devices, two_cards, no_memory, beyond_32_bits):
        what = (check.__doc__ or "").rstrip(".")
        try:
            check(device, folder, quick)
            usual(device, folder)
        except Missing as missing:
            results.say("misuse", what, NOT_RUN, str(missing))
        except Exception as error:
            results.say("misuse", what, FAILED, f"{type(error).__name__}: {error}")
        else:
            results.say("misuse", what, PASSED)


def load(folder: Path, name: str) -> Any:
    """A built library."""
    return opsmith.load(folder / f"lib{name}.so")


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
    refused(lambda: load(folder, "median_pool").median_pool(x), "median_pool", "CUDA")


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
    refused(lambda: op(x, x), "memory" if device.is_card else "")


def beyond_32_bits(device: Device, folder: Path, quick: bool) -> None:
    """More elements than 32 bits count."""
    if not device.is_card or quick:
        raise Missing("it takes 16 GiB: on a card, and not in a quick run")
    free, _ = torch.cuda.mem_get_info(device.torch)
    if free < ROOM:
        raise Missing(f"it takes {ROOM >> 30} GiB of the card's memory, {free >> 30} GiB are free")
    x = torch.zeros(LARGE, dtype=torch.int32, device=device.torch)
    x[-3:] = torch.tensor([1, 2, 3], dtype=torch.int32)
    y = load(folder, "example").example(x)
    assert y[-4:].tolist() == [0, 2, 4, 6]
    assert int(y[: 1 << 30].abs().max()) == 0
    del x, y
    device.release()
