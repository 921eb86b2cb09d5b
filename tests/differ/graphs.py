"""Random graphs of standard operators: fused, not fused, and op by op in NumPy and PyTorch."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import opsmith
import torch

LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", Path(__file__).parents[2] / "target" / "release"))
ops = opsmith.load(LIBRARIES / "libopsmith_ops.so")

UNARY = ["neg", "tanh", "sigmoid", "erf", "sin", "cos", "abs", "relu", "softplus", "gelu", "square"]
BINARY = ["add", "sub", "mul", "maximum", "minimum"]
FOLDS = ["sum", "mean", "max", "min"]
SHAPES = [(), (1,), (5,), (7, 1), (1, 5), (7, 5), (3, 7, 5), (3, 1, 1), (300,), (2, 300), (40, 70)]

Tree = list[Any]
"""`["leaf", shape, seed]`, `[op, part...]`, or `[fold, part, axes, keep_dims]`."""


def leaf(shape: tuple[int, ...], seed: int) -> Tree:
    """A tensor of numbers that `array` makes."""
    return ["leaf", list(shape), seed]


def array(tree: Tree, dtype: str) -> np.ndarray:
    """The numbers of a leaf."""
    _, shape, seed = tree
    return np.asarray(np.random.default_rng(seed).uniform(-2, 2, shape)).astype(dtype)


def shape_of(tree: Tree) -> tuple[int, ...]:
    """The shape of what a tree gives."""
    if tree[0] == "leaf":
        return tuple(tree[1])
    shapes = [shape_of(part) for part in parts(tree)]
    if tree[0] not in FOLDS:
        return np.broadcast_shapes(*shapes)
    axes = {axis % len(shapes[0]) for axis in tree[2]} or set(range(len(shapes[0])))
    dims = enumerate(shapes[0])
    return tuple(1 if axis in axes else dim for axis, dim in dims if tree[3] or axis not in axes)


def parts(tree: Tree) -> list[Tree]:
    """What a tree is made of."""
    return [part for part in tree[1:] if isinstance(part, list) and part and isinstance(part[0], str)]


def fits(*trees: Tree) -> bool:
    """Whether the shapes broadcast."""
    try:
        np.broadcast_shapes(*map(shape_of, trees))
    except ValueError:
        return False
    return True


def random_tree(rng: random.Random, depth: int, leaves: list[Tree]) -> Tree:
    """A tree of these leaves."""
    if depth == 0:
        return rng.choice(leaves)
    part = random_tree(rng, depth - 1, leaves)
    kind = rng.random()
    if kind < 0.4:
        return [rng.choice(UNARY), part]
    if kind < 0.55 and shape_of(part) and 0 not in shape_of(part):
        rank = len(shape_of(part))
        return [
            rng.choice(FOLDS),
            part,
            sorted(rng.sample(range(rank), rng.randint(1, rank))),
            rng.random() < 0.7,
        ]
    other = random_tree(rng, rng.randint(0, depth - 1), leaves)
    return [rng.choice(BINARY), part, other] if fits(part, other) else [rng.choice(UNARY), part]


def value(tree: Tree, made: Callable[[Tree], Any]) -> Any:
    """What the tree gives of the tensors that `made` makes of leaves."""
    if tree[0] == "leaf":
        return made(tree)
    given = [value(part, made) for part in parts(tree)]
    attributes = {"axes": tree[2], "keep_dims": tree[3]} if tree[0] in FOLDS else {}
    return getattr(ops, tree[0])(*given, **attributes)


def differs(tree: Tree, dtype: str) -> str | None:
    """In what way the tree's value depends on who computes it, if it does."""
    largest = [1.0]

    def eager(part: Tree) -> np.ndarray:
        return array(part, dtype)

    expected = value(tree, eager)
    for part in every_part(tree):
        largest.append(float(np.max(np.abs(value(part, eager)), initial=0.0)))
    graph, feeds = opsmith.Graph(), {}

    def fed(part: Tree) -> Any:
        found = [node for node, own in feeds.items() if own[0] == part]
        if not found:
            node = graph.placeholder(dtype, part[1])
            feeds[node] = (part, array(part, dtype))
            found = [node]
        return found[0]

    output = value(tree, fed)
    given = {node: numbers for node, (_, numbers) in feeds.items()}
    plain = opsmith.Session(graph, simplify=False, fuse=False).run(output, given)
    if plain.tobytes() != expected.tobytes():
        return f"not fused {plain.ravel()[:4]} instead of {expected.ravel()[:4]}"
    theirs = value(tree, lambda part: torch.from_numpy(array(part, dtype)))
    tolerance = 400 * float(np.finfo(dtype).eps) * (1 + max(largest)) ** 2
    for who, found in (("PyTorch", theirs.numpy()), ("fused", opsmith.Session(graph).run(output, given))):
        if found.shape != expected.shape or not np.allclose(
            found, expected, tolerance, tolerance, equal_nan=True
        ):
            return f"{who} {found.ravel()[:4]} of shape {found.shape} instead of {expected.ravel()[:4]}"
    return None


def every_part(tree: Tree) -> list[Tree]:
    """All parts, the small ones in front."""
    return [inner for part in parts(tree) for inner in every_part(part)] + [tree]


def smaller(tree: Tree, dtype: str) -> Tree:
    """The smallest part that differs, with leaves as small as they may be."""
    tree = next((part for part in every_part(tree) if part[0] != "leaf" and differs(part, dtype)), tree)
    for own in [part for part in every_part(tree) if part[0] == "leaf"]:
        for shape in sorted(SHAPES, key=lambda shape: int(np.prod(shape))):
            other = exchanged(tree, own, leaf(shape, own[2]))
            try:
                if len(shape) == len(own[1]) and np.prod(shape) < np.prod(own[1]) and differs(other, dtype):
                    tree = other
                    break
            except (ValueError, opsmith.Error):
                # Such shapes do not go together.
                continue
    return tree


def exchanged(tree: Tree, old: Tree, new: Tree) -> Tree:
    """The tree with another leaf in place of one."""
    return (
        new if tree == old else [exchanged(part, old, new) if part in parts(tree) else part for part in tree]
    )


def run(end: float, seed: int, counts: Counter[str], kept: Callable[[dict[str, Any]], Path]) -> int:
    """Random graphs until the time is over; gives how many differ."""
    rng, wrong = random.Random(seed), 0
    while time.monotonic() < end:
        leaves = [leaf(rng.choice(SHAPES), rng.randrange(1 << 30)) for _ in range(rng.randint(1, 4))]
        tree, dtype = random_tree(rng, rng.randint(1, 6), leaves), rng.choice(["float32", "float64"])
        counts["graphs"] += 1
        try:
            found = differs(tree, dtype)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        if found is not None:
            wrong += 1
            if "Error: " not in found:
                tree = smaller(tree, dtype)
            case = {"framework": "graphs", "tree": tree, "dtype": dtype, "seed": seed, "said": found}
            print(f"WRONG {kept(case).name}: {tree}: {found}", flush=True)
    return wrong


def replayed(case: dict[str, Any]) -> str | None:
    """What is wrong in a case that failed once."""
    return differs(case["tree"], case["dtype"])
