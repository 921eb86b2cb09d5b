"""Compares the server with FastAPI on two workers of uvicorn, each with ONNX Runtime and without.

Model, requests and load are the same. Needs `fastapi`, `uvicorn`, `torch`, `onnx` and `onnxruntime`, and
`cargo build --release -p serve -p distances --bins --lib --example load`:
`python compare.py --seconds 60 --runs 3`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import opsmith
import opsmith.onnx
from onnx import TensorProto, helper, numpy_helper

HERE = Path(__file__).parent
BODY = json.dumps({"inputs": {"x": [[0.5 * k for k in range(8)] for _ in range(4)]}})


def save_graph(path: Path, library: Path) -> None:
    """The model that `app.py` has, as a graph."""
    graph = opsmith.Graph()
    x = graph.placeholder("float32", [None, 8], name="x")
    points = graph.constant(np.arange(32, dtype="float32").reshape(4, 8) / 4)
    z = opsmith.load(library).pairwise_manhattan_distance(x, points)
    opsmith.ops.identity(z + z, name="y")
    graph.save(path)


def save_onnx(path: Path, library: Path) -> None:
    """The same as a model of ONNX."""
    node = opsmith.onnx.node(opsmith.load(library), "pairwise_manhattan_distance", ["x", "points"], ["z"])
    graph = helper.make_graph(
        [node, helper.make_node("Add", ["z", "z"], ["y"])],
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [numpy_helper.from_array(np.arange(32, dtype="float32").reshape(4, 8) / 4, "points")],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("distances", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)


def resident(process: subprocess.Popen[bytes]) -> int:
    """How many KiB a process and its children have in memory."""
    total, left = 0, [process.pid]
    while left:
        pid = left.pop()
        status = Path(f"/proc/{pid}/status").read_text()
        total += int(status.split("VmRSS:")[1].split()[0])
        for task in Path(f"/proc/{pid}/task").iterdir():
            left += [int(child) for child in (task / "children").read_text().split()]
    return total


def ask(port: int) -> bytes:
    """The answer to one request."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/run", BODY.encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return answer.read()


def wait_for(port: int) -> dict[str, object]:
    """The first answer of a server that has been started."""
    for _ in range(600):
        try:
            return json.loads(ask(port))
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(f"no server at port {port}")


def measure(
    name: str, command: list[str], port: int, load: list[str], env: dict[str, str]
) -> dict[str, object]:
    """Starts a server, loads it, and ends it under load; gives an answer of it."""
    process = subprocess.Popen(command, cwd=HERE, env=os.environ | env, stdout=subprocess.DEVNULL)
    try:
        answer = wait_for(port)
        before = resident(process)
        found = subprocess.run(load, capture_output=True, text=True, check=True).stdout.strip()
        after = resident(process)
        print(f"{name}: {found}; {before} KiB before, {after} KiB after", flush=True)
        under_load = subprocess.Popen(load, stdout=subprocess.PIPE, text=True)
        time.sleep(2)
        process.send_signal(signal.SIGTERM)
        print(f"{name}, ended under load: {under_load.communicate()[0].strip()}", flush=True)
        print(f"{name}: exit status {process.wait(60)}", flush=True)
    finally:
        process.kill()
    return answer


def main() -> None:
    """All servers, in turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument(
        "--target",
        type=Path,
        default=HERE.parents[1] / "target" / "release",
        help="the folder of the built programs and libraries, by default %(default)s",
    )
    options = parser.parse_args()
    library = options.target / "libdistances.so"
    with tempfile.TemporaryDirectory() as folder:
        graph, model, body = (Path(folder) / name for name in ("model.graph", "model.onnx", "body.json"))
        save_graph(graph, library)
        save_onnx(model, library)
        body.write_text(BODY)

        def load(port: int) -> list[str]:
            counts = [str(options.connections), str(options.seconds)]
            return [str(options.target / "examples" / "load"), f"127.0.0.1:{port}", str(body), *counts]

        serve = [str(options.target / "serve"), "--library", str(library), "--output", "y"]
        serve += ["--listen", "127.0.0.1:8181"]
        runtime = next((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.*"))
        uvicorn = [sys.executable, "-m", "uvicorn", "app:app", "--workers", "2", "--port", "8182"]
        uvicorn += ["--log-level", "error"]
        env = {"OPSMITH_LIBRARY": str(library)}
        servers = {
            "serve": ([*serve, str(graph)], 8181, {}),
            "serve, ONNX Runtime": ([*serve, str(model), "--runtime", str(runtime), "--free-rows"], 8181, {}),
            "FastAPI, ONNX Runtime": (uvicorn, 8182, env | {"OPSMITH_MODEL": str(model)}),
            "FastAPI, PyTorch": (uvicorn, 8182, env),
        }
        for _ in range(options.runs):
            answers = [
                measure(name, command, port, load(port), own)
                for name, (command, port, own) in servers.items()
            ]
            if any(answer != answers[0] for answer in answers):
                raise ValueError(f"they are not the same: {answers}")


if __name__ == "__main__":
    main()
