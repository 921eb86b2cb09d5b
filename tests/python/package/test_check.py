"""`opsmith.testing.check`: faults that were planted are found, and what an author knows plugs in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import opsmith
import pytest
from opsmith.testing import CheckFailed, Row, check

LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", Path(__file__).parents[3] / "target" / "release"))


@pytest.fixture
def faulty() -> opsmith.Library:
    return opsmith.load(LIBRARIES / "libopsmith_faulty.so")


@pytest.fixture
def distances() -> opsmith.Library:
    return opsmith.load(LIBRARIES / "libdistances.so")


@pytest.fixture
def zero_out() -> opsmith.Library:
    return opsmith.load(LIBRARIES / "libzero_out.so")


def manhattan(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.abs(x[:, None].astype(float) - y[None].astype(float)).sum(-1)


def only_failure(faulty: opsmith.Library, op: str, **options: object) -> Row:
    with pytest.raises(CheckFailed) as caught:
        check(getattr(faulty, op), **options)
    report = caught.value.report
    assert str(report) in str(caught.value)
    (failure,) = report.failures
    return failure


@pytest.mark.parametrize(
    ("op", "of", "message"),
    [
        ("wrong_sign", "gradient", "the gradient by `y`"),
        ("wrong_second_grad", "gradient", "the gradient by `x`"),
        ("outside_the_view", "strided", "which dense tensors give"),
        ("trusts_shapes", "ill-formed", "SIGSEGV"),
        ("leaves_a_hole", "determinism", "not written at all"),
        ("counts_threads", "threads", "with 2 threads"),
        ("needs_the_other", "wanted", "where `double` is not wanted"),
        ("panics_on_infinity", "extremes", "an internal error"),
    ],
)
def test_a_fault_is_found_where_it_is(faulty: opsmith.Library, op: str, of: str, message: str) -> None:
    failure = only_failure(faulty, op)
    assert failure.property == of
    assert message in failure.message


def test_swapped_dims_are_found(faulty: opsmith.Library) -> None:
    report = check(faulty.swapped_dims, raises=False)
    assert {row.property for row in report.failures} == {"shapes", "empty"}
    assert "[1, 2], but [2,1] was inferred" in report.failures[0].message


def test_a_call_without_end_is_ended(faulty: opsmith.Library) -> None:
    failure = only_failure(faulty, "never_done", properties=["shapes"], time_limit=1.0)
    assert "was not done within 1 s" in failure.message


def test_the_line_of_python_makes_the_call(faulty: opsmith.Library) -> None:
    failure = only_failure(faulty, "outside_the_view", properties=["strided"])
    assert "which dense tensors give" in failure.message
    assert "np.repeat" in failure.python
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", failure.python], capture_output=True, text=True, env=environment, check=True
    )
    assert run.stdout.startswith("[0.25 ")
    assert run.stdout.strip() != "[0.25 0.5 ]"


def test_an_op_of_an_example_passes_against_a_reference(distances: opsmith.Library) -> None:
    report = check(distances.pairwise_manhattan_distance, reference=manhattan)
    verdicts = {row.property: row.verdict for row in report.rows}
    skipped = {property for property, verdict in verdicts.items() if verdict == "skipped"}
    assert skipped == {"scalars", "wanted", "cuda"}
    assert verdicts["reference"] == verdicts["gradient"] == "passed"
    assert str(report).endswith("10 passed, 0 failed, 3 skipped\n")


def test_a_whole_library_is_checked(distances: opsmith.Library) -> None:
    report = check(distances, cases=3)
    assert not report.failures
    assert len({row.op for row in report.rows}) == 3
    assert report.library == "distances"


def test_an_op_is_a_function_or_a_name(distances: opsmith.Library) -> None:
    by_function = check(distances.pairwise_manhattan_distance, cases=2)
    assert check(distances, "pairwise_manhattan_distance", cases=2) == by_function
    assert check(distances, "PairwiseManhattanDistance", cases=2) == by_function


def test_a_reference_that_differs_is_told_with_a_small_case(faulty: opsmith.Library) -> None:
    failure = only_failure(faulty, "right", reference=lambda x: 3 * x, properties=["reference"])
    assert failure.message == "`y`[0] is 0.25 instead of 0.375, which the reference gives"
    # Three times as far off is within this tolerance.
    check(faulty.right, reference=lambda x: 3 * x, properties=["reference"], rtol=1.0)


def test_a_reference_may_have_nothing_to_say(faulty: opsmith.Library) -> None:
    report = check(faulty.right, reference=lambda x: None, properties=["reference"])
    assert [row.verdict for row in report.rows] == ["skipped"]


def test_inputs_of_the_author_are_those_that_are_called_with(distances: opsmith.Library) -> None:
    sizes = []

    def inputs(rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
        sizes.append(size)
        return rng.normal(size=(size, 2)), rng.normal(size=(size + 1, 2))

    def reference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        assert x.shape[0] + 1 == y.shape[0]
        return manhattan(x, y)

    report = check(distances.pairwise_manhattan_distance, inputs=inputs, reference=reference)
    assert {row.property for row in report.rows if row.verdict == "skipped"} == {"scalars", "wanted", "cuda"}
    assert set(sizes) <= set(range(9))
    assert len(set(sizes)) > 3


def test_inputs_are_shrunk_by_their_size(faulty: opsmith.Library) -> None:
    failure = only_failure(
        faulty,
        "wrong_sign",
        properties=["gradient"],
        inputs=lambda rng, size: {"x": rng.normal(size=size), "y": rng.normal(size=size)},
    )
    assert "at y[0]" in failure.message
    assert failure.python.count("np.array([") == 3
    assert failure.python.count(",") < 10


def test_attributes_are_chosen_from_the_given_ones(zero_out: opsmith.Library) -> None:
    seen = set()

    def reference(rows: np.ndarray, preserve_index: int) -> np.ndarray:
        seen.add(preserve_index)
        return np.where(np.arange(rows.shape[-1]) == preserve_index, rows, 0)

    check(
        zero_out.zero_out_rows,
        attrs={"preserve_index": [1, 2]},
        reference=reference,
        properties=["reference"],
    )
    assert seen == {1, 2}


def test_defaults_reach_the_reference_too(zero_out: opsmith.Library) -> None:
    seen = set()

    def reference(rows: np.ndarray, preserve_index: int) -> np.ndarray:
        seen.add(preserve_index)
        return np.where(np.arange(rows.shape[-1]) == preserve_index, rows, 0)

    check(zero_out.zero_out_rows, reference=reference, properties=["reference"])
    assert 0 in seen


def test_lists_and_several_outputs_reach_the_reference(zero_out: opsmith.Library) -> None:
    check(zero_out.sum_all, reference=lambda terms: sum(terms[1:], terms[0]), properties=["reference"])
    check(
        zero_out.max_with_index,
        reference=lambda values: (values.max(), values.argmax()),
        properties=["reference"],
    )
    check(
        zero_out.string_to_number,
        inputs=lambda rng: np.array([str(n) for n in rng.integers(100, size=3)]),
        reference=lambda texts, out_type: np.array([float(text) for text in texts]),
        properties=["reference", "strided"],
    )


def test_the_same_seed_gives_the_same_report(distances: opsmith.Library) -> None:
    def run(seed: int) -> opsmith.testing.Report:
        return check(distances.pairwise_manhattan_distance_grad, seed=seed, properties=["gradient"])

    assert run(3) == run(3)
    assert run(3) != run(4)


def test_what_the_authors_functions_raise_is_raised(distances: opsmith.Library) -> None:
    op = distances.pairwise_manhattan_distance
    with pytest.raises(ZeroDivisionError):
        check(op, inputs=lambda rng: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        check(op, reference=lambda x, y: 1 / 0)


def test_what_cannot_be_checked_is_told(distances: opsmith.Library) -> None:
    op = distances.pairwise_manhattan_distance
    for wrong in [(len,), (op, "PairwiseManhattanDistance"), ("libdistances.so", "x")]:
        with pytest.raises(opsmith.InvalidArgumentError, match="`check` takes a function of a library"):
            check(*wrong)
    with pytest.raises(opsmith.NotFoundError, match="has no op `distance`"):
        check(distances, "distance")
    with pytest.raises(TypeError, match="are for one op"):
        check(distances, attrs={})
    with pytest.raises(opsmith.InvalidArgumentError, match=r"has no attribute `axis`"):
        check(op, attrs={"axis": [0]})
    with pytest.raises(opsmith.InvalidArgumentError, match="no value to choose from for _a"):
        check(distances.pairwise_manhattan_distance_grad, attrs={"_a": []})
    with pytest.raises(opsmith.InvalidArgumentError, match=r"a list of values .* such as \{'_a': \[3\]\}"):
        check(distances.pairwise_manhattan_distance_grad, attrs={"_a": 3})
    with pytest.raises(opsmith.InvalidArgumentError, match="no property `speed`; there are shapes"):
        check(op, properties=["speed"])
    with pytest.raises(opsmith.InvalidArgumentError, match=r"takes 2 inputs \(x, y\), `inputs` gave 1"):
        check(op, inputs=lambda rng: (np.zeros(2),))
    with pytest.raises(opsmith.InvalidArgumentError, match=r"gave \['z'\], but the op's inputs are x, y"):
        check(op, inputs=lambda rng: {"z": np.zeros(2)})
    with pytest.raises(opsmith.InvalidArgumentError, match="datetime64"):
        check(op, inputs=lambda rng: (np.zeros(2, "datetime64[s]"), np.zeros(2)))
    with pytest.raises(opsmith.InvalidArgumentError, match="`time_limit` is -1"):
        check(op, time_limit=-1)
    with pytest.raises(opsmith.InvalidArgumentError, match="`cases` must be at least 1, got 0"):
        check(op, cases=0)


def test_the_standard_operators_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    report = check(
        opsmith.ops.tanh, cases=3, properties=["shapes", "gradient", "reference"], reference=np.tanh
    )
    assert report.library == "opsmith" and {row.verdict for row in report.rows} == {"passed"}
    report = check(opsmith.ops, cases=1, properties=["empty"])
    assert len(report.rows) == len([name for name in dir(opsmith.ops) if not name.startswith("__")])
    failure = only_failure(opsmith.ops, "tanh", reference=np.cos, cases=3, properties=["reference"])
    exec(failure.python)
    assert "opsmith.ops.tanh(" in failure.python and capsys.readouterr().out


def test_a_reference_gives_what_callers_see() -> None:
    """The op saves two outputs for its gradient, which a reference cannot know."""
    op = opsmith.load(LIBRARIES / "libkernels.so").cross_entropy

    def reference(logits: np.ndarray, label: np.ndarray) -> np.ndarray:
        logits = logits.astype(float)
        of_label = np.arange(logits.shape[-1]) == label[..., None]
        return np.log(np.exp(logits).sum(-1)) - np.where(of_label, logits, 0).sum(-1)

    def inputs(rng: np.random.Generator, size: int) -> dict[str, np.ndarray]:
        return {"logits": rng.normal(size=(size + 1, 5)), "label": rng.integers(0, 5, size + 1)}

    def another(logits: np.ndarray, label: np.ndarray) -> np.ndarray:
        return reference(logits, label) + 1

    (row,) = check(op, inputs=inputs, reference=reference, properties=["reference"]).rows
    assert (row.verdict, row.cases > 0) == ("passed", True)
    with pytest.raises(CheckFailed, match="which the reference gives"):
        check(op, inputs=inputs, reference=another, properties=["reference"])
