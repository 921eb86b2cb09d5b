"""Graphs and sessions from Python: built by operators and by libraries' functions, run, saved and drawn."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import opsmith
import pytest
from opsmith import Graph, Library, Session


def test_operators_build_nodes_that_compute_as_numpy_does(graph: Graph) -> None:
    x = graph.placeholder("float64", [None, 3], name="x")
    a = np.random.default_rng(0).uniform(0.5, 2.0, (4, 3))
    row = np.array([1.0, 2.0, 3.0])
    cases = {
        "add": (x + 1, a + 1),
        "radd": (1 + x, 1 + a),
        "sub": (x - row, a - row),
        "rsub": (row - x, row - a),
        "mul": (x * x, a * a),
        "div": (x / row, a / row),
        "rdiv": (1.0 / x, 1.0 / a),
        "square": (x**2, a**2),
        "pow": (x**1.5, a**1.5),
        "rpow": (2.0**x, 2.0**a),
        "matmul": (x @ row.reshape(3, 1), a @ row.reshape(3, 1)),
        "neg": (-x, -a),
        "abs": (abs(-x), a),
        "less": (x < 1.0, a < 1.0),
        "greater_equal": (x >= row, a >= row),
        "sum": (x.sum(), a.sum()),
        "sum of rows": (x.sum(axis=1, keepdims=True), a.sum(axis=1, keepdims=True)),
        "sum of all": (x.sum(axis=(0, 1)), a.sum(axis=(0, 1))),
        "sum of nothing": (x.sum(axis=()), a.sum(axis=())),
        "mean": (x.mean(-1), a.mean(-1)),
        "transpose": (x.T, a.T),
        "reshape": (x.reshape(3, -1), a.reshape(3, -1)),
        "astype": (x.astype("float32"), a.astype(np.float32)),
        "column": (x[:, 1], a[:, 1]),
        "part": (x[1:3, :2], a[1:3, :2]),
        "row": (x[2], a[2]),
        "row by an integer of NumPy's": (x[np.int32(2)], a[2]),
        "sum of columns": (x.sum(np.int64(0)), a.sum(0)),
        "ellipsis": (x[..., 0:2], a[..., 0:2]),
        "exp": (opsmith.ops.exp(x), np.exp(a)),
    }
    values = Session(graph).run({name: output for name, (output, _) in cases.items()}, {x: a})
    for name, (output, expected) in cases.items():
        assert values[name].dtype == expected.dtype and output.dtype == expected.dtype.name, name
        np.testing.assert_allclose(values[name], expected, rtol=1e-14, err_msg=name)
        known = output.shape
        assert known is None or all(d in (None, e) for d, e in zip(known, expected.shape, strict=True)), name


def test_a_librarys_function_adds_a_node(graph: Graph, distances: Library) -> None:
    x = graph.placeholder("float64", [None, 2], name="x")
    y = np.array([[0.0, 0.0], [1.0, 5.0]])
    z = distances.pairwise_manhattan_distance(x, y, name="z")
    assert (z.name, z.shape, z.op.kind) == ("z", (None, 2), "PairwiseManhattanDistance")
    a = np.array([[1.0, 2.0]])
    with Session(graph):
        np.testing.assert_array_equal(z.eval({x: a}), [[3.0, 3.0]])
        gradient = opsmith.gradients(z, x)[0]
        assert gradient is not None
        np.testing.assert_array_equal(gradient.eval({x: a}), [[1.0, 0.0]])
    parts = opsmith.ops.split(x, 2, axis=1)
    assert [part.shape for part in parts] == [(None, 1), (None, 1)]


def test_values_are_eager_where_no_output_is_given() -> None:
    product = opsmith.ops.mat_mul([[1.0, 2.0]], [[3.0], [4.0]])
    np.testing.assert_array_equal(product, [[11.0]])


def test_a_frameworks_tensor_is_told_what_to_load() -> None:
    import torch

    with pytest.raises(opsmith.UnimplementedError, match=r"Exp: .* load libopsmith_ops\.so"):
        opsmith.ops.exp(torch.zeros(2))


def test_variables_optimisers_and_checkpoints(graph: Graph, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    inputs, targets = rng.normal(size=(20, 3)), rng.normal(size=(20, 1))
    x = graph.placeholder("float64", [None, 3], name="x")
    with graph.scope("model") as scope:
        w = graph.variable(np.zeros((3, 1)), name="w")
    assert (scope, w.name) == ("model/", "model/w")
    loss = ((x @ w - targets) ** 2).mean()
    train = opsmith.optimizers.GradientDescent(0.05).minimize(loss)
    feeds = {x: inputs}
    expected = np.zeros((3, 1))
    session = Session(graph)
    with pytest.raises(opsmith.FailedPreconditionError, match=r"variable `model/w`.*initialise it, after"):
        session.run(w)
    session.run(graph.initializer())
    for _ in range(10):
        session.run(train, feeds)
        expected -= 0.05 * 2 / 20 * inputs.T @ (inputs @ expected - targets)
    np.testing.assert_allclose(session.run(w), expected, rtol=1e-13)
    path = tmp_path / "ünï code.safetensors"
    session.save(path)
    other = Session(graph)
    other.restore(path)
    session.run(train, feeds)
    other.run(train, feeds)
    np.testing.assert_array_equal(session.run(w), other.run(w))
    path.write_bytes(path.read_bytes()[:-1])
    for read in (other.restore, Graph.load):
        with pytest.raises(opsmith.Error, match="damaged") as raised:
            read(path)
        assert raised.value.code == "DataLoss"


def test_what_is_lent_and_given_is_nobody_elses(graph: Graph) -> None:
    x = graph.placeholder("float64", [2], name="x")
    w = graph.variable([0.0, 0.0], name="w")
    assign = w.assign(x)
    session = Session(graph)
    session.initialize()
    array = np.array([1.0, 2.0])
    session.run(assign, {x: array})
    array[:] = 9.0
    value = session.run(w)
    np.testing.assert_array_equal(value, [1.0, 2.0])
    value[:] = 7.0
    np.testing.assert_array_equal(session.run(w), [1.0, 2.0])
    echoed = session.run(x, {x: array})
    echoed[:] = 0.0
    np.testing.assert_array_equal(array, [9.0, 9.0])
    constant = graph.constant(array)
    array[:] = -1.0
    np.testing.assert_array_equal(session.run(constant), [9.0, 9.0])


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "int64", "uint16", "bool", "complex64"]
)
def test_every_dtype_goes_in_and_comes_back(graph: Graph, dtype: str) -> None:
    x = graph.placeholder(dtype, None)
    value = np.arange(6).reshape(2, 3).astype(dtype)
    session = Session(graph)
    for array in (value, value.T, value[:, ::2], value[:0]):
        back = session.run(opsmith.ops.identity(x), {x: array})
        assert back.dtype == array.dtype
        np.testing.assert_array_equal(back, array)


def test_text_goes_in_and_comes_back(graph: Graph) -> None:
    x = graph.placeholder("string", [None])
    back = Session(graph).run(opsmith.ops.identity(x), {x: ["a", "größer", ""]})
    assert list(back) == ["a", "größer", ""]
    for bytes_and_text in ([b"a\xff", "größer"], np.array([b"a\xff", "größer".encode()])):
        back = Session(graph).run(
            [opsmith.ops.identity(x), graph.constant(bytes_and_text)], {x: bytes_and_text}
        )
        for each in back:
            assert [text.encode(errors="surrogateescape") for text in each] == [b"a\xff", "größer".encode()]


def test_the_default_session_is_the_innermost(graph: Graph) -> None:
    one = graph.constant(1.0)
    with pytest.raises(opsmith.FailedPreconditionError, match="no default session"):
        one.eval()
    session = opsmith.InteractiveSession(graph)
    assert one.eval() == 1.0
    assert (one * 2.0).eval(feed_dict={one: 3.0}) == 6.0
    with Session(graph) as inner:
        assert opsmith.graph.default_session() is inner
    assert opsmith.graph.default_session() is session
    session.close()
    with pytest.raises(opsmith.FailedPreconditionError):
        graph.initializer().run()


def test_a_session_may_make_its_graph() -> None:
    session = opsmith.InteractiveSession()
    try:
        x = session.graph.placeholder("float64", [], name="x")
        v = session.graph.variable(1.0)
        session.graph.initializer().run()
        v.assign(v + x).run(feed_dict={x: 2.0})
        assert v.eval() == 3.0 and (x * x).eval({x: 3.0}) == 9.0
    finally:
        session.close()
    other = opsmith.Session()
    assert len(other.graph) == 0 and other.graph is not session.graph


def test_what_is_fed_goes_by_two_names(graph: Graph) -> None:
    x = graph.placeholder("float64", [], name="x")
    session = Session(graph)
    assert session.run(x * 2.0, feed_dict={x: 3.0}) == 6.0
    assert session.run_traced(x * 2.0, feed_dict={x: 3.0})[0] == 6.0
    with pytest.raises(opsmith.InvalidArgumentError, match="`feeds` and `feed_dict` are two names"):
        session.run(x, {x: 1.0}, feed_dict={x: 1.0})


def test_masks_and_indices_have_no_slope(graph: Graph) -> None:
    x = graph.placeholder("float64", [None], name="x")
    mask = opsmith.ops.cast(x > 0.0, dtype="float64")
    whole = x.astype("int32").astype("float64")
    (gradient,) = opsmith.gradients(x * mask + whole, x)
    assert gradient is not None
    np.testing.assert_array_equal(Session(graph).run(gradient, {x: [-1.0, 2.0]}), [0.0, 1.0])
    i = graph.placeholder("int64", [None], name="i")
    y = opsmith.ops.gather(x, i)
    slopes = opsmith.gradients(y, [i, x])
    assert slopes[0] is None and slopes[1] is not None
    found = Session(graph).run(slopes[1], {x: [1.0, 2.0, 3.0], i: [2, 2]})
    np.testing.assert_array_equal(found, [0.0, 0.0, 2.0])


def test_slices_of_dims_of_unknown_size_end_where_the_dims_do(graph: Graph) -> None:
    x = graph.placeholder("float64", [None, 4, None], name="x")
    a = np.arange(24.0).reshape(2, 4, 3)
    keys: list[Any] = [
        np.s_[:5],
        np.s_[1:9, 2],
        np.s_[-7:],
        np.s_[5:],
        np.s_[:, -2:, :2],
        np.s_[1, ..., -2:],
        np.s_[:, :, 7:9],
    ]
    session = Session(graph)
    for key in keys:
        part = x[key]
        value = session.run(part, {x: a})
        np.testing.assert_array_equal(value, a[key], err_msg=str(key))
        assert part.shape is not None and len(part.shape) == value.ndim
        slope = session.run(opsmith.gradients([part.sum()], [x])[0], {x: a})
        expected = np.zeros_like(a)
        expected[key] = 1.0
        np.testing.assert_array_equal(slope, expected, err_msg=str(key))
    with pytest.raises(opsmith.InvalidArgumentError, match="Slice"):
        session.run(x[2], {x: a})
    assert x[:, :] == x


def test_lists_without_elements_have_the_dtype_that_is_wanted(graph: Graph) -> None:
    x = graph.placeholder("float64", [1], name="x")
    one = opsmith.ops.reshape(x, [])
    assert one.shape == () and Session(graph).run(one, {x: [2.0]}) == 2.0
    value = opsmith.ops.reshape(np.ones(1, "float32"), [])
    assert value.shape == () and value.dtype == np.float32
    assert opsmith.ops.concat([[], [1, 2]], axis=0).tolist() == [1, 2]


def test_what_gives_nothing_can_be_run_and_ordered(graph: Graph) -> None:
    v = graph.variable([1.0], name="v")
    changed = opsmith.ops.assign(v, v + 1.0)
    session = Session(graph)
    session.run(graph.initializer())
    session.run(changed)
    assert session.run(v).tolist() == [2.0]
    with graph.after(changed):
        later = v * 1.0
    session.run(later)
    assert session.run(v).tolist() == [3.0]


def test_saves_from_many_threads_leave_one_whole_file(graph: Graph, tmp_path: Path) -> None:
    graph.variable(np.arange(1000.0), name="v")
    session = Session(graph)
    session.initialize()
    path = tmp_path / "values"
    threads = [threading.Thread(target=lambda: [session.save(path) for _ in range(10)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    session.restore(path)
    assert [file.name for file in tmp_path.iterdir()] == ["values"]


def test_saved_drawn_and_traced(graph: Graph, distances: Library, tmp_path: Path) -> None:
    with graph.scope("inputs"):
        x = graph.placeholder("float64", [None, 2], name="x")
    z = distances.pairwise_manhattan_distance(x, x)
    path = tmp_path / "graph.opsmith"
    graph.save(path)
    with pytest.raises(opsmith.NotFoundError, match="needs the library `distances`"):
        Graph.load(path)
    assert Graph.load(path, distances).to_dot() == graph.to_dot()
    loaded = Graph.load(path, [distances])
    assert loaded.to_dot() == graph.to_dot()
    assert 'label="inputs"' in graph.to_dot() and graph.to_svg().startswith("<svg")
    a = np.array([[0.0, 1.0], [2.0, 3.0]])
    session = Session(loaded)
    value, trace = session.run_traced(loaded.output(z.name), {loaded.output("inputs/x"): a})
    np.testing.assert_array_equal(value, [[0.0, 4.0], [4.0, 0.0]])
    (event,) = json.loads(trace.chrome_json)["traceEvents"]
    assert event["name"] == "PairwiseManhattanDistance" and event["args"]["bytes"] == 32
    assert b"test_graphs" in path.read_bytes() and distances.__file__.encode() in path.read_bytes()
    opsmith.ops.sin(z)
    for outputs in (z, [z]):
        graph.save(path, outputs=outputs)
        assert (
            b"test_graphs" not in path.read_bytes() and distances.__file__.encode() not in path.read_bytes()
        )
        assert Graph.load(path, distances).to_dot() == loaded.to_dot()
    with pytest.raises(opsmith.InvalidArgumentError, match="`outputs` must be outputs of the graph, got 'z'"):
        graph.save(path, outputs="z")
    assert "PairwiseManhattanDistance" in str(trace)
    trace.save(tmp_path / "trace.json")
    assert session.memory[1] >= 32


def test_two_sessions_on_one_graph_from_eight_threads(graph: Graph) -> None:
    x = graph.placeholder("float64", [], name="x")
    w = graph.variable(0.0, name="w")
    add = w.assign(w + 1.0)
    y = opsmith.ops.exp(x) * 2.0
    sessions = [Session(graph), Session(graph)]
    for session in sessions:
        session.initialize()
    values = np.random.default_rng(0).uniform(size=50)
    expected = {value: sessions[0].run(y, {x: value}) for value in values}
    # NumPy's exponential and ours may differ in the last place.
    np.testing.assert_allclose(list(expected.values()), np.exp(values) * 2.0, rtol=1e-15)
    wrong: list[float] = []

    def work(session: Session, repetitions: int) -> None:
        for _ in range(repetitions):
            wrong.extend(v for v in values if session.run([y, add], {x: v})[0] != expected[v])

    def from_eight_threads(repetitions: int) -> None:
        threads = [threading.Thread(target=work, args=(sessions[i % 2], repetitions)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    from_eight_threads(50)
    before = _resident_bytes()
    from_eight_threads(200)
    assert _resident_bytes() - before < 8 << 20
    assert not wrong
    assert [session.run(w) for session in sessions] == [50_000.0, 50_000.0]


def _resident_bytes() -> int:
    """How much memory this process takes."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def test_what_is_fetched_is_the_sessions_memory_until_the_array_is_gone(graph: Graph) -> None:
    x = graph.placeholder("float32", [None], name="x")
    session = Session(graph)
    fed = np.linspace(0.0, 1.0, 1 << 20, dtype=np.float32)
    array = session.run(x + x, {x: fed})
    # A copy would be NumPy's memory, or a second block.
    assert session.memory[0] == array.nbytes
    array += 1.0
    np.testing.assert_array_equal(session.run(x + x, {x: fed}), fed + fed)
    part = array[10:20]
    del array
    assert session.memory[0] == fed.nbytes
    np.testing.assert_array_equal(part, fed[10:20] + fed[10:20] + 1.0)
    del part
    assert session.memory[0] == 0
    w = graph.variable(fed, name="w")
    session.initialize()
    value = session.run(w)
    value[:] = 0.0
    np.testing.assert_array_equal(session.run(w), fed)


def test_a_session_on_one_thread_runs_all_nodes_on_it(graph: Graph) -> None:
    x = graph.placeholder("float64", [None, None], name="x")
    fed = np.random.default_rng(0).normal(size=(300, 300))
    branches = [(x * float(i)) @ x for i in range(1, 5)]

    def threads(session: Session) -> set[int]:
        ids: set[int] = set()
        for _ in range(5):
            _, trace = session.run_traced(branches, {x: fed})
            ids |= {event["tid"] for event in json.loads(trace.chrome_json)["traceEvents"]}
        return ids

    assert len(threads(Session(graph, threads=1))) == 1


def test_a_session_has_as_many_threads_as_it_may() -> None:
    graph = Graph()
    x = graph.placeholder("float32", [None])
    y = opsmith.ops.tanh(x * 2.0) + x
    fed = np.linspace(-3, 3, 300_001, dtype="float32")
    expected = Session(graph).run(y, {x: fed})
    for threads in (1, 2, 1000):
        np.testing.assert_array_equal(Session(graph, threads=threads).run(y, {x: fed}), expected)
    for threads in (0, -1, 1.5, "2"):
        with pytest.raises(opsmith.InvalidArgumentError, match="`threads` must be a positive integer, got"):
            Session(graph, threads=threads)  # type: ignore[arg-type]


def test_a_session_with_and_without_fusing_gives_the_same() -> None:
    graph = Graph()
    x = graph.placeholder("float64", [None, 3])
    y = opsmith.ops.exp(x * 0.5) - x
    loss = (y * y).sum()
    (slope,) = opsmith.gradients(loss, [x])
    fed = np.random.default_rng(0).standard_normal((50, 3))
    fused, trace = Session(graph).run_traced([y, loss, slope], {x: fed})
    plain, plain_trace = Session(graph, fuse=False).run_traced([y, loss, slope], {x: fed})
    for a, b in zip(fused, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)
    assert "OverAxes" in trace.summary and "OverAxes" not in plain_trace.summary


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(6, 40), (200, 3), (0, 4), (4, 0)])
def test_folds_are_computed_with_what_is_around_them(dtype: str, shape: tuple[int, int]) -> None:
    graph = Graph()
    x, y = graph.placeholder(dtype, [None, shape[1]]), graph.placeholder(dtype, [None, shape[1]])
    bias = graph.placeholder(dtype, [None])
    probabilities = opsmith.ops.softmax(x * 0.5 + bias)
    centred = opsmith.ops.gelu(x) + y
    centred = centred - centred.mean(-1, keepdims=True)
    norm = centred / opsmith.ops.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
    loss = -(opsmith.ops.log_softmax(norm) * probabilities).sum(-1).mean()
    fetches = [probabilities, norm, loss, *opsmith.gradients(loss, [x, y])]
    random = np.random.default_rng(0)
    feeds = {x: random.standard_normal(shape), y: random.standard_normal(shape)}
    feeds = {key: value.astype(dtype) for key, value in feeds.items()}
    feeds[bias] = random.standard_normal(shape[1]).astype(dtype)
    fused, trace = Session(graph).run_traced(fetches, feeds)
    plain, plain_trace = Session(graph, fuse=False).run_traced(fetches, feeds)
    for a, b in zip(fused, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4 if dtype == "float32" else 1e-11, atol=1e-6)
    assert "OverAxes" in trace.summary and "OverAxes" not in plain_trace.summary
    for a, b in zip(fused, Session(graph, threads=1).run(fetches, feeds), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("rows", [(300, 260), (70, 1), (3, 40), (0, 4), (4, 0)])
@pytest.mark.parametrize("name", ["cosine_distance", "rbf_kernel"])
def test_functions_of_pairs_are_computed_with_what_follows(
    kernels: Library, name: str, rows: tuple[int, int]
) -> None:
    function = getattr(kernels, name)
    graph = Graph()
    x, y = graph.placeholder("float64", [None, 5]), graph.placeholder("float64", [None, 5])
    bias = graph.placeholder("float64", [None])
    distance = opsmith.ops.relu(function(x, y) + bias)
    random = np.random.default_rng(0)
    feeds = {x: random.standard_normal((rows[0], 5)), y: random.standard_normal((rows[1], 5))}
    feeds[bias] = random.standard_normal(rows[1])
    for fetches in ([distance.sum(1)], [distance.mean(0, keepdims=True), distance * 2.0], [distance]):
        fused, trace = Session(graph).run_traced(fetches, feeds)
        plain, plain_trace = Session(graph, fuse=False).run_traced(fetches, feeds)
        for a, b in zip(fused, plain, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
        assert ("OverAxes" in trace.summary) == (0 not in rows) and "OverAxes" not in plain_trace.summary
        for a, b in zip(fused, Session(graph, threads=1).run(fetches, feeds), strict=True):
            np.testing.assert_array_equal(a, b)
    with pytest.raises(opsmith.InvalidArgumentError) as fused_error:
        Session(graph).run(distance.sum(1), {**feeds, y: np.zeros((rows[1], 4))})
    with pytest.raises(opsmith.InvalidArgumentError) as plain_error:
        Session(graph, fuse=False).run(distance.sum(1), {**feeds, y: np.zeros((rows[1], 4))})
    assert str(fused_error.value) == str(plain_error.value)
