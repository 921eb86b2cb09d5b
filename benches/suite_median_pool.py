"""Medians of image windows, float32, for windows inside the images.

The peers are what a user would otherwise write: patches (`Tensor.unfold`, `tf.image.extract_patches`) with
top-k or `torch.median`, and SciPy's `median_filter`, which also has windows at the borders and one thread.
With strides, SciPy's result is sliced. Memory is the peak beyond the images, compared with that of the
output alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from harness import OURS, Case, Options, Target

if TYPE_CHECKING:
    import torch

TITLE = "Median pooling"

TORCH, MEDIAN, TENSORFLOW, SCIPY = (
    "PyTorch, patches and top-k",
    "PyTorch, patches and median",
    "TensorFlow, patches and top-k",
    "SciPy",
)
OUTPUT, RESULTS = "the output alone", "the output and the gradient alone"
LIMIT = 0.2
ROUNDS = 5
MEMORY_SLACK = 1.1
"""Pages and scratch memory over the output's own 6 MB, and the gradient's as many."""


def windows(x: torch.Tensor, side: int, stride: int) -> torch.Tensor:
    """The windows, a view."""
    return x.unfold(1, side, stride).unfold(2, side, stride).flatten(-2)


def top_k(x: torch.Tensor, side: int, stride: int) -> torch.Tensor:
    """The medians in plain PyTorch, by the larger half of each window."""
    half = side * side // 2
    return windows(x, side, stride).topk(side * side - half, dim=-1)[0][..., -1]


def of_tensorflow(x: torch.Tensor, side: int, stride: int) -> Callable[[], object]:
    """The same in TensorFlow."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    images = tf.constant(x.numpy())
    half = side * side // 2

    @tf.function
    def medians(images: tf.Tensor) -> tf.Tensor:
        sizes, strides = [1, side, side, 1], [1, stride, stride, 1]
        patches = tf.image.extract_patches(images, sizes, strides, [1, 1, 1, 1], "VALID")
        shape = [*patches.shape[:3], side * side, images.shape[3]]
        patches = tf.transpose(tf.reshape(patches, shape), [0, 1, 2, 4, 3])
        return tf.math.top_k(patches, side * side - half).values[..., -1]

    return lambda: medians(images).numpy()


def seconds(function: Callable[[], object], calls: int = 1) -> Callable[[], float]:
    """A function that calls another and gives the seconds that a call took."""

    def timed() -> float:
        started = time.perf_counter()
        for _ in range(calls):
            function()
        return (time.perf_counter() - started) / calls

    function()
    return timed


def cases(options: Options) -> Iterator[Case]:
    """Windows of 3 x 3 and 5 x 5 at every element and at every second, with gradients, and memory."""
    import opsmith
    import torch

    torch.manual_seed(0)
    ours = opsmith.load(options.library("median_pool")).median_pool
    for shape, side, stride in [
        ((8, 256, 256, 3), 3, 1),
        ((8, 256, 256, 3), 5, 1),
        ((1, 256, 256, 32), 3, 1),
        ((1, 256, 256, 32), 5, 1),
        ((8, 256, 256, 3), 3, 2),
    ]:
        yield forward(ours, torch.randn(shape), side, stride)
    yield with_gradient(ours, torch.randn(8, 256, 256, 3))
    yield from memory(ours, torch.randn(8, 256, 256, 3))


def forward(ours: Callable[..., torch.Tensor], x: torch.Tensor, side: int, stride: int) -> Case:
    """The medians alone."""
    import torch
    from scipy.ndimage import median_filter

    attrs = {"ksize": [side, side], "strides": [stride, stride]}
    edge, images = side // 2, x.numpy()

    def filtered() -> object:
        return median_filter(images, size=(1, side, side, 1))[:, edge:-edge:stride, edge:-edge:stride]

    of_patches, expected = of_tensorflow(x, side, stride), ours(x, **attrs)
    for theirs in (top_k(x, side, stride), of_patches(), filtered()):
        torch.testing.assert_close(expected, torch.as_tensor(theirs), rtol=0, atol=0)
    contenders: dict[str, Callable[[], object]] = {
        OURS: seconds(lambda: ours(x, **attrs), 5),
        TORCH: seconds(lambda: top_k(x, side, stride)),
        MEDIAN: seconds(lambda: windows(x, side, stride).median(-1)[0]),
        TENSORFLOW: seconds(of_patches),
        SCIPY: seconds(filtered),
    }
    batch, _, _, channels = x.shape
    name = f"{side} x {side}, stride {stride}, {batch} images of 256 x 256 x {channels}"
    targets = [Target(LIMIT, (TORCH, MEDIAN, TENSORFLOW)), Target(LIMIT, (SCIPY,))]
    return Case(name, contenders, targets, rounds=ROUNDS)


def with_gradient(ours: Callable[..., torch.Tensor], x: torch.Tensor) -> Case:
    """The medians and their gradient."""
    import torch

    x.requires_grad_()
    upstream = torch.randn(8, 254, 254, 3)
    pools: dict[str, Callable[[], torch.Tensor]] = {
        OURS: lambda: ours(x, ksize=[3, 3]),
        TORCH: lambda: top_k(x, 3, 1),
        MEDIAN: lambda: windows(x, 3, 1).median(-1)[0],
    }

    def both(pool: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        return lambda: torch.autograd.grad(pool(), x, upstream)[0]

    functions = {name: both(pool) for name, pool in pools.items()}
    torch.testing.assert_close(functions[OURS](), functions[TORCH]())
    contenders: dict[str, Callable[[], object]] = {name: seconds(f) for name, f in functions.items()}
    name = "3 x 3, stride 1, 8 images of 256 x 256 x 3, forward and backward"
    return Case(name, contenders, [Target(LIMIT, (TORCH, MEDIAN))], rounds=ROUNDS)


def memory(ours: Callable[..., torch.Tensor], x: torch.Tensor) -> Iterator[Case]:
    """Peak extra memory of one call, and of one with its gradient."""
    import torch

    contenders: dict[str, Callable[[], object]] = {
        OURS: lambda: ours(x, ksize=[5, 5]),
        OUTPUT: lambda: torch.ones(8, 252, 252, 3),
        TORCH: lambda: top_k(x, 5, 1),
    }
    yield Case("peak extra memory, 5 x 5", contenders, [Target(MEMORY_SLACK, (OUTPUT,))], memory=True)
    wanted, upstream = x.clone().requires_grad_(), torch.randn(8, 252, 252, 3)
    contenders = {
        OURS: lambda: torch.autograd.grad(ours(wanted, ksize=[5, 5]), wanted, upstream),
        RESULTS: lambda: (torch.ones(8, 252, 252, 3), torch.ones(8, 256, 256, 3)),
        TORCH: lambda: torch.autograd.grad(top_k(wanted, 5, 1), wanted, upstream),
    }
    name = "peak extra memory, 5 x 5, forward and backward"
    yield Case(name, contenders, [Target(MEMORY_SLACK, (RESULTS,))], memory=True)
