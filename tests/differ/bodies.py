"""Libraries of random pointwise functions, built just in time, and the same functions in NumPy."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import scipy.special
from opsmith import jit

BODIES = 12
"""So many functions a library has."""

UNARY = {
    "(-a)": "(-a)",
    "(a.tanh() * 2.0).exp()": "np.exp(2 * np.tanh(a))",
    "(a.abs() + 0.5).log()": "np.log(np.abs(a) + 0.5)",
    "(a * a).log1p()": "np.log1p(a * a)",
    "a.tanh().expm1()": "np.expm1(np.tanh(a))",
    "a.tanh()": "np.tanh(a)",
    "a.sigmoid()": "special.expit(a)",
    "a.erf()": "special.erf(a)",
    "a.normal_cdf()": "special.ndtr(a)",
    "a.softplus()": "np.logaddexp(0, a)",
    "a.sin()": "np.sin(a)",
    "a.cos()": "np.cos(a)",
    "(a * a + 0.25).sqrt()": "np.sqrt(a * a + 0.25)",
    "(a * a + 0.25).rsqrt()": "(1 / np.sqrt(a * a + 0.25))",
    "a.abs()": "np.abs(a)",
    "a.elu()": "np.where(a > 0, a, np.expm1(np.minimum(a, 0)))",
    "a.gelu()": "(a * special.ndtr(a))",
    "a.powi(3)": "(a * a * a)",
    "(a.tanh() * 2.0).exp2()": "np.exp2(2 * np.tanh(a))",
    "(a.abs() + 0.5).log2()": "np.log2(np.abs(a) + 0.5)",
    "(a.abs() + 0.5).log10()": "np.log10(np.abs(a) + 0.5)",
    "a.tanh().tan()": "np.tan(np.tanh(a))",
    "(a.tanh() * 0.9).asin()": "np.arcsin(0.9 * np.tanh(a))",
    "(a.tanh() * 0.9).acos()": "np.arccos(0.9 * np.tanh(a))",
    "a.atan()": "np.arctan(a)",
    "a.tanh().sinh()": "np.sinh(np.tanh(a))",
    "a.tanh().cosh()": "np.cosh(np.tanh(a))",
    "a.asinh()": "np.arcsinh(a)",
    "(a * a + 1.25).acosh()": "np.arccosh(a * a + 1.25)",
    "(a.tanh() * 0.9).atanh()": "np.arctanh(0.9 * np.tanh(a))",
    "(a.tanh() * 2.0 + 2.25).lgamma()": "special.gammaln(2 * np.tanh(a) + 2.25)",
    "(a.tanh() * 2.0 + 2.25).digamma()": "special.digamma(2 * np.tanh(a) + 2.25)",
}
BINARY = {
    "(a + b)": "(a + b)",
    "(a - b)": "(a - b)",
    "(a * b)": "(a * b)",
    "(a / (b.abs() + 0.5))": "(a / (np.abs(b) + 0.5))",
    "(a.abs() + 0.5).pow(b.tanh() * 2.0)": "((np.abs(a) + 0.5) ** (2 * np.tanh(b)))",
    "a.min(b)": "np.minimum(a, b)",
    "a.max(b)": "np.maximum(a, b)",
    "a.atan2(b.abs() + 0.5)": "np.arctan2(a, np.abs(b) + 0.5)",
}


def tree(rng: random.Random, depth: int) -> tuple[str, str]:
    """A random expression in Rust and in NumPy's words; each part is a variable there, so texts stay
    short."""
    if depth == 0 or rng.random() < 0.05:
        if rng.random() < 0.15:
            constant = rng.choice([-1.0, 0.5, 1.0, 2.0, 0.3])
            return f"S::of({constant})", f"np.float64({constant})"
        name = rng.choice("xyz")
        return name, name
    forms = UNARY if rng.random() < 0.5 else BINARY
    rust = rng.choice(list(forms))
    a, b = tree(rng, depth - 1), tree(rng, depth - 1) if forms is BINARY else ("", "")
    return (
        f"{{ let a: S = {a[0]}; " + (f"let b: S = {b[0]}; " if b[0] else "") + f"{rust} }}",
        f"(lambda a, b: {forms[rust]})({a[1]}, {b[1] or 0})",
    )


def library(seed: int) -> tuple[str, Any, str]:
    """The library of a seed: its name, itself and its source."""
    source, formulas = "", {}
    rng = random.Random(seed)
    for index in range(BODIES):
        rust, formula = tree(rng, rng.randint(2, 5))
        source += f"/// Made at random.\n#[pointwise]\nfn body{index}<S: Scalar>(x: S, y: S, z: S) -> S {{\n"
        # A function reads all its arguments.
        source += f"    let made: S = {rust};\n    made + (x + y + z) * 0.125\n}}\n"
        formulas[f"body{index}"] = eval(
            f"lambda x, y, z: {formula} + (x + y + z) * 0.125", {"np": np, "special": scipy.special}
        )
    name = f"random_bodies_{seed}"
    built = jit.load_inline(name, source)
    _formulas[built.__name__] = formulas
    return name, built, source


_formulas: dict[str, dict[str, Any]] = {}


def formulas(built: Any, seed: int, counts: Counter[str]) -> int:
    """Compares the functions with NumPy's in double precision; gives how many differ."""
    rng, wrong = np.random.default_rng(seed), 0
    for name, formula in _formulas[built.__name__].items():
        inputs = [
            rng.uniform(-2.5, 2.5, shape) for shape in rng.permutation([(37, 1), (1, 53), (37, 53)]).tolist()
        ]
        ours, theirs = getattr(built, name)(*inputs), formula(*inputs)
        # What a difference in the last place of an input makes of the output, and of an input of each part.
        moved = sum(np.abs(formula(*(x * (1 + 2e-10) for x in inputs)) - theirs) for _ in range(1))
        counts["formulas of bodies"] += 1
        if not np.all(np.abs(ours - theirs) <= 1e-12 * (1 + np.abs(theirs)) + 1e-3 * moved):
            wrong += 1
            print(f"WRONG body {name} of seed {seed}: {np.abs(ours - theirs).max()}", flush=True)
    return wrong
