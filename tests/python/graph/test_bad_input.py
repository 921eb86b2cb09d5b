"""What graphs and sessions do not take, and what they say then."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import opsmith
import pytest
from opsmith import Graph, Session


def test_a_mistake_names_the_line_that_made_the_node(graph: Graph) -> None:
    x = graph.placeholder("float64", [None, 3], name="x")
    y = graph.placeholder("float64", [None, 3], name="y")
    with pytest.raises(opsmith.InvalidArgumentError, match="MatMul"):
        x @ np.zeros((4, 1))
    z = x + y
    file, line = z.op.place
    assert file == __file__ and line > 0
    session = Session(graph)
    with pytest.raises(opsmith.InvalidArgumentError, match=rf"node `Add`, made at {__file__}:{line}"):
        session.run(z, {x: np.zeros((2, 3)), y: np.zeros((3, 3))})
    with pytest.raises(
        opsmith.InvalidArgumentError, match=r"the feed for `y` must be float64\[\?,3\]"
    ) as wrong_feed:
        session.run(z, {x: np.zeros((2, 3)), y: np.zeros((2, 3), np.float32)})
    with pytest.raises(opsmith.FailedPreconditionError, match=r"placeholder `y`.* has to be fed") as missing:
        session.run(z, {x: np.zeros((2, 3))})
    assert (wrong_feed.value.argument, missing.value.argument) == ("y", "y")
    for wrong in (3, "x", [x, 3]):
        with pytest.raises(opsmith.InvalidArgumentError, match="a fetch must be"):
            session.run(wrong)
    with pytest.raises(opsmith.InvalidArgumentError, match="a key of `feeds` must be an output"):
        session.run(z, {"x": 1.0})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="cannot be a condition"):
        bool(x)
    with pytest.raises(opsmith.InvalidArgumentError, match="different graphs"):
        x + opsmith.Graph().placeholder("float64", [None, 3])


def test_numbers_and_lists_lose_nothing(graph: Graph) -> None:
    x = graph.placeholder("int32", [None], name="x")
    session = Session(graph)
    np.testing.assert_array_equal(session.run(x + 1, {x: [1, 2]}), [2, 3])
    for wrong in ([1.5], [1 << 40], "abc", [None]):
        with pytest.raises(opsmith.InvalidArgumentError, match="the feed for `x` must be int32"):
            session.run(x, {x: wrong})
    for number in (0.5, 1 << 40):
        with pytest.raises(opsmith.InvalidArgumentError, match="a constant must be int32"):
            x + number
    y = graph.placeholder("bfloat16", [None], name="y")
    assert session.run(y * 2, {y: [1, 2.5]}).tolist() == [2.0, 5.0]


def test_a_variable_keeps_its_shape(graph: Graph) -> None:
    v = graph.variable([0.0, 0.0], name="v")
    x = graph.placeholder("float64", [None], name="x")
    with graph.scope("train"):
        assign = v.assign(x)
    assert assign.name == "train/Assign" and assign.place[0] == __file__
    session = Session(graph)
    session.initialize()
    with pytest.raises(opsmith.InvalidArgumentError, match=r"variable `v` has shape \[2\]"):
        session.run(assign, {x: [1.0, 2.0, 3.0]})
    assert session.run(v).tolist() == [0.0, 0.0]
    # A variable that is fed has the fed value for the run, whether or not it is run as a node too.
    assert session.run([v.op, v * 2.0], {v: [5.0, 5.0]})[1].tolist() == [10.0, 10.0]
    session.run(graph.group(x), {x: [1.0]})


def test_two_assignments_in_one_run_are_told(graph: Graph) -> None:
    w = graph.variable([1.0], name="w")
    both = graph.group(w.assign(w + 1.0), w.assign(w + 2.0))
    session = Session(graph)
    session.initialize()
    with pytest.raises(opsmith.InvalidArgumentError, match="`w` is written twice in one run"):
        session.run(both)


def test_numbers_that_a_dtype_cannot_hold_are_told(graph: Graph) -> None:
    x = graph.placeholder("float16", [None], name="x")
    for number in (1e6, 70_000, [1.0, -1e5]):
        with pytest.raises(opsmith.InvalidArgumentError, match="float16, which cannot hold"):
            x + number
    assert np.isinf(Session(graph).run(x + np.inf, {x: [1.0]})).all()


@pytest.mark.parametrize("shape", [3, "33", [2.7], [-2]])
def test_shapes_are_checked(graph: Graph, shape: Any) -> None:
    with pytest.raises(opsmith.InvalidArgumentError, match="a shape must be"):
        graph.placeholder("float64", shape)
    with pytest.raises(opsmith.InvalidArgumentError, match="a shape must be integers"):
        graph.constant([1.0]).reshape(1.9)  # type: ignore[arg-type]


def test_sessions_are_of_graphs(graph: Graph) -> None:
    with pytest.raises(opsmith.InvalidArgumentError, match=r"expected an opsmith\.Graph, got 'x'"):
        Session("x")  # type: ignore[arg-type]
    with pytest.raises(opsmith.InvalidArgumentError, match="`threads` must be"):
        Session(graph, threads=True)
    with pytest.raises(opsmith.InvalidArgumentError, match="expected a library of opsmith"):
        Graph.load("any", ["libdistances.so"])  # type: ignore[list-item]
    with pytest.raises(
        opsmith.InvalidArgumentError,
        match=r"expected a library of opsmith\.load, or the module of a wheel, got 3",
    ):
        Graph.load("any", 3)  # type: ignore[arg-type]
    assert {"Graph", "Session", "ops", "optimizers"} <= set(dir(opsmith)) and opsmith.__version__


def test_hostile_graphs_are_refused(tmp_path: Path) -> None:
    attacks = runpy.run_path(str(Path(__file__).parents[3] / "attacks" / "hostile_graphs.py"))
    count = 0
    for name, expected, answer in attacks["answers"](tmp_path):
        assert expected in answer and not answer.startswith("loaded"), (name, answer)
        count += 1
    assert count > 50


def test_hostile_files_are_refused_at_once(tmp_path: Path) -> None:
    attacks = runpy.run_path(str(Path(__file__).parents[3] / "attacks" / "hostile_files.py"))
    answers = list(attacks["answers"](tmp_path))
    for name, expected, answer in answers:
        assert "Error: " in answer and expected in answer, (name, answer)
    assert len(answers) == 25


def test_an_array_is_no_index(graph: Graph) -> None:
    x = graph.placeholder("float64", [4])
    with pytest.raises(opsmith.InvalidArgumentError, match="an index must be an integer"):
        x[np.array([0, 1])]
    unknown = graph.placeholder("float64", [None])
    for index in [True, slice(1.9, None), slice(None, 2.9)]:
        with pytest.raises(opsmith.InvalidArgumentError, match="an index must be an integer"):
            unknown[index]


def test_what_training_does_not_take_is_named(graph: Graph) -> None:
    x = graph.placeholder("float64", [2], name="x")
    w = graph.variable(np.ones(2), name="w")
    loss = (w * x).sum()
    optimizers = opsmith.optimizers
    for make, name in [
        (lambda: optimizers.GradientDescent("0.1"), "learning_rate"),  # type: ignore[arg-type]
        (lambda: optimizers.GradientDescent(-0.1), "learning_rate"),
        (lambda: optimizers.GradientDescent(x), "learning_rate"),  # type: ignore[arg-type]
        (lambda: optimizers.Momentum(0.1, 5.0), "momentum"),
        (lambda: optimizers.Adam(float("nan")), "learning_rate"),
        (lambda: optimizers.Adam(epsilon=0.0), "epsilon"),
    ]:
        with pytest.raises(opsmith.InvalidArgumentError, match=f"`{name}` must be a number"):
            make()
    step = optimizers.Momentum(0.5, 0.0).minimize(loss, w)
    session = Session(graph)
    session.initialize()
    session.run(step, {x: [1.0, 2.0]})
    np.testing.assert_array_equal(session.run(w), [0.5, 0.0])
    with pytest.raises(opsmith.InvalidArgumentError, match="`xs` must be outputs of a graph, got float64"):
        opsmith.gradients(loss, np.ones(3))  # type: ignore[arg-type]
    with pytest.raises(opsmith.InvalidArgumentError, match=r"got str 'x'; `graph.output\('x'\)`"):
        session.run(w, {"x": [1.0, 2.0]})  # type: ignore[dict-item]
    with pytest.raises(opsmith.InvalidArgumentError, match=r"got str 'w'; `graph.output\('w'\)`"):
        session.run("w")
    with pytest.raises(opsmith.InvalidArgumentError, match="feeds must be a dict"):
        session.run(w, [np.ones(2)])  # type: ignore[arg-type]
    assert graph.variable(w * 2.0, dtype="float32").dtype == "float32"


def test_gradients_name_the_op_that_has_none(graph: Graph) -> None:
    x = graph.placeholder("float64", [3], name="x")
    assert opsmith.gradients(opsmith.ops.stop_gradient(x), x) == [None]
    assert opsmith.gradients([], [x]) == [None]
    with pytest.raises(opsmith.InvalidArgumentError, match="only floats have gradients"):
        i = graph.placeholder("int32", [3])
        opsmith.gradients(i, i)
    second = opsmith.gradients(opsmith.gradients(x * x * x, x)[0], x)[0]  # type: ignore[arg-type]
    assert second is not None
    np.testing.assert_allclose(Session(graph).run(second, {x: [1.0, 2.0, 3.0]}), [6.0, 12.0, 18.0])
