"""What a call on NumPy arrays costs when there is nothing to compute: shape (1, 1), float32, through the
Python package and its engine. `np.add` is about the cheapest call that NumPy has.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness import OURS, Case, Options, Target

TITLE = "A call on NumPy arrays"


def cases(options: Options) -> Iterator[Case]:
    """One call each."""
    import numpy as np
    import opsmith
    from scipy.spatial.distance import cdist

    op = opsmith.load(options.library("distances")).pairwise_manhattan_distance
    x, y = np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32)
    assert op(x, y) == 1
    yield Case(
        "forward",
        {
            OURS: lambda: op(x, y),
            "np.add": lambda: np.add(x, y),
            "SciPy cdist": lambda: cdist(x, y, "cityblock"),
        },
        [Target(4.0, ("np.add",))],
    )
