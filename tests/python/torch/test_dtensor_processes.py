"""PyTorch's DTensor, DDP, FSDP and tensor parallelism on two processes, and errors in one of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dtensor_workers
import pytest
import torch.multiprocessing as multiprocessing


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """All processes at once: each of them imports PyTorch."""
    folder = tmp_path_factory.mktemp("processes")

    def start(function: Callable[[int, str], None]) -> Any:
        return multiprocessing.spawn(function, (str(folder),), dtensor_workers.WORLD, join=False)

    functions = (dtensor_workers.work, dtensor_workers.fail_in_one, dtensor_workers.miss_in_one)
    contexts = {function.__name__: start(function) for function in functions}
    yield {"folder": folder, **contexts}
    # Some wait for ever, where the test of how they fail is not run.
    for process in (process for context in contexts.values() for process in context.processes):
        process.terminate()


@pytest.fixture(scope="module")
def wrong(started: dict[str, Any]) -> list[dict[str, str]]:
    """What each process found wrong, by the names of the checks."""
    while not started["work"].join():
        pass
    texts = [
        Path(started["folder"], f"{rank}.json").read_text("utf-8") for rank in range(dtensor_workers.WORLD)
    ]
    return list(map(json.loads, texts))


@pytest.mark.parametrize("name", dtensor_workers.CHECKS)
def test_on_two_processes(name: str, wrong: list[dict[str, str]]) -> None:
    for rank, found in enumerate(wrong):
        assert name not in found, f"process {rank}:\n{found[name]}"


def failure(context: Any) -> str:
    """The error that reaches the caller."""
    with pytest.raises(multiprocessing.ProcessRaisedException) as raised:
        while not context.join():
            pass
    return str(raised.value)


def test_an_error_of_one_part_names_op_and_process(started: dict[str, Any]) -> None:
    told = failure(started["fail_in_one"])
    assert "Process 1 terminated" in told
    assert "opsmith::gather: " in told or "Gather: " in told


def test_a_process_without_the_library_says_so(started: dict[str, Any]) -> None:
    told = failure(started["miss_in_one"])
    assert "Process 1 terminated" in told
    assert "opsmith.NotFoundError" in told
    assert "libdistances.so" in told
