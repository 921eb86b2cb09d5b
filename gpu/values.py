"""Values and gradients of three orders: the card's against the CPU's, for every op with a CUDA kernel, each
of its dtypes, and layouts of all kinds.

What is expected is computed by the CPU's kernel in float64 from the same, rounded inputs, where the op has
float64.
"""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import opsmith
import torch
from cases import CASES, Case
from devices import Device, Job, tensors
from results import FAILED, NOT_RUN, PASSED, Results

TOLERANCES = {torch.float64: 1e-9, torch.float32: 3e-5}
"""For dtypes that are summed up in themselves, times how rough a case is."""
ROUNDED = {torch.float16: 2.0**-8, torch.bfloat16: 2.0**-5}
"""For those that are summed up in float32 and rounded, a few times where there are gradients: four steps."""


ORDERS = ("gradient", "second gradient", "third gradient")


@dataclass(frozen=True)
class Subject:
    """An op of a loaded library."""

    library: Any
    op: dict[str, Any]
    """As the library describes it."""
    by_name: dict[str, dict[str, Any]]

    @property
    def name(self) -> str:
        """The op's name."""
        return str(self.op["name"])

    @property
    def function(self) -> Any:
        """Its function."""
        return getattr(self.library, self.op["snake_name"])

    def gradient(self) -> Subject | None:
        """The op of its gradient, if that has a CUDA kernel."""
        gradient = self.op.get("gradient")
        name = gradient.get("op") if isinstance(gradient, dict) else None
        found = Subject(self.library, self.by_name[name], self.by_name) if name in self.by_name else None
        return found if found and found.has_cuda else None

    def call(self, case: Case, inputs: list[Any]) -> Any:
        """What it gives of inputs."""
        return self.function(*([inputs] if case.listed else inputs), **case.attrs)

    def args(self, case: Case) -> list[dict[str, Any]]:
        """The input of its definition that each tensor of a call is of."""
        inputs: list[dict[str, Any]] = self.op["inputs"]
        return inputs * len(case.inputs) if case.listed else inputs

    def types(self) -> list[dict[str, str]]:
        """The dtypes of its CUDA kernels, by type attribute."""
        found = [kernel["types"] for kernel in self.op["kernels"] if kernel["device"] == "CUDA"]
        return [types for i, types in enumerate(found) if types not in found[:i]]

    @property
    def has_float64(self) -> bool:
        """Whether the CPU's kernels take float64: what is expected is computed so."""
        on_cpu = [kernel["types"] for kernel in self.op["kernels"] if kernel["device"] == "CPU"]
        return any("float64" in types.values() for types in on_cpu)

    @property
    def has_cuda(self) -> bool:
        """Whether it has a CUDA kernel."""
        return any(kernel["device"] == "CUDA" for kernel in self.op["kernels"])


def subjects(library: Any) -> dict[str, Subject]:
    """The ops of a library, by name."""
    ops = json.loads(library._opsmith_loaded.native.describe())["ops"]
    by_name = {op["name"]: op for op in ops}
    return {name: Subject(library, op, by_name) for name, op in by_name.items()}


def libraries(folder: Path) -> Iterator[Any]:
    """The built libraries, loaded: those that are here for tests only are left out."""
    for path in sorted(folder.glob("lib*.so")):
        if path.stem not in ("lib_native", "libopsmith_testops", "libopsmith_faulty"):
            yield opsmith.load(path)


class Broken(Exception):
    """The card answers nothing any more in this process."""


def run(job: Job, results: Results) -> None:
    """Look at every op of every library that is this part's."""
    numbers = itertools.count()
    broken = ""
    for library in libraries(job.folder):
        ops = subjects(library)
        listed = CASES.get(library.__name__, {})
        # Gradients are called through the ops that they are the gradients of.
        reached = {link.name for name in listed if name in ops for link in chain(ops[name])}
        for name in listed | ops:
            what = f"{library.__name__}.{name}"
            if name in ops and name in listed and ops[name].has_cuda and not broken:
                try:
                    look_at(ops[name], listed[name], job, results, numbers)
                except Broken:
                    broken = what
                continue
            if not job.part.has(next(numbers)):
                continue
            if name not in ops:
                results.say("values", what, FAILED, "the library has no such op")
            elif name not in reached and ops[name].has_cuda:
                message = "it has a CUDA kernel, and gpu/cases.py has no calls of it"
                results.say("values", what, FAILED, message)
            elif name in listed and broken:
                results.say("values", what, NOT_RUN, f"the card does not answer after {broken}")
            elif name in listed:
                results.say("values", what, NOT_RUN, "the op has no CUDA kernel")


def chain(subject: Subject) -> list[Subject]:
    """An op with a CUDA kernel, and its gradients that have one."""
    found = [subject] if subject.has_cuda else []
    while found and len(found) <= len(ORDERS) and (gradient := found[-1].gradient()):
        found.append(gradient)
    return found


def look_at(subject: Subject, cases: list[Case], job: Job, results: Results, numbers: Iterator[int]) -> None:
    """Make the calls of an op in each dtype that is this part's: the compiler takes long for some."""
    what = f"{subject.library.__name__}.{subject.name}"
    chosen = [case for case in cases if not (job.quick and case.large)]
    orders = len(chain(subject)) - 1
    for types in subject.types():
        if not job.part.has(next(numbers)):
            continue
        if missing := next((name for name in types.values() if not is_plain(name)), None):
            results.say("values", f"{what} {missing}", NOT_RUN, "PyTorch has no plain tensors of this dtype")
            continue
        fitting = [case for case in chosen if fits(subject, case, types)]
        compared = (compare(subject, case, types, job.device, orders) for case in fitting)
        problem = next((text for text in compared if text), "")
        label = f"{what} {' '.join(types.values())}".strip()
        results.say("values", label, FAILED if problem else PASSED, problem, len(fitting))
        if problem:
            check_alive(job.device)


def check_alive(device: Device) -> None:
    """Raise `Broken` where the card answers nothing any more."""
    try:
        device.synchronize()
    except Exception as error:
        raise Broken from error


def is_plain(dtype: str) -> bool:
    """Whether PyTorch has tensors of a dtype that are no more than their elements: not of quantised ones."""
    return hasattr(torch, dtype) and not dtype.startswith(("qint", "quint"))


def fits(subject: Subject, case: Case, types: dict[str, str]) -> bool:
    """Whether the case's own dtypes are those of a kernel."""
    args = zip(subject.args(case), case.inputs, strict=True)
    return all(x.dtype is None or types.get(str(arg.get("type_attr")), x.dtype) == x.dtype for arg, x in args)


def compare(subject: Subject, case: Case, types: dict[str, str], device: Device, orders: int) -> str:
    """What is wrong with a call; empty if nothing is."""
    try:
        actual = outcome(subject, case, types, device.torch, orders, exact=False)
        expected = outcome(subject, case, types, torch.device("cpu"), orders, subject.has_float64)
        device.synchronize()
        differ(actual, expected, types, case.rough)
    except Exception as error:
        return f"{case.name}: {type(error).__name__}: {error}"
    return ""


def allowed(dtype: torch.dtype, rough: float) -> float:
    """How far apart numbers of a dtype may be, relative to the largest."""
    if dtype in ROUNDED:
        return ROUNDED[dtype] + rough * TOLERANCES[torch.float32]
    return rough * TOLERANCES.get(dtype, 0.0)


def differ(
    actual: list[tuple[str, torch.Tensor | None]],
    expected: list[tuple[str, torch.Tensor | None]],
    types: dict[str, str],
    rough: float,
) -> None:
    """Raise where the two are not the same within what rounding explains."""
    assert [name for name, _ in actual] == [name for name, _ in expected]
    of_types = [getattr(torch, name) for name in types.values()]
    for (name, ours), (_, theirs) in zip(actual, expected, strict=True):
        assert (ours is None) == (theirs is None), f"{name} is there on one device only"
        if ours is None or theirs is None:
            continue
        wide = torch.complex128 if ours.is_complex() else torch.float64
        left, right = ours.detach().cpu().to(wide), theirs.detach().to(wide)
        finite = right[right.isfinite()].abs()
        # An output may be coarser than what it is made of.
        tolerance = max((allowed(dtype, rough) for dtype in [*of_types, ours.dtype]), default=0.0)
        tolerance = tolerance if ours.is_floating_point() else 0.0
        scale = float(finite.max()) if finite.numel() else 0.0
        try:
            torch.testing.assert_close(
                left, right, rtol=tolerance, atol=tolerance * max(1.0, scale), equal_nan=True
            )
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


def outcome(
    subject: Subject, case: Case, types: dict[str, str], place: torch.device, orders: int, exact: bool
) -> list[tuple[str, torch.Tensor | None]]:
    """Outputs and gradients of a call on a device; with `exact`, of the same numbers in float64."""
    bases, views = inputs_of(subject, case, types, place, exact)
    outputs = tensors(subject.call(case, views))
    found: list[tuple[str, torch.Tensor | None]] = [(f"output {i}", x) for i, x in enumerate(outputs)]
    wanted = [x for x in bases if x.requires_grad]
    sources = [x for x in outputs if x.requires_grad]
    if orders == 0 or not wanted or not sources:
        return found
    for order in range(orders):
        probes = [probe(x, 7 * order + i, place) for i, x in enumerate(sources)]
        is_last = order == orders - 1
        given = [x.detach() for x in probes] if is_last and order else probes
        slopes = torch.autograd.grad(sources, wanted, given, create_graph=not is_last, allow_unused=True)
        found += [(f"{ORDERS[order]} {i}", x) for i, x in enumerate(slopes)]
        wanted = [*wanted, *probes]
        sources = [x for x in slopes if x is not None and x.requires_grad]
        if not sources:
            break
    return found


def probe(like: torch.Tensor, number: int, place: torch.device) -> torch.Tensor:
    """What flows back into an output: numbers that every float type has, the same on every device."""
    count = like.numel()
    numbers = ((torch.arange(count) * 37 + 11 * number) % 64 - 31).double() / 32
    return numbers.reshape(like.shape).to(like.dtype).to(place).requires_grad_()


def inputs_of(
    subject: Subject, case: Case, types: dict[str, str], place: torch.device, exact: bool
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The memory of a call's tensors, which wants gradients, and the tensors."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{subject.name} {case.name}".encode()))
    bases, views = [], []
    for arg, given in zip(subject.args(case), case.inputs, strict=True):
        name = given.dtype or arg.get("dtype") or types[arg["type_attr"]]
        base = given.base(getattr(torch, name), generator)
        if exact and base.is_floating_point():
            base = base.double()
        base = base if given.host else base.to(place)
        if base.is_floating_point():
            base.requires_grad_()
        bases.append(base)
        views.append(given.view(base))
    return bases, views
