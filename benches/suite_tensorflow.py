"""TensorFlow: a call with nothing to compute, and pairwise Manhattan distances at n = m = p = 512.

A tiny call has inputs of shape (1, 1), float32, eagerly and as a `tf.function`. Its peers are TensorFlow's
own element-wise ops of two inputs, called in the same way; the cheapest counts. The longer chain shows
what running an op costs inside a graph. The distances' peer is broadcasting compiled by XLA
(`jit_compile=True`) for these very shapes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from harness import OURS, Case, Options, Target

TITLE = "TensorFlow"

SIZE = 512
TINY = 1.2
"""How much a tiny call may cost beside the cheapest of TensorFlow's own."""
CHAIN = 64
"""Ops in the longer graph, in which what entering it costs does not hide what an op costs."""


def cases(options: Options) -> Iterator[Case]:
    """Tiny calls of the bare library and of the package, then distances."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    import opsmith
    import tensorflow as tf

    path = options.library("distances")
    bare = tf.load_op_library(path).distances_pairwise_manhattan_distance
    ours = opsmith.load(path).pairwise_manhattan_distance
    x, y = tf.random.uniform((1, 1)), tf.random.uniform((1, 1))
    raw = {name: getattr(tf.raw_ops, name) for name in ("AddV2", "Mul", "Sub", "Maximum")}
    peers = {name: called(op, x, y) for name, op in raw.items()}
    target = [Target(TINY, tuple(peers))]
    yield Case("tiny call of the bare library", {OURS: lambda: bare(x=x, y=y), **peers}, target)
    public = {"tf.add": tf.add, "tf.multiply": tf.multiply, "tf.maximum": tf.maximum}
    peers = {name: called_once(function, x, y) for name, function in public.items()}
    target = [Target(TINY, tuple(peers))]
    yield Case("tiny call of the package", {OURS: lambda: ours(x, y), **peers}, target)
    for length in (1, CHAIN):
        chains = {name: chain(tf, op, length) for name, op in {OURS: bare, **raw}.items()}
        contenders = {name: called_once(function, x, y) for name, function in chains.items()}
        target = [Target(TINY, tuple(raw))] if length == 1 else []
        yield Case(f"tf.function of {length} tiny op{'s'[: length > 1]}", contenders, target)

    x, y = tf.random.uniform((SIZE, SIZE)), tf.random.uniform((SIZE, SIZE))
    compiled = tf.function(
        lambda x, y: tf.reduce_sum(tf.abs(x[:, None, :] - y[None, :, :]), -1), jit_compile=True
    )
    tf.debugging.assert_near(ours(x, y), compiled(x, y), rtol=1e-5, atol=0)
    contenders = {OURS: lambda: ours(x, y), "XLA": lambda: compiled(x, y)}
    yield Case("distances", contenders, [Target(0.35, ("XLA",))])


def called(op: Callable[..., Any], x: Any, y: Any) -> Callable[[], object]:
    """The op on these inputs, given by keyword as `tf.raw_ops` has it."""
    return lambda: op(x=x, y=y)


def called_once(function: Callable[..., Any], x: Any, y: Any) -> Callable[[], object]:
    """The function on these inputs."""
    return lambda: function(x, y)


def chain(tf: Any, op: Callable[..., Any], length: int) -> Callable[..., Any]:
    """A graph function that applies the op `length` times."""

    def body(x: Any, y: Any) -> Any:
        for _ in range(length):
            x = op(x=x, y=y)
        return x

    return tf.function(body)
