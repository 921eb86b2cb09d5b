"""Fits the polynomials of `src/math` by Remez exchange in 60 digits and prints their coefficients.

Takes a minute and needs mpmath and numpy.
"""

from collections.abc import Callable, Iterator

import numpy
from mpmath import mp, mpf

mp.dps = 60

Function = Callable[[mpf], mpf]


def times(p: list, q: list) -> list:
    """The product of two polynomials, lowest coefficient first."""
    product = [mpf(0)] * (len(p) + len(q) - 1)
    for i, a in enumerate(p):
        for j, b in enumerate(q):
            product[i + j] += a * b
    return product


def extrema(errors: list) -> list:
    """The largest error of each run of one sign."""
    found, best = [], errors[0]
    for item in errors[1:]:
        if (item[1] > 0) != (best[1] > 0):
            found.append(best)
            best = item
        elif abs(item[1]) > abs(best[1]):
            best = item
    return [*found, best]


def remez(f: Function, weight: Function, low: mpf, high: mpf, degree: int) -> tuple[list, mpf]:
    """The polynomial p of least max |weight(x) (f(x) - p(x))| on [low, high], and that error in bits."""
    count = degree + 2
    middle, half = (mpf(low) + high) / 2, (mpf(high) - low) / 2
    nodes = [middle - half * mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]
    grid = [middle - half * mp.cos(mp.pi * (2 * i + 1) / (40 * count)) for i in range(20 * count)]
    targets = [(x, f(x), weight(x)) for x in grid]
    for _ in range(8):
        rows = [
            [((x - middle) / half) ** k for k in range(degree + 1)] + [(-1) ** i / weight(x)]
            for i, x in enumerate(nodes)
        ]
        scaled = list(mp.lu_solve(mp.matrix(rows), mp.matrix([f(x) for x in nodes])))[: degree + 1]
        errors = [(x, w * (y - mp.polyval(scaled[::-1], (x - middle) / half))) for x, y, w in targets]
        peaks = extrema(errors)
        while len(peaks) > count:
            peaks.pop(0 if abs(peaks[0][1]) < abs(peaks[-1][1]) else -1)
        if len(peaks) < count:
            break
        nodes = [x for x, _ in peaks]
    total, power = [mpf(0)] * (degree + 1), [mpf(1)]
    for c in scaled:
        for i, b in enumerate(power):
            total[i] += c * b
        power = times(power, [-middle / half, 1 / half])
    return total, mp.log(max(abs(e) for _, e in errors), 2)


def series(terms: list, x: mpf) -> mpf:
    """A power series near 0, where closed forms cancel."""
    return mp.fsum(t * x**k for k, t in enumerate(terms))


def exp2(r: mpf) -> mpf:  # (e^r - 1 - r) / r^2
    return series([1 / mp.factorial(k + 2) for k in range(40)], r)


def atanh2(z: mpf) -> mpf:  # log((1 + s)/(1 - s)) = 2 s + s z L(z), z = s^2
    return series([mpf(2) / (2 * k + 3) for k in range(60)], z)


def atanh3(z: mpf) -> mpf:  # L(z) = 2/3 + z M(z)
    return series([mpf(2) / (2 * k + 5) for k in range(60)], z)


def erf1(z: mpf) -> mpf:  # erf(x) = x + x Q(x^2)
    return mp.fsum([2 / mp.sqrt(mp.pi) * (-z) ** k / (mp.factorial(k) * (2 * k + 1)) for k in range(60)]) - 1


def sin3(z: mpf) -> mpf:  # sin(r) = r + r z S(z)
    return series([(-1) ** (k + 1) / mp.factorial(2 * k + 3) for k in range(20)], z)


def atan3(z: mpf) -> mpf:  # atan(r) = r + r z A(z)
    if z < mpf(10) ** -4:
        return series([mpf(-1) ** (k + 1) / (2 * k + 3) for k in range(20)], z)
    return (mp.atan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z


def lgamma2(v: mpf) -> mpf:  # lgamma(2 + v) = v (1 + v) P(v)
    return mp.loggamma(2 + v) / (v * (1 + v)) if abs(v) > 1e-10 else mp.digamma(2)


def lgamma3(v: mpf) -> mpf:  # P(v) = 1 - euler + v Q(v)
    return (lgamma2(v) - mp.digamma(2)) / v if abs(v) > 1e-10 else mp.polygamma(1, 2) / 2 - mp.digamma(2)


def stirling(z: mpf) -> mpf:  # lgamma(t) = (t - 1/2) log(t) - t + log(2 pi)/2 + Q(z)/t, z = 1/t^2
    t = 1 / mp.sqrt(z)
    return t * (mp.loggamma(t) - (t - 0.5) * mp.log(t) + t - mp.log(2 * mp.pi) / 2)


def digamma1(d: mpf) -> mpf:  # digamma(ROOT + d) = d P(d)
    return mp.digamma(ROOT + d) / d if abs(d) > 1e-30 else mp.polygamma(1, ROOT)


def digamma_far(z: mpf) -> mpf:  # digamma(t) = log(t) - 1/(2 t) - z Q(z), z = 1/t^2
    t = 1 / mp.sqrt(z)
    return (mp.log(t) - 1 / (2 * t) - mp.digamma(t)) / z


ROOT = mp.findroot(mp.digamma, 1.46)  # the positive zero of digamma


def mills(t: mpf) -> mpf:  # K(t) = exp(t^2/2) Phi(-t)
    return mp.exp(t * t / 2) * mp.erfc(t / mp.sqrt(2)) / 2


def tail(boundary: float, end: float, near: float, shift: float) -> Iterator[tuple]:
    """K(near + z) below the boundary; t K(t) with w = 1/(t + shift) beyond.

    The constants are those for which the coefficients lose least when they are rounded.
    """
    boundary, end, near, shift = mpf(boundary), mpf(end), mpf(near), mpf(shift)
    yield lambda z: mills(near + z), (-near, boundary - near)
    yield lambda w: (1 / w - shift) * mills(1 / w - shift), (1 / (end + shift), 1 / (boundary + shift))


def eighths() -> Iterator[tuple]:
    """K(middle + z) between the ends where 1 + t has another exponent, or another bit after it; its position.

    The middles are those for which the coefficients lose least when they are rounded.
    """
    middles = (0.28125, 0.65625, 1.578125, 2.515625, 3.921875, 5.9375, 8.921875, 12.765625)
    ends = (0, 0.5, 1, 2, 3, 5, 7, 11, 14.5)
    for k, middle in enumerate(middles):
        yield (
            (k + 6) % 8,
            lambda z, m=middle: mills(mpf(m) + z),
            (ends[k] - mpf(middle), ends[k + 1] - mpf(middle)),
        )


def fits() -> Iterator[tuple]:
    """Every polynomial: its name, the function, the weight, the range, the degree, if it is single."""
    half_ln2 = mp.log(2) / 2 * mpf("1.001")
    log_range = (0, ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2 * mpf("1.001"))
    turn_range = (mpf(10) ** -9, (mp.pi / 2) ** 2 * mpf("1.002"))
    for single, degree in ((True, 4), (False, 10), (False, 5)):
        yield "exp", exp2, lambda r: abs(r) + mpf(10) ** -8, (-half_ln2, half_ln2), degree, single
    for single, degree in ((True, 2), (False, 6), (False, 3)):
        yield "log", atanh2, lambda z: z / 2 + mpf(10) ** -8, log_range, degree, single
    for single, degree in ((True, 2), (False, 7)):
        yield "power_log", atanh3, lambda z: z * z / 2 + mpf(10) ** -8, log_range, degree, single
    for single, degree in ((True, 6), (False, 12)):
        yield "erf", erf1, lambda z: mpf(1), (0, 1), degree, single
    for f, bounds in tail(2, 39, 0.796875, 2.125):
        yield "tail", f, lambda x, f=f: 1 / f(x), bounds, 19, False
    for position, f, bounds in eighths():
        yield f"eighth {position}", f, lambda z, f=f: 1 / f(z), bounds, 8, True
    # Coefficients of float32 were moved by a few units in the last place, so that what their rounding loses
    # cancels.
    for single, degree in ((True, 3), (False, 7)):
        yield "sine", sin3, lambda z: z * mp.sqrt(z) / mp.sin(mp.sqrt(z)), turn_range, degree, single
    yield from gamma_fits()


def gamma_fits() -> Iterator[tuple]:
    """Those of the arc tangent and the gamma function; what is far is so from 2.5 and from 2 on."""
    tiny = mpf(10) ** -6
    for single, degree in ((True, 9), (False, 20)):
        yield "atan", atan3, lambda z: z * mp.sqrt(z) / mp.atan(mp.sqrt(z)), (tiny, 1), degree, single
    for single, degree in ((True, 7), (False, 17)):
        yield "lgamma", lgamma3, lambda v: abs(v) / lgamma2(v) + mpf(10) ** -6, (-0.5, 0.5), degree, single
    for single, degree in ((True, 4), (False, 12)):
        yield "stirling", stirling, mp.sqrt, (tiny, mpf(4) / 25), degree, single
    for single, degree in ((True, 10), (False, 22)):
        yield "digamma", digamma1, lambda d: 1 / digamma1(d), (1 - ROOT, 2 - ROOT), degree, single
    for single, degree in ((True, 5), (False, 17)):
        yield "digamma_far", digamma_far, lambda z: z, (tiny, mpf(1) / 4), degree, single


if __name__ == "__main__":
    for name, f, weight, bounds, degree, single in fits():
        coefficients, bits = remez(f, weight, *bounds, degree)
        print(f"{name}, degree {degree}, error 2^{mp.nstr(bits, 4)}")
        print("    " + ", ".join(str(numpy.float32(c) if single else float(c)) for c in coefficients))
