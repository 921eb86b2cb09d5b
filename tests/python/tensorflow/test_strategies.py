"""Ops of a library under TensorFlow's strategies: each replica calls them on its share of the batch, and the
losses and the trained numbers are those of one that has all of it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import library_path

SCRIPT = Path(__file__).with_name("strategies.py")
LIMIT = 300


def start(kind: str, **variables: str) -> subprocess.Popen[str]:
    """Train under a strategy, in a process of its own."""
    command = [sys.executable, str(SCRIPT), str(library_path("reductions")), kind]
    environment = os.environ | variables
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What the process prints."""
    try:
        out, err = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    """One replica."""
    return finish(start("one"))


def assert_same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Losses that fall, and numbers."""
    assert ours["replicas"] == 2 and theirs["replicas"] == 1
    np.testing.assert_allclose(ours["losses"], theirs["losses"], rtol=1e-5)
    assert sorted(ours["losses"], reverse=True) == ours["losses"]
    for own, other in zip(ours["weights"], theirs["weights"], strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-6)


def test_mirrored_on_two_devices(alone: dict[str, Any]) -> None:
    """By a loop, and by Keras' `fit`."""
    found = finish(start("mirrored"))
    assert_same(found["loop"], alone["loop"])
    assert_same(found["keras"], alone["keras"])


def test_two_workers(alone: dict[str, Any]) -> None:
    """Two processes that talk over gRPC."""
    with socket.socket() as one, socket.socket() as two:
        for each in (one, two):
            each.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in (one, two)]
    processes = []
    for index in range(2):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        processes.append(start("worker", TF_CONFIG=json.dumps(config)))
    try:
        found = [finish(process) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for each in found:
        assert_same(each["loop"], alone["loop"])
    assert found[0]["loop"] == found[1]["loop"]
