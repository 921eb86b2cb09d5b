"""The client of `examples/serve`, and clients of Python's own, with a server that has little room."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import opsmith
import pytest
from conftest import ROOT, library

SERVER = Path(os.environ.get("OPSMITH_SERVER", ROOT / "target" / "debug" / "serve"))
CLIENT = ROOT / "examples" / "serve" / "client.py"
POINTS = np.arange(12, dtype="float32").reshape(4, 3)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that answers one request at a time."""
    assert SERVER.exists(), f"{SERVER} is missing: cargo build --package serve"
    graph, path = opsmith.Graph(), tmp_path_factory.mktemp("model") / "model.graph"
    x = graph.placeholder("float32", [None, 3], name="x")
    opsmith.load(library("distances")).pairwise_manhattan_distance(x, POINTS, name="y")
    graph.save(path)
    command = [str(SERVER), str(path), "--library", library("distances"), "--output", "y"]
    command += ["--listen", "127.0.0.1:0", "--concurrency", "1", "--linger", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process.stdout.readline().split()[-1]
    process.terminate()
    assert process.wait(60) == 0


def sent(address: str, rows: np.ndarray, folder: Path) -> tuple[str, np.ndarray]:
    """What the client prints and writes."""
    np.save(folder / "rows.npy", rows)
    command = [sys.executable, str(CLIENT), address, "rows.npy"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), np.load(folder / "y.npy")


def test_it_waits_for_room(address: str, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((20_000, 3)).astype("float32")
    told, y = sent(address, rows, tmp_path)
    assert told == "y.npy: float32 (20000, 4)"
    np.testing.assert_allclose(y, np.abs(rows[:, None] - POINTS).sum(2), rtol=1e-5)


def test_no_rows_have_an_answer(address: str, tmp_path: Path) -> None:
    told, _ = sent(address, np.zeros((0, 3), "float32"), tmp_path)
    assert told == "y.npy: float32 (0, 4)"


def test_connections_outlive_refusals(address: str) -> None:
    body = json.dumps({"inputs": {"x": np.ones((2000, 3)).tolist()}})

    def statuses(_: int) -> list[int]:
        connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
        got = []
        for _ in range(100):
            connection.request("POST", "/run", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            assert not answer.will_close
            got.append(answer.status)
        return got

    with ThreadPoolExecutor(8) as threads:
        got = {status for own in threads.map(statuses, range(8)) for status in own}
    assert got == {200, 503}


def test_a_body_that_is_far_too_large_has_an_answer(address: str) -> None:
    request = urllib.request.Request(
        f"{address}/run", b" " * (200 << 20), {"Content-Type": "application/json"}
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=60)
    assert refused.value.code == 413
    assert "--body" in json.loads(refused.value.read())["error"]["message"]
