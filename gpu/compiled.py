"""Ops inside what `torch.compile` makes: one graph, without a break, with the same values and gradients."""

from __future__ import annotations

import os
import shutil
from typing import Any

import torch
from devices import Device, Job
from results import FAILED, NOT_RUN, PASSED, Results
from streams import SUBJECTS, drawn, same, with_gradients
from values import libraries, subjects


def run(job: Job, results: Results) -> None:
    """Compile a function around each of some ops."""
    device = job.device
    if device.is_card and not any(map(shutil.which, [os.environ.get("CC", "cc"), "gcc", "clang"])):
        message = "torch.compile needs a C compiler for Triton, and there is none: install gcc, or set CC"
        results.say("torch.compile", "everything", NOT_RUN, message)
        return
    for library in libraries(job.folder):
        for name, shapes in SUBJECTS.get(library.__name__, {}).items():
            subject, what = subjects(library)[name], f"{library.__name__}.{name}"
            if not subject.has_cuda:
                results.say("torch.compile", what, NOT_RUN, "the op has no CUDA kernel")
                continue
            torch._dynamo.reset()
            try:
                look_at(device, subject.function, shapes)
            except Exception as error:
                results.say("torch.compile", what, FAILED, f"{type(error).__name__}: {error}")
            else:
                results.say("torch.compile", what, PASSED)


def look_at(device: Device, function: Any, shapes: tuple[tuple[int, ...], ...]) -> None:
    """Raise where the compiled function differs from the CPU's, as it is."""

    def around(*inputs: torch.Tensor) -> Any:
        outputs = function(*(x + 1 for x in inputs))
        return outputs * 2 if isinstance(outputs, torch.Tensor) else outputs

    compiled = torch.compile(around, fullgraph=True)
    inputs = drawn(shapes, 6)
    same(with_gradients(compiled, [x.to(device.torch) for x in inputs]), with_gradients(around, inputs))
