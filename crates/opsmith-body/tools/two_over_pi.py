"""Writes `src/math/two_over_pi.rs`; needs mpmath."""

from pathlib import Path

from mpmath import mp, mpf

mp.prec = 1600

HEADER = """\
//! The bits of 2/π that count for each range of exponents. Written by `tools/two_over_pi.py`.

"""
SINGLE = """\
/// For float32: where a range begins, and 2/π without multiples of 4 in three parts of 29, 29 and 53 bits.
pub(crate) const BANDS_F32: [(f64, [f64; 3]); 6] = [
"""
DOUBLE = """\
];

/// For float64: 2/π times 2¹⁶ᵇ without the multiples of 2⁵⁴ in four parts of 53 bits, for each b.
pub(crate) static BANDS_F64: [[f64; 4]; 64] = [
"""


def below(number: mpf, unit: mpf) -> mpf:
    """A number without the multiples of a unit."""
    return number - mp.floor(number / unit) * unit


def parts(number: mpf, units: list[mpf]) -> list[float]:
    """A number as a sum of multiples of each unit, and the rest."""
    found = []
    for unit in units:
        rest = below(number, unit)
        found.append(float(number - rest))
        number = rest
    return [*found, float(number)]


def single(band: int) -> str:
    """A row of the table for float32."""
    power = mpf(2) ** (24 * band)
    number = below(2 / mp.pi, 2**25 / power) if band else 2 / mp.pi
    row = parts(number, [mpf(2) ** -4 / power, mpf(2) ** -33 / power])
    return f"    ({float(power if band else 0)!r}, {row!r}),\n"


def double(band: int) -> str:
    """A row of the table for float64."""
    number = below(2 / mp.pi * mpf(2) ** (16 * band), mpf(2) ** 54)
    return f"    {parts(number, [mpf(2), mpf(2) ** -52, mpf(2) ** -105])!r},\n"


if __name__ == "__main__":
    text = (
        HEADER + SINGLE + "".join(map(single, range(6))) + DOUBLE + "".join(map(double, range(64))) + "];\n"
    )
    (Path(__file__).parent.parent / "src/math/two_over_pi.rs").write_text(text, encoding="utf-8")
