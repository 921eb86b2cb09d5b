"""GELU, its slope, and how far the approximation by tanh is from it, computed by the library.

    python curves.py --library PATH [--draw FILE.svg]

prints the largest differences; with `--draw`, a picture.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import opsmith

WIDTH, HEIGHT, MARGIN = 380, 240, 34
COLOURS = ("#1f6feb", "#d1242f")


def panel(left: int, title: str, x: np.ndarray, curves: dict[str, np.ndarray]) -> str:
    """A box with curves in it, and their names."""
    low = min(float(y.min()) for y in curves.values())
    high = max(float(y.max()) for y in curves.values())
    across = (WIDTH - 2 * MARGIN) / (x[-1] - x[0])
    down = (HEIGHT - 2 * MARGIN) / (high - low)

    def point(a: float, b: float) -> str:
        return f"{left + MARGIN + (a - x[0]) * across:.1f},{HEIGHT - MARGIN - (b - low) * down:.1f}"

    parts = [
        f'<text x="{left + MARGIN}" y="18" font-weight="bold">{title}</text>',
        f'<polyline points="{point(x[0], 0)} {point(x[-1], 0)}" stroke="#999" fill="none"/>',
        f'<text x="{left + MARGIN}" y="{HEIGHT - 12}">{x[0]:g}</text>',
        f'<text x="{left + WIDTH - MARGIN}" y="{HEIGHT - 12}" text-anchor="end">{x[-1]:g}</text>',
        f'<text x="{left + MARGIN - 4}" y="{HEIGHT - MARGIN}" text-anchor="end">{low:.2g}</text>',
        f'<text x="{left + MARGIN - 4}" y="{MARGIN + 4}" text-anchor="end">{high:.2g}</text>',
    ]
    for number, (name, y) in enumerate(curves.items()):
        points = " ".join(point(a, b) for a, b in zip(x, y, strict=True))
        parts.append(
            f'<polyline points="{points}" stroke="{COLOURS[number]}" stroke-width="1.5" fill="none"/>'
        )
        at = f'x="{left + MARGIN + 8}" y="{MARGIN + 12 + 14 * number}"'
        parts.append(f'<text {at} fill="{COLOURS[number]}">{name}</text>')
    return "\n".join(parts)


def main() -> None:
    """Compute both functions and their slopes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True, type=Path)
    parser.add_argument("--draw", type=Path)
    arguments = parser.parse_args()
    gelu = opsmith.load(arguments.library)

    x = np.linspace(-4, 4, 161)
    ones = np.ones_like(x)
    values = {kind: gelu.gelu(x, approximate=kind) for kind in ("none", "tanh")}
    slopes = {kind: gelu.gelu_grad(x, ones, approximate=kind) for kind in ("none", "tanh")}
    errors = {
        "of the value": values["tanh"] - values["none"],
        "of the slope": slopes["tanh"] - slopes["none"],
    }
    for name, error in errors.items():
        print(f"largest difference {name}: {np.abs(error).max():.1e}")
    if arguments.draw:
        exact = {"GELU": values["none"], "its slope": slopes["none"]}
        parts = [panel(0, "x \u03a6(x)", x, exact), panel(WIDTH, "tanh: the differences", x, errors)]
        box = f'viewBox="0 0 {2 * WIDTH} {HEIGHT}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {box} font-family="sans-serif"'
        text = f'{head} font-size="11">\n<rect width="100%" height="100%" fill="white"/>\n'
        arguments.draw.write_text(text + "\n".join(parts) + "\n</svg>\n", encoding="utf-8")


if __name__ == "__main__":
    main()
