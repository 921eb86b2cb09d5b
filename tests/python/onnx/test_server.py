"""The server of `examples/serve` with a model of ONNX: it answers what ONNX Runtime gives in Python."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import opsmith
import pytest
import torch
from conftest import library_path
from models import info, session
from models import model as made_of
from onnx import helper
from test_export import DISTANCES, OPS, REDUCTIONS, Model, exported

SERVER = Path(os.environ.get("OPSMITH_SERVER", Path(__file__).parents[3] / "target" / "debug" / "serve"))
RUNTIME = next((Path(ort.__file__).parent / "capi").glob("libonnxruntime.so.*"), None)
pytestmark = pytest.mark.skipif(
    RUNTIME is None, reason="this wheel of ONNX Runtime has no library of its own"
)
FILES = ("distances", "opsmith_ops", "zero_out")


class Server:
    """A server of its own process."""

    def __init__(self, model: Path, *options: str) -> None:
        assert SERVER.exists(), f"{SERVER} is missing: cargo build --package serve"
        libraries = [option for name in FILES for option in ("--library", str(library_path(name)))]
        command = [str(SERVER), str(model), "--runtime", str(RUNTIME), "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen([*command, *libraries, *options], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().split()[-1]

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.address + path) as answer:
            return json.loads(answer.read())

    def run(self, **inputs: Any) -> tuple[int, Any]:
        """The status and the answer."""
        body = json.dumps({"inputs": {name: np.asarray(value).tolist() for name, value in inputs.items()}})
        headers = {"Content-Type": "application/json"}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(self.address + "/run", body.encode(), headers)
            ) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of `test_export` with three ops, each of another library; its first output mixes rows."""
    torch.manual_seed(0)
    dims = {"x": {0: torch.export.Dim("n", min=1)}}
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    made = exported(Model().eval(), torch.randn(5, 3), dims=dims, libraries=(DISTANCES, REDUCTIONS, OPS))
    path.write_bytes(made.SerializeToString())
    return path


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Server]:
    one = Server(model, "--linger", "0")
    yield one
    assert one.end() == 0


def test_it_answers_what_the_runtime_gives(server: Server, model: Path) -> None:
    told = server.get("/model")
    assert [given["dtype"] for given in told["inputs"] + told["outputs"]] == ["float32", "float32"]
    assert (told["inputs"][0]["shape"], told["batched"]) == ([None, 3], False)
    (name,) = (given["name"] for given in told["outputs"])
    here = session(onnx.load(model), *FILES)
    for rows in (1, 4, 33):
        x = torch.randn(rows, 3).numpy()
        status, answer = server.run(x=x)
        assert status == 200
        (expected,) = here.run(None, {"x": x})
        np.testing.assert_array_equal(np.array(answer["outputs"][name], "float32"), expected)


def test_what_does_not_fit_is_refused(server: Server) -> None:
    status, answer = server.run(x=np.zeros((2, 4)))
    expected = "input `x` is of shape [2, 4]: expected float32 of shape [?,3]"
    assert (status, answer["error"]["message"], answer["error"]["argument"]) == (400, expected, "x")
    assert server.run(x=np.zeros((2, 2, 2)))[0] == 400
    assert server.run(z=np.zeros((2, 3)))[0] == 400
    assert server.get("/health") == {"status": "ok"}


class Rows(torch.nn.Module):
    """Each row by itself."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.distances.pairwise_manhattan_distance(x, torch.ones(4, 3)) * 2


def test_rows_that_are_said_to_be_free_are_computed_as_one(tmp_path: Path) -> None:
    dims = {"x": {0: torch.export.Dim("n", min=1)}}
    made = exported(Rows().eval(), torch.randn(5, 3), dims=dims, libraries=(DISTANCES,))
    path = tmp_path / "rows.onnx"
    path.write_bytes(made.SerializeToString())
    server = Server(path, "--free-rows", "--linger", "0")
    assert server.get("/model")["batched"] is True
    xs = [
        np.random.default_rng(seed).standard_normal((seed % 3 + 1, 3)).astype("float32") for seed in range(64)
    ]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda x: server.run(x=x), xs))
    for x, (status, answer) in zip(xs, answers, strict=True):
        assert status == 200
        (y,) = answer["outputs"].values()
        np.testing.assert_array_equal(np.array(y, "float32"), Rows()(torch.from_numpy(x)).numpy())
    assert server.end() == 0


CLIENT = Path(__file__).parents[3] / "examples" / "serve" / "client.py"


def test_the_client_sends_rows_in_batches(tmp_path: Path) -> None:
    dims = {"x": {0: torch.export.Dim("n", min=1)}}
    made = exported(Rows().eval(), torch.randn(5, 3), dims=dims, libraries=(DISTANCES,))
    (tmp_path / "rows.onnx").write_bytes(made.SerializeToString())
    rows = np.random.default_rng(0).standard_normal((5000, 3)).astype("float32")
    np.save(tmp_path / "rows.npy", rows)
    server = Server(tmp_path / "rows.onnx", "--free-rows")
    command = [sys.executable, str(CLIENT), server.address, "rows.npy"]
    told = subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.PIPE, text=True).stdout
    file, described = told.strip().split(": ")
    assert described == "float32 (5000, 4)"
    np.testing.assert_array_equal(np.load(tmp_path / file), Rows()(torch.from_numpy(rows)).numpy())
    np.save(tmp_path / "rows.npy", rows[:, :2])
    refused = subprocess.run(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, check=False)
    assert refused.returncode == 1 and "400" in refused.stderr
    assert server.end() == 0


def saved(path: Path, nodes: list[onnx.NodeProto], inputs: list[str], outputs: list[str]) -> Path:
    """A model whose inputs and outputs are rows of three numbers."""
    rows = {name: onnx.helper.make_tensor_value_info(name, 1, ["n", 3]) for name in [*inputs, *outputs]}
    made = onnx.helper.make_graph(
        nodes, "graph", [rows[name] for name in inputs], [rows[name] for name in outputs]
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(made, opset_imports=opsets, ir_version=9), path)
    return path


def test_an_output_may_be_an_input(tmp_path: Path) -> None:
    path = saved(tmp_path / "same.onnx", [onnx.helper.make_node("Neg", ["x"], ["y"])], ["x"], ["y", "x"])
    server = Server(path, "--free-rows", "--linger", "0")

    def kept(number: int) -> bool:
        rows = [[float(number)] * 3] * 2000
        status, answer = server.run(x=rows)
        return status == 200 and answer["outputs"] == {"y": [[-float(number)] * 3] * 2000, "x": rows}

    with ThreadPoolExecutor(12) as pool:
        assert all(pool.map(kept, range(1, 97)))
    assert server.end() == 0


def test_outputs_of_other_types_need_not_be_asked_for(tmp_path: Path) -> None:
    """Of any rank and with text among its outputs, as exported classifiers have them."""
    nodes = [
        helper.make_node("Identity", ["x"], ["y"]),
        helper.make_node("Identity", ["words"], ["s"]),
    ]
    words = helper.make_tensor("words", onnx.TensorProto.STRING, [2], [b"a", b"b"])
    outputs = [info("y", "float32"), info("s", "string", [2])]
    path = tmp_path / "model.onnx"
    path.write_bytes(
        made_of(nodes, [info("x", "float32")], outputs, "distances", [words]).SerializeToString()
    )
    one = Server(path, "--output", "y", "--linger", "0")
    try:
        for x in ([[1.0, 2.0]], [[[3.0]]], 4.0):
            assert one.run(x=x) == (200, {"outputs": {"y": x}})
    finally:
        one.end()


def test_what_cannot_be_served_is_an_error_at_the_start(model: Path, tmp_path: Path) -> None:
    value = onnx.helper.make_tensor("value", 1, [1, 3], [1, 2, 3])
    none = saved(
        tmp_path / "none.onnx", [onnx.helper.make_node("Constant", [], ["y"], value=value)], [], ["y"]
    )
    cut = tmp_path / "cut.onnx"
    cut.write_bytes(model.read_bytes()[:-50])
    engine, graph = opsmith.Graph(), tmp_path / "model.graph"
    engine.placeholder("float32", [None, 3], name="x")
    engine.save(graph)
    plain = [str(SERVER), str(model), "--runtime"]
    commands = {
        "is not ONNX Runtime": [*plain, str(library_path("distances"))],
        "libnone.so": [*plain, "/libnone.so"],
        "give a library that has this op by --library": [*plain, str(RUNTIME)],
        "is a graph of the engine, and --runtime is for": [
            str(SERVER),
            str(graph),
            "--runtime",
            str(RUNTIME),
        ],
        "the model has no output `y`, only `": [*plain, str(RUNTIME), "--output", "y"],
        "cut.onnx": [str(SERVER), str(cut), "--runtime", str(RUNTIME)],
        "has other numbers for a row beside another row": [*plain, str(RUNTIME), "--free-rows"],
        "the model has no inputs": [str(SERVER), str(none), "--runtime", str(RUNTIME)],
    }
    for text, command in commands.items():
        libraries = [option for name in FILES for option in ("--library", str(library_path(name)))]
        has_libraries = ("the model has no output `y`, only `", "cut.onnx", "has other numbers for a row")
        given = libraries if text.startswith(has_libraries) else []
        done = subprocess.run([*command, *given], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 1 and text in done.stderr, (text, done.stderr)
