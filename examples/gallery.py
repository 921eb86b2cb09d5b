"""Draws what operators of the examples compute, a picture for each family, from calls of the libraries.

    python gallery.py --libraries target/release [--draw docs/images/gallery]

prints the name of each picture; with `--draw`, writes them as SVG. It needs matplotlib.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import opsmith
from matplotlib.figure import Figure

Load = Callable[[str], Any]
PICTURES: dict[str, Callable[[Load], Figure]] = {}
SIZE = (7.2, 2.4)


def picture(draw: Callable[[Load], Figure]) -> Callable[[Load], Figure]:
    """Note a picture; its file has the function's name."""
    PICTURES[draw.__name__] = draw
    return draw


def panels(*titles: str) -> tuple[Figure, list[Any]]:
    """A figure with panels side by side."""
    figure = Figure(figsize=SIZE, layout="constrained", facecolor="white")
    axes = list(np.atleast_1d(figure.subplots(1, len(titles))))
    for each, title in zip(axes, titles, strict=True):
        each.set_title(title, fontsize=9)
        each.tick_params(labelsize=7)
    return figure, axes


def image(axes: Any, numbers: np.ndarray, **more: Any) -> None:
    """Numbers as colours, a square each."""
    axes.imshow(numbers, interpolation="nearest", aspect="auto", **more)
    axes.set_xticks([])
    axes.set_yticks([])


def points(seed: int, count: int) -> np.ndarray:
    """Points of the unit square."""
    return np.random.default_rng(seed).random((count, 2))


@picture
def activations(load: Load) -> Figure:
    """GELU and leaky ReLU, and their slopes."""
    ops, x = load("activations"), np.linspace(-4, 4, 81)
    figure, (values, slopes) = panels("values", "derived slopes")
    for name, function in {"gelu": ops.gelu, "leaky_relu": ops.leaky_relu}.items():
        values.plot(x, function(x), label=name)
        slopes.plot(x, opsmith.grad(lambda x, function=function: function(x).sum())(x), label=name)
    values.legend(fontsize=7)
    return figure


@picture
def reductions(load: Load) -> Figure:
    """Softmax and layer norm of a row."""
    ops, row = load("reductions"), np.random.default_rng(3).normal(size=(1, 16))
    figure, axes = panels("a row", "softmax", "layer_norm")
    ones, zeros = np.ones(16), np.zeros(16)
    for each, numbers in zip(axes, (row, ops.softmax(row), ops.layer_norm(row, ones, zeros)), strict=True):
        each.bar(range(16), numbers[0])
        each.set_xticks([])
    return figure


@picture
def pairwise(load: Load) -> Figure:
    """How far the points of the square are from a point, as three functions of pairs see it."""
    ops, side = load("pairwise"), np.linspace(-1, 1, 33)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    names = ("manhattan", "euclidean", "chebyshev")
    figure, axes = panels(*names)
    for each, name in zip(axes, names, strict=True):
        distances = getattr(ops, name)(grid, np.zeros((1, 2))).reshape(33, 33)
        image(each, np.floor(distances * 6))
        each.set_aspect("equal")
    return figure


@picture
def kernel_sums(load: Load) -> Figure:
    """A curve from noisy samples: a quotient of two Gaussian convolutions."""
    ops, rng = load("kernels"), np.random.default_rng(1)
    at = np.sort(rng.random((60, 1)), axis=0)
    noisy = np.sin(7 * at) + rng.normal(scale=0.3, size=at.shape)
    x = np.linspace(0, 1, 101)[:, None]
    figure, axes = panels("gamma = 30", "gamma = 300", "gamma = 3000")
    for each, gamma in zip(axes, (30.0, 300.0, 3000.0), strict=True):
        sums = ops.gaussian_convolution(x, at, np.hstack([noisy, np.ones_like(noisy)]), gamma=gamma)
        each.plot(at, noisy, ".", color="tab:gray", markersize=3, rasterized=True)
        each.plot(x, sums[:, 0] / sums[:, 1])
    return figure


@picture
def neighbours(load: Load) -> Figure:
    """The nearest of some centres, and the three nearest neighbours of points."""
    ops, centres, cloud = load("kernels"), points(5, 6), points(6, 150)
    figure, (assigned, linked) = panels("nearest: the assignment of k-means", "k_nearest, three each")
    owners = ops.nearest(cloud, centres)
    assigned.scatter(*cloud.T, c=owners, cmap="tab10", s=6, rasterized=True)
    assigned.plot(*centres.T, "k+")
    few = cloud[:12]
    for point, found in zip(few, ops.k_nearest(few, cloud[12:], neighbours=3), strict=True):
        for other in cloud[12:][found]:
            linked.plot(*np.stack([point, other]).T, color="tab:orange", linewidth=0.8, rasterized=True)
    linked.plot(*cloud[12:].T, ".", color="tab:gray", markersize=2, rasterized=True)
    linked.plot(*few.T, ".", color="tab:blue", markersize=5)
    return figure


@picture
def transport(load: Load) -> Figure:
    """Sinkhorn's algorithm: the plan that moves points to others, after few and many steps."""
    ops = load("kernels")
    x, y = np.sort(points(7, 24), axis=0), np.sort(points(8, 24), axis=0)
    steps = (1, 5, 50)
    figure, axes = panels(*("1 step" if count == 1 else f"{count} steps" for count in steps))
    for each, count in zip(axes, steps, strict=True):
        g = np.zeros(24)
        for _ in range(count):
            f = ops.sinkhorn_step(x, y, g, epsilon=0.004)
            g = ops.sinkhorn_step(y, x, f, epsilon=0.004)
        cost = load("pairwise").squared_euclidean(x, y)
        image(each, np.exp((f[:, None] + g - cost) / 0.004))
    return figure


@picture
def attention(load: Load) -> Figure:
    """The weights of attention: what it gives where the values are the rows of the identity."""
    attend, rng = load("kernels").attention, np.random.default_rng(2)
    query, key = rng.normal(size=(2, 20, 8)) * 2
    seen = {
        "all keys": {"length": 20},
        "causal": {"length": 20, "causal": True},
        "12 keys": {"length": 12},
    }
    figure, axes = panels(*seen)
    for each, (_, options) in zip(axes, seen.items(), strict=True):
        length = np.array(options.pop("length"))
        image(each, attend(query, key, np.eye(20), length, **options))
    return figure


@picture
def windows(load: Load) -> Figure:
    """Sliding windows of an image: its medians, and a convolution that finds edges."""
    rng, side = np.random.default_rng(4), np.linspace(-1, 1, 48)
    clean = (np.hypot(*np.meshgrid(side, side)) < 0.7).astype(np.float32)
    noisy = np.where(rng.random(clean.shape) < 0.1, 1 - clean, clean).astype(np.float32)
    medians = load("median_pool").median_pool(noisy[None, :, :, None], ksize=[3, 3])[0, :, :, 0]
    edges = np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]], np.float32)[None, None]
    found = opsmith.ops.conv(clean[None, None], edges, strides=[1, 1])[0, 0]
    figure, axes = panels("wrong pixels", "MedianPool", "Conv: edges")
    for each, numbers in zip(axes, (noisy, medians, np.abs(found)), strict=True):
        image(each, numbers, cmap="gray")
        each.set_aspect("equal")
    return figure


@picture
def random_numbers(load: Load) -> Figure:
    """Random numbers of a seed, and running sums of them: walks."""
    del load
    normal = opsmith.ops.random_normal([5, 300], 1, 0)
    figure, (counts, walks) = panels("RandomNormal", "CumSum of the rows")
    counts.hist(np.ravel(normal), bins=25)
    walks.plot(opsmith.ops.cum_sum(normal, axis=1).T, linewidth=0.8, rasterized=True)
    return figure


def main() -> None:
    """Draw all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--libraries", required=True, type=Path, help="the folder of the built libraries")
    parser.add_argument("--draw", type=Path)
    arguments = parser.parse_args()
    mpl.use("svg")
    mpl.rcParams["svg.fonttype"] = "none"

    def load(name: str) -> Any:
        return opsmith.load(arguments.libraries / f"lib{name}.so")

    for name, draw in PICTURES.items():
        mpl.rcParams["svg.hashsalt"] = name
        figure = draw(load)
        print(name)
        if arguments.draw:
            figure.savefig(arguments.draw / f"{name}.svg", dpi=64, metadata={"Date": None})


if __name__ == "__main__":
    main()
