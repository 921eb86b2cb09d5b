"""The device that is looked at: a card, or for a dry run the processor, which does the same steps.

`look` needs no PyTorch: it asks the driver itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import torch

R = TypeVar("R")

BUSY_CYCLES = 50_000_000
"""For how long a stream is kept busy, some 30 ms: work on another stream that does not wait comes before."""


def look() -> str | None:
    """What stands in the way of a card, or None where there is one."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "there is no NVIDIA driver (libcuda.so.1) on this machine"
    status = driver.cuInit(0)
    if status != 0:
        return f"the NVIDIA driver does not work here (cuInit gives {status}): look what `nvidia-smi` says"
    count = ctypes.c_int(0)
    if driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return "no card can be seen: look at `nvidia-smi` and CUDA_VISIBLE_DEVICES"
    return None


class Card:
    """A card, through PyTorch."""

    is_card = True

    def __init__(self, index: int = 0) -> None:
        import torch

        self.torch = torch.device("cuda", index)

    def synchronize(self) -> None:
        """Wait for the card."""
        import torch

        torch.cuda.synchronize(self.torch)

    @contextlib.contextmanager
    def stream(self) -> Iterator[None]:
        """A stream of its own, kept busy at first, that the caller's waits for in the end."""
        import torch

        before = torch.cuda.current_stream(self.torch)
        side = torch.cuda.Stream(self.torch)
        side.wait_stream(before)
        with torch.cuda.stream(side):
            torch.cuda._sleep(BUSY_CYCLES)
            yield
        before.wait_stream(side)

    def capture(self, function: Callable[[], R]) -> tuple[R, Callable[[], None]]:
        """The outputs of `function` captured in a graph, and what replays it into them."""
        import torch

        side = torch.cuda.Stream(self.torch)
        side.wait_stream(torch.cuda.current_stream(self.torch))
        with torch.cuda.stream(side):
            for _ in range(3):
                function()
        torch.cuda.current_stream(self.torch).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = function()
        return outputs, graph.replay

    def seconds(self, function: Callable[[], object], calls: int) -> float:
        """Seconds per call over `calls` calls in a row, as the card's own clock has them."""
        import torch

        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(calls):
            function()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / calls

    def release(self) -> None:
        """Give memory back that nothing uses."""
        import torch

        torch.cuda.empty_cache()


class Processor:
    """The processor in place of a card: the same steps, for a dry run."""

    is_card = False

    def __init__(self) -> None:
        import torch

        self.torch = torch.device("cpu")

    def synchronize(self) -> None:
        """There is nothing to wait for."""

    @contextlib.contextmanager
    def stream(self) -> Iterator[None]:
        """There are no streams."""
        yield

    def capture(self, function: Callable[[], R]) -> tuple[R, Callable[[], None]]:
        """The outputs, and what computes them again into the same memory."""
        outputs = function()

        def replay() -> None:
            for kept, new in zip(tensors(outputs), tensors(function()), strict=True):
                kept.copy_(new)

        return outputs, replay

    def seconds(self, function: Callable[[], object], calls: int) -> float:
        """Seconds per call over `calls` calls in a row."""
        started = time.perf_counter()
        for _ in range(calls):
            function()
        return (time.perf_counter() - started) / calls

    def release(self) -> None:
        """Memory goes back by itself."""


Device = Card | Processor


@dataclass(frozen=True)
class Part:
    """One of several processes that share the ops of a section."""

    index: int = 0
    count: int = 1

    @staticmethod
    def of(text: str) -> Part:
        """As `str` writes it."""
        index, count = text.split("/")
        return Part(int(index), int(count))

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @property
    def title(self) -> str:
        """What is said of it beside the section's name; empty for the whole."""
        return f", part {self.index + 1} of {self.count}" if self.count > 1 else ""

    def has(self, number: int) -> bool:
        """Whether the op with this number is its own."""
        return number % self.count == self.index


@dataclass(frozen=True)
class Job:
    """What a section is to look at."""

    device: Device
    folder: Path
    """Where the libraries are."""
    quick: bool
    """Fewer calls and rounds."""
    part: Part = Part()


def tensors(outputs: object) -> list[torch.Tensor]:
    """One tensor or several, as a list."""
    import torch

    if isinstance(outputs, torch.Tensor):
        return [outputs]
    return [x for x in outputs if isinstance(x, torch.Tensor)]  # type: ignore[attr-defined]
