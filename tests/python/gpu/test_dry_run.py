"""Every check that is made on a card, made on the processor by the same programs. It shows that the programs
run and can fail, and nothing of a card."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cases
import engine
import misuse
import opsmith
import pytest
import results
import sanitizer
import speed
import torch
import values
from conftest import LIBRARIES, PROGRAMS
from devices import Job, Part, Processor
from results import FAILED, NOT_RUN, PASSED, Results


def start(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs `gpu/run.py` as a user does."""
    command = [sys.executable, str(PROGRAMS / "run.py"), *arguments]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


def dry(out: Path, libraries: Path, *sections: str) -> Results:
    """The results of a dry run of sections, which must succeed."""
    only = [word for section in sections for word in ("--only", section)]
    done = start("--device", "cpu", "--quick", "--libraries", str(libraries), "--out", str(out), *only)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a dry run on the processor" in (out / "gpu.md").read_text()
    return Results.read(out / "gpu.json")


def test_without_a_card_it_says_so_and_what_to_do() -> None:
    done = start("--libraries", str(LIBRARIES), CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and "--prepare" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_without_libraries_it_says_so_and_what_to_do(tmp_path: Path) -> None:
    done = start("--device", "cpu", "--libraries", str(tmp_path))
    assert done.returncode == 2
    assert f"there are no libraries in {tmp_path}" in done.stderr


def test_every_op_with_a_cuda_kernel_is_called_and_right(tmp_path: Path, built: Path) -> None:
    found = dry(tmp_path, built, "values")
    assert sum(row.cases for row in found.of(PASSED)) > 1000
    reasons = {row.message for row in found.of(NOT_RUN)}
    assert reasons <= {"the op has no CUDA kernel", "PyTorch has no plain tensors of this dtype"}


def test_the_other_sections_run_too(tmp_path: Path, few: Path) -> None:
    found = dry(tmp_path, few, "streams", "misuse", "compiled", "with_jax", "with_onnx", "engine")
    sections = {row.section for row in found.of(PASSED)}
    assert sections == {"streams", "misuse", "torch.compile", "JAX", "ONNX Runtime", "engine"}
    reasons = {row.message for row in found.of(NOT_RUN)}
    assert reasons <= {
        "the dry run has no card",
        "the dry run has no second card",
        "it takes 16 GiB: on a card, and not in a quick run",
        "libopsmith_ops.so is not among the libraries",
        "it takes 8 GiB of addresses, which are not to be had here",
    }


@pytest.mark.parametrize("name", engine.FUNCTIONS)
def test_graphs_of_the_engine_can_be_on_a_card(name: str) -> None:
    with pytest.raises((opsmith.FailedPreconditionError, opsmith.NotFoundError), match="node `"):
        engine.compare(name, engine.NO_SUCH_CARD, engine.FUNCTIONS[name], "float32")


@pytest.mark.parametrize("optimizer", engine.OPTIMIZERS)
def test_training_can_be_on_a_card(optimizer: str) -> None:
    network = engine.Network(engine.NO_SUCH_CARD, "float32", engine.OPTIMIZERS[optimizer]())
    session = opsmith.Session(network.graph)
    # Were there no kernel for one of the nodes, it would be said before a card is looked for.
    with pytest.raises((opsmith.FailedPreconditionError, opsmith.NotFoundError), match="node `"):
        session.run([network.loss, network.train], network.feeds("float32", 0))


def test_wrong_numbers_of_the_engine_are_a_failure(few: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    factors = iter([1.0, 1.001])
    monkeypatch.setattr(engine, "CHECKS", (engine.functions, engine.no_card))
    monkeypatch.setattr(engine, "FUNCTIONS", {"wrong": lambda x, y: x * next(factors)})
    found = Results()
    engine.run(Job(Processor(), few, True), found)
    assert [row.verdict for row in found.rows] == [FAILED, PASSED]
    assert "wrong in float64, output 0" in found.rows[0].message


def test_views_that_lie_far_apart_are_as_dense_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        misuse.far_views(Processor(), LIBRARIES, True)
    except misuse.Missing as missing:
        pytest.skip(str(missing))
    load = misuse.load

    def wrong(folder: Path, name: str) -> Any:
        library = load(folder, name)
        return SimpleNamespace(example=lambda x: 2 * x + x.stride(0)) if name == "example" else library

    monkeypatch.setattr(misuse, "load", wrong)
    with pytest.raises(AssertionError, match="example gives others than of dense tensors"):
        misuse.far_views(Processor(), LIBRARIES, True)


def test_a_section_that_ends_its_process_has_failed(tmp_path: Path, few: Path) -> None:
    (few / "libbroken.so").write_text("no library")
    try:
        done = start("--device", "cpu", "--libraries", str(few), "--out", str(tmp_path), "--only", "values")
    finally:
        (few / "libbroken.so").unlink()
    assert done.returncode == 1
    (row,) = Results.read(tmp_path / "gpu.json").rows
    assert (row.verdict, row.message) == (FAILED, "its process ended with exit status 1")


def test_times_are_compared_and_targets_judged(few: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Processor, "is_card", True)
    found = Results()
    bench = speed.Bench(Processor(), few, speed.DRY, speed.Limits(1e12, 1e12), found)
    bench.time(
        "sums",
        {
            "Opsmith": lambda: torch.ones(200_000).sum(),
            "PyTorch": lambda: torch.ones(10).sum(),
            "broken": lambda: torch.ones(2) @ torch.ones(3),
        },
        (("PyTorch", 0.5), ("Opsmith", 2.0)),
        speed.of_bandwidth(800_000),
    )
    (timing,) = found.timings
    assert [(who, met) for who, _, _, met in timing.targets] == [("PyTorch", False), ("Opsmith", True)]
    assert timing.share.endswith("of the bandwidth")
    assert len(found.missed) == 1 and found.missed[0].startswith("sums: ")
    # A peer that does not run is told; ours has to.
    assert [row.subject for row in found.of(NOT_RUN)] == ["sums, broken"] and not found.of(FAILED)
    bench.time("ours", {"Opsmith": lambda: torch.ones(2) @ torch.ones(3)})
    assert [row.subject for row in found.of(FAILED)] == ["ours, Opsmith"]
    text = results.markdown(found)
    assert "| sums | PyTorch |" in text and "**no**" in text and "sums, broken" in text


def test_the_table_of_times_is_whole(few: Path) -> None:
    found = Results()
    bench = speed.Bench(Processor(), few, speed.DRY, speed.Limits(1e12, 1e12), found)
    speed.pointwise(bench)
    assert not found.of(FAILED), found.rows
    assert [set(timing.seconds) for timing in found.timings] == [{"Opsmith", "PyTorch", "torch.compile"}] * 4
    assert not found.missed, "a dry run judges no targets"


def subject(name: str) -> values.Subject:
    return values.subjects(misuse.load(LIBRARIES, "distances"))[name]


def test_an_op_without_calls_is_a_failure(few: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cases.CASES, "distances", {})
    found = Results()
    values.run(Job(Processor(), few, True), found)
    names = {row.subject for row in found.of(FAILED)}
    assert names == {f"distances.PairwiseManhattanDistance{end}" for end in ("", "Grad", "GradGrad")}


def test_parts_share_the_ops_and_lose_none(few: Path) -> None:
    whole, parts = Results(), Results()
    values.run(Job(Processor(), few, True), whole)
    for index in range(3):
        values.run(Job(Processor(), few, True, Part.of(f"{index}/3")), parts)
    assert sorted(map(str, parts.rows)) == sorted(map(str, whole.rows)) and whole.rows


def test_after_a_broken_card_nothing_more_is_called(few: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(self: Processor) -> None:
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(Processor, "synchronize", lost)
    found = Results()
    values.run(Job(Processor(), few, True), found)
    assert [row.subject.split()[0] for row in found.of(FAILED)] == ["distances.PairwiseManhattanDistance"]
    assert {row.message for row in found.of(NOT_RUN)} == {
        "the card does not answer after distances.PairwiseManhattanDistance"
    }


@pytest.mark.parametrize("place", [0, 1, 5])
def test_a_wrong_number_is_a_failure(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    right = values.outcome

    def wrong(*arguments: Any, **more: Any) -> Any:
        found = right(*arguments, **more)
        if more.get("exact") is False:
            name, value = found[place]
            value = value.detach().clone()
            value.view(-1)[0] += 0.01
            found[place] = (name, value)
        return found

    monkeypatch.setattr(values, "outcome", wrong)
    case = cases.CASES["distances"]["PairwiseManhattanDistance"][0]
    message = values.compare(subject("PairwiseManhattanDistance"), case, {"T": "float32"}, Processor(), 2)
    assert "not close" in message


def test_views_are_what_they_are_called() -> None:
    generator = torch.Generator().manual_seed(0)
    for layout in ("dense", "transposed", "strided", "shifted", "repeated"):
        given = cases.Input((4, 6), layout)
        base = given.base(torch.float32, generator)
        view = given.view(base)
        assert view.shape == (4, 6)
        assert view.is_contiguous() == (layout in ("dense", "shifted"))
        assert (view.storage_offset() == 1) == (layout == "shifted")


@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        ('echo "========= ERROR SUMMARY: 0 errors"; exit 0', PASSED),
        (
            'echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"; exit 0',
            PASSED,
        ),
        ('echo "========= ERROR SUMMARY: 10 errors"; exit 0', FAILED),
        (
            'echo "========= Invalid __global__ read"; echo "========= ERROR SUMMARY: 1 error"; exit 86',
            FAILED,
        ),
        ("exit 0", FAILED),
    ],
)
def test_the_sanitizer_is_believed_when_it_sums_up(
    script: str, verdict: str, tmp_path: Path, few: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "compute-sanitizer"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    found = Results()
    sanitizer.run(Job(Processor(), few, True), found)
    assert [row.verdict for row in found.rows] == [verdict] * len(sanitizer.TOOLS)


def test_without_the_sanitizer_it_says_where_it_comes_from(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sanitizer, "program", lambda: None)
    found = Results()
    sanitizer.run(Job(Processor(), few, True), found)
    (row,) = found.rows
    assert row.verdict == NOT_RUN and "CUDA toolkit" in row.message
