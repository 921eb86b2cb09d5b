"""Where nodes are placed: all that is to be seen of it without a card."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import opsmith
import pytest


def test_nodes_are_placed_where_the_block_says(graph: opsmith.Graph) -> None:
    x = graph.placeholder("float32", [2], name="x")
    with graph.device("cuda:1"), graph.scope("layer"):
        y = x + 1.0
        with graph.device("cpu"):
            z = y * y
        assert (y.device, y.op.device, y.name) == ("cuda:1", "cuda:1", "layer/Add")
        assert (z.device, z.name) == ("cpu", "layer/Mul")
        seen = []
        thread = threading.Thread(target=lambda: seen.append((x - 1.0).device))
        thread.start()
        thread.join()
        assert seen == ["cpu"], "blocks are those of a thread"
    with graph.device("cuda"):
        assert (x + 1.0).device == "cuda:0"
    assert (x + 1.0).device == "cpu"
    assert repr(y) == "<output 'layer/Add' float32[2] on cuda:1>"
    assert repr(y.op) == "<operation 'layer/Add' Add on cuda:1>"
    assert repr(x) == "<output 'x' float32[2]>"
    assert "cuda:1" in graph.to_dot() and "cuda:1" in graph.to_svg()


@pytest.mark.parametrize("name", ["gpu", "cuda:-1", "cuda:x", "cuda:", "CUDA:0", "/gpu:0", ""])
def test_what_is_no_device_says_what_was_expected(graph: opsmith.Graph, name: str) -> None:
    message = f"`{name}` is not a device: expected `cpu`, or `cuda:` and a number from 0, as in `cuda:0`"
    with pytest.raises(opsmith.InvalidArgumentError) as caught, graph.device(name):
        pass
    assert str(caught.value) == message
    with pytest.raises(opsmith.InvalidArgumentError, match="expected a name such as 'cuda:0', got 0"):
        graph.device(0).__enter__()  # type: ignore[arg-type]
    assert graph.constant(1.0).device == "cpu", "nothing is left of a block that did not begin"


def test_gradients_and_steps_are_where_nodes_and_variables_are(graph: opsmith.Graph) -> None:
    x = graph.placeholder("float32", [None, 3], name="x")
    here = graph.variable(np.ones((3, 2), "float32"), name="here")
    with graph.device("cuda:0"):
        there = graph.variable(np.ones((2, 2), "float32"), name="there")
        hidden = opsmith.ops.tanh(x @ here)
        product = hidden @ there
    loss = (product**2).mean()
    gradient, other = opsmith.gradients(loss, [there, here])
    assert gradient is not None and (gradient.device, gradient.op.kind) == ("cuda:0", "MatMulGrad")
    assert other is not None and other.device == "cuda:0"
    opsmith.optimizers.Momentum(0.1, 0.9).minimize(loss)
    places = {variable.name: variable.device for variable in graph.variables}
    assert {name.split("/", 1)[1] if "/" in name else name: place for name, place in places.items()} == {
        "here": "cpu",
        "there": "cuda:0",
        "here/velocity": "cpu",
        "there/velocity": "cuda:0",
    }
    steps = [operation.device for operation in graph.operations if operation.kind == "MomentumStep"]
    assert sorted(steps) == ["cpu", "cuda:0"]


def test_files_keep_the_place(graph: opsmith.Graph, tmp_path: Path) -> None:
    with graph.device("cuda:1"):
        x = graph.placeholder("float32", [2], name="x")
        _ = x + graph.variable([1.0, 2.0], "float32", name="v")
    graph.save(tmp_path / "graph")
    loaded = opsmith.Graph.load(tmp_path / "graph")
    assert [operation.device for operation in loaded.operations] == ["cuda:1"] * len(graph)
    assert loaded.constant(1.0).device == "cpu"


def test_a_node_that_cannot_run_there_is_an_error_that_names_it(graph: opsmith.Graph) -> None:
    x = graph.placeholder("float32", [3], name="x")
    with graph.device("cuda:0"):
        _, order, _ = opsmith.ops.unique(x, name="order")
    session = opsmith.Session(graph)
    with pytest.raises(opsmith.UnimplementedError) as caught:
        session.run(order, {x: [3.0, 1.0, 2.0]})
    message = str(caught.value)
    assert message.startswith("node `order`, made at ") and "test_placement.py:" in message
    assert "Unique: has no CUDA kernel; it is placed on cuda:0: place it on the CPU" in message
    assert "allow_soft_placement" in message
    # It is said before a card is looked for, also where others come first.
    with graph.device("cuda:99"):
        _, later, _ = opsmith.ops.unique(opsmith.ops.exp(x))
    with pytest.raises(opsmith.UnimplementedError, match="Unique: has no CUDA kernel"):
        session.run(later, {x: [3.0, 1.0, 2.0]})
    # What does not need it runs.
    assert session.run(x + 1.0, {x: [3.0, 1.0, 2.0]}).tolist() == [4.0, 2.0, 3.0]
    soft = opsmith.Session(graph, allow_soft_placement=True)
    assert soft.run(order, {x: [3.0, 1.0, 2.0]}).tolist() == [2, 0, 1]


def network(graph: opsmith.Graph, device: str) -> tuple[opsmith.graph.Output, ...]:
    """A network, its loss and a step of training, on a device."""
    with graph.device(device):
        x = graph.placeholder("float32", [None, 3], name="x")
        target = graph.placeholder("float32", [None, 1], name="target")
        w = graph.variable(np.full((3, 4), 0.1, "float32"), name="w")
        v = graph.variable(np.full((4, 1), 0.2, "float32"), name="v")
        loss = ((opsmith.ops.tanh(x @ w) @ v - target) ** 2).mean()
    return x, target, loss


def test_a_card_that_there_is_not_is_an_error_of_the_run_or_the_cpu(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(8, 3)).astype("float32"), rng.normal(size=(8, 1)).astype("float32")
    values = {}
    for device in ("cpu", "cuda:99"):
        graph = opsmith.Graph()
        x, target, loss = network(graph, device)
        train = opsmith.optimizers.Adam(0.01).minimize(loss)
        feeds = {x: inputs, target: targets}
        if device != "cpu":
            strict = opsmith.Session(graph)
            with pytest.raises((opsmith.FailedPreconditionError, opsmith.NotFoundError)) as caught:
                strict.run(graph.initializer())
            assert "variable" in str(caught.value) or "node `w`, made at" in str(caught.value)
            assert "it is placed on cuda:99" in str(caught.value)
            with pytest.raises((opsmith.FailedPreconditionError, opsmith.NotFoundError), match="node `"):
                strict.run(loss, feeds)
        session = opsmith.InteractiveSession(graph, allow_soft_placement=True)
        session.run(graph.initializer())
        for _ in range(3):
            session.run(train, feeds)
        session.save(tmp_path / "variables")
        session.restore(tmp_path / "variables")
        values[device] = session.run([loss, *graph.variables], feeds)
        session.close()
    for ours, theirs in zip(values["cpu"], values["cuda:99"], strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_memory_of_a_card_is_told_and_given_back() -> None:
    for ask in (opsmith.graph.card_memory, opsmith.graph.release_card_memory):
        with pytest.raises(opsmith.InvalidArgumentError, match="`cpu` is no card: expected one"):
            ask("cpu")
        with pytest.raises(opsmith.InvalidArgumentError, match="`gpu` is not a device"):
            ask("gpu")
        with pytest.raises(opsmith.InvalidArgumentError, match="expected the name of a card"):
            ask(0)  # type: ignore[arg-type]
        with pytest.raises((opsmith.FailedPreconditionError, opsmith.NotFoundError)):
            ask("cuda:99")
