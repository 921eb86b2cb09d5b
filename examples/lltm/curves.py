"""Draws the loss curves that `train.py --losses` wrote, over each other, and how far apart they are.

python curves.py torch.txt tensorflow.txt jax.txt --output curves.svg
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np

WIDTHS = {"torch": 5, "tensorflow": 3, "jax": 1}
BLOCK = 4
"""Of so many steps the mean loss and the largest difference are drawn."""

COLORS = {"torch": "tab:orange", "tensorflow": "tab:blue", "jax": "black"}


def main() -> None:
    """Draw the files of the command line; each is named after its framework."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("losses", type=Path, nargs="+")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    curves = {path.stem: np.loadtxt(path) for path in arguments.losses}
    steps = np.arange(0, len(next(iter(curves.values()))), BLOCK)
    first, *others = curves
    mpl.use("svg")
    from matplotlib import pyplot as plt

    plt.rcParams["svg.hashsalt"] = "lltm"
    figure, (above, below) = plt.subplots(2, sharex=True, figsize=(7, 4.5), layout="constrained")
    for name, losses in curves.items():
        means = np.add.reduceat(losses, steps) / BLOCK
        above.plot(steps, means, label=name, linewidth=WIDTHS[name], color=COLORS[name])
    above.set_ylabel("loss")
    above.legend()
    for name in others:
        apart = np.maximum.reduceat(np.abs(curves[name] - curves[first]), steps)
        below.semilogy(steps, np.maximum(apart, 1e-8), label=f"{name}, {first}", color=COLORS[name])
    below.set_ylabel("difference")
    below.set_xlabel("step")
    below.legend()
    figure.savefig(arguments.output, metadata={"Date": None})


if __name__ == "__main__":
    main()
