"""The same calls in ONNX Runtime, each op a model of one node under its CUDA provider, with inputs and
outputs bound on the card: alone, and from several threads at once, which have streams of their own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
    libraries,
    outcome,
    subjects,
)

PROVIDER = "CUDAExecutionProvider"
THREADS, ROUNDS = 4, 8
OPSET, IR = 18, 8
"""What the oldest release that libraries load in reads."""


def run(job: Job, results: Results) -> None:
    """Look at every op that PyTorch is looked at with, in the dtypes that NumPy has, of 32 bits at most."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    for package in ("onnx", "onnxruntime"):
        if find_spec(package) is None:
            results.say("ONNX Runtime", "everything", NOT_RUN, f"{package} is not installed in this Python")
            return
    import onnxruntime

    if job.device.is_card and PROVIDER not in onnxruntime.get_available_providers():
        message = "ONNX Runtime is installed for the CPU: install onnxruntime-gpu in its place"
        results.say("ONNX Runtime", "everything", NOT_RUN, message)
        return
    import opsmith.onnx

    numbers = itertools.count()
    broken = ""
    for library in libraries(job.folder):
        ops, left_out = subjects(library), opsmith.onnx.left_out(library)
        for name, cases in CASES.get(library.__name__, {}).items():
            subject, what = ops[name], f"{library.__name__}.{name}"
            why = left_out.get(name, "" if subject.has_cuda else "the op has no CUDA kernel")
            why = f"the card does not answer after {broken}" if broken else why
            if why:
                if job.part.has(next(numbers)):
                    results.say("ONNX Runtime", what, NOT_RUN, why)
                continue
            try:
                for types in subject.types():
                    wanted = all(is_small(name) for name in types.values())
                    if wanted and job.part.has(next(numbers)):
                        look_at(subject, cases, types, job, results)
            except Broken:
                broken = what


def is_small(dtype: str) -> bool:
    """Whether NumPy and ONNX have a dtype, of 32 bits at most: others, PyTorch shows of the same kernels."""
    from opsmith.onnx._attributes import DTYPES

    return dtype in DTYPES and dtype not in ("string", "bfloat16") and not dtype.endswith("64")


def look_at(subject: Subject, cases: list[Case], types: dict[str, str], job: Job, results: Results) -> None:
    """Make the calls of one dtype whose tensors lie as ONNX Runtime lays them."""
    fitting = [c for c in cases if not c.large and fits(subject, c, types)]
    dense = [c for c in fitting if all(x.layout == "dense" for x in c.inputs)]
    problem = ""
    for case in dense:
        try:
            expected = outcome(subject, case, types, torch.device("cpu"), 0, subject.has_float64)
            call = prepared(subject, case, types, job.device.is_card)
            differ(call(), expected, types, case.rough)
            if case is dense[0]:
                together(call)
        except Exception as error:
            problem = f"{case.name}: {type(error).__name__}: {error}"
            break
    label = f"{subject.library.__name__}.{subject.name} {' '.join(types.values())}".strip()
    verdict = FAILED if problem else PASSED if dense else NOT_RUN
    message = problem or ("" if dense else "none of its calls is on dense tensors")
    results.say("ONNX Runtime", label, verdict, message, len(dense))
    if problem:
        check_alive(job.device)


Outputs = list[tuple[str, torch.Tensor | None]]


def together(call: Callable[[], Outputs]) -> None:
    """Raise where calls at the same time do not all give what one alone gives."""
    alone = call()

    def several(_: int) -> None:
        for _ in range(ROUNDS):
            for (name, ours), (_, theirs) in zip(call(), alone, strict=True):
                assert ours is not None and theirs is not None
                same = torch.equal(ours.nan_to_num(), theirs.nan_to_num())
                assert same, f"{name} is another one when {THREADS} threads call"

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(several, range(THREADS)))


def prepared(subject: Subject, case: Case, types: dict[str, str], on_card: bool) -> Callable[[], Outputs]:
    """What runs a call as a session does, and gives its outputs in host memory."""
    import onnxruntime

    _, views = inputs_of(subject, case, types, torch.device("cpu"), exact=False)
    arrays = [np.array(x.detach().numpy(), order="C") for x in views]
    model, names = model_of(subject, case, arrays)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(subject.library._opsmith_loaded.native.path)
    if on_card:
        # What a card does not run is an error.
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    providers: list[Any] = [(PROVIDER, {"device_id": "0"})] if on_card else ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(model, options, providers=providers)
    if on_card and PROVIDER not in session.get_providers():
        raise RuntimeError("ONNX Runtime cannot use the card: look for its CUDA and cuDNN libraries")
    place = "cuda" if on_card else "cpu"
    places = ["cpu" if told.host else place for told in case.inputs]
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(*x, 0) for x in zip(arrays, places, strict=True)]

    def call() -> Outputs:
        bound = session.io_binding()
        for i, value in enumerate(values):
            bound.bind_ortvalue_input(f"in{i}", value)
        for name in names:
            bound.bind_output(name, place, 0)
        session.run_with_iobinding(bound)
        found = bound.copy_outputs_to_cpu()
        return [(f"output {i}", torch.from_numpy(np.array(x))) for i, x in enumerate(found)]

    return call


def model_of(subject: Subject, case: Case, arrays: list[np.ndarray[Any, Any]]) -> tuple[bytes, list[str]]:
    """A model of the call, and the names of its outputs."""
    import opsmith.onnx
    from onnx import helper
    from opsmith._library import definition_of
    from opsmith.onnx._attributes import DTYPES

    definition = definition_of(subject.library)
    op = next(each for each in definition.ops if each.name == subject.name)
    given = subject.call(case, [torch.from_numpy(x) for x in arrays])
    returned = dict(zip(op.returned, [given] if len(op.returned) == 1 else given, strict=True))
    outputs: list[str] = []
    infos = []
    for position in range(len(op.outputs)):
        value = returned.get(position)
        for tensor in value if isinstance(value, list | tuple) else [value]:
            outputs.append("" if tensor is None else f"out{len(outputs)}")
            if tensor is not None:
                dtype = DTYPES[str(tensor.dtype).removeprefix("torch.")]
                infos.append(helper.make_tensor_value_info(outputs[-1], dtype, None))
    while outputs and not outputs[-1]:
        outputs.pop()
    names: list[Any] = [f"in{i}" for i in range(len(arrays))]
    inputs = [
        helper.make_tensor_value_info(name, DTYPES[x.dtype.name], x.shape)
        for name, x in zip(names, arrays, strict=True)
    ]
    node = opsmith.onnx.node(
        subject.library, op.name, [names] if case.listed else names, outputs, **case.attrs
    )
    graph = helper.make_graph([node], "graph", inputs, infos)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(definition.name, 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=IR)
    return made.SerializeToString(), [info.name for info in infos]
