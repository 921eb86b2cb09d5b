"""The same calls and gradients through JAX, compiled by `jax.jit`, on its first device."""

from __future__ import annotations

import itertools
import os
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from cases import CASES, Case
from devices import Job
from results import FAILED, NOT_RUN, PASSED, Results
from values import (
    Broken,
    Subject,
    check_alive,
    differ,
    fits,
    inputs_of,
    is_plain,
    libraries,
    outcome,
    subjects,
)


def run(job: Job, results: Results) -> None:
    """Look at every op that PyTorch is looked at with, in float32 and float16."""
    if find_spec("jax") is None:
        results.say("JAX", "everything", NOT_RUN, "JAX is not installed in this Python")
        return
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    # Seeds and offsets of random numbers have 64 bits.
    jax.config.update("jax_enable_x64", True)
    platform = jax.default_backend()
    if platform != ("gpu" if job.device.is_card else "cpu"):
        message = f"JAX is installed for {platform}: install jax[cuda13] or jax[cuda12]"
        results.say("JAX", "everything", NOT_RUN, message)
        return
    numbers = itertools.count()
    broken = ""
    for library in libraries(job.folder):
        ops = subjects(library)
        for name, cases in CASES.get(library.__name__, {}).items():
            subject, what = ops[name], f"{library.__name__}.{name}"
            if broken or not subject.has_cuda:
                why = f"the card does not answer after {broken}" if broken else "the op has no CUDA kernel"
                if job.part.has(next(numbers)):
                    results.say("JAX", what, NOT_RUN, why)
                continue
            try:
                for types in subject.types():
                    # What PyTorch shows of float64 and int64 is the same kernels.
                    wanted = all(is_plain(name) and not name.endswith("64") for name in types.values())
                    if wanted and job.part.has(next(numbers)):
                        look_at(subject, cases, types, job, results)
            except Broken:
                broken = what


def look_at(subject: Subject, cases: list[Case], types: dict[str, str], job: Job, results: Results) -> None:
    """Make the calls of one dtype whose tensors lie as JAX lays them."""
    fitting = [c for c in cases if not c.large and fits(subject, c, types)]
    dense = [c for c in fitting if all(x.layout == "dense" for x in c.inputs)]
    problem = ""
    for case in dense:
        try:
            orders = 1 if subject.gradient() else 0
            expected = outcome(subject, case, types, torch.device("cpu"), orders, subject.has_float64)
            differ(through_jax(subject, case, types), expected, types, case.rough)
        except Exception as error:
            problem = f"{case.name}: {type(error).__name__}: {error}"
            break
    label = f"{subject.library.__name__}.{subject.name} {' '.join(types.values())}".strip()
    verdict = FAILED if problem else PASSED if dense else NOT_RUN
    results.say(
        "JAX",
        label,
        verdict,
        problem or ("" if dense else "none of its calls is on dense tensors"),
        len(dense),
    )
    if problem:
        check_alive(job.device)


def through_jax(subject: Subject, case: Case, types: dict[str, str]) -> list[tuple[str, torch.Tensor | None]]:
    """Outputs and gradients of a call, as `values.outcome` gives them."""
    import jax
    import jax.numpy as jnp
    from values import probe

    cpu = torch.device("cpu")
    _, views = inputs_of(subject, case, types, cpu, exact=False)
    # JAX has no arrays in host memory: what a kernel reads there is numbers, and part of the program.
    both = list(zip(views, case.inputs, strict=True))
    given = [x.tolist() if told.host else to_jax(x) for x, told in both]
    floats = [i for i, (x, told) in enumerate(both) if x.is_floating_point() and not told.host]

    def call(*wanted: Any) -> Any:
        inputs = list(given)
        for i, x in zip(floats, wanted, strict=True):
            inputs[i] = x
        outputs = subject.call(case, inputs)
        return tuple(outputs) if isinstance(outputs, tuple | list) else (outputs,)

    wanted = [given[i] for i in floats]
    if subject.gradient() is None or not floats:
        return [(f"output {i}", to_torch(x)) for i, x in enumerate(jax.jit(call)(*wanted))]
    outputs, backward = jax.vjp(jax.jit(call), *wanted)
    found: list[tuple[str, torch.Tensor | None]] = [
        (f"output {i}", to_torch(x)) for i, x in enumerate(outputs)
    ]
    if not all(jnp.issubdtype(x.dtype, jnp.floating) for x in outputs):
        return found
    upstream = tuple(to_jax(probe(to_torch(x), i, cpu).detach()) for i, x in enumerate(outputs))
    return found + [(f"gradient {i}", to_torch(x)) for i, x in enumerate(backward(upstream))]


def to_jax(x: torch.Tensor) -> Any:
    """The same numbers for JAX."""
    import jax.numpy as jnp

    x = x.detach()
    if x.dtype == torch.bfloat16:
        return jnp.asarray(x.float().numpy()).astype(jnp.bfloat16)
    return jnp.asarray(x.numpy())


def to_torch(x: Any) -> torch.Tensor:
    """The same numbers for PyTorch, in host memory."""
    import jax.numpy as jnp

    if x.dtype == jnp.bfloat16:
        return torch.from_numpy(np.array(x.astype(jnp.float32))).bfloat16()
    return torch.from_numpy(np.array(x))
