"""Threads, forks and loading: who computes, and where."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import pytest
import torch
from torch.utils.data import DataLoader, Dataset


def test_sixteen_threads_agree_with_one(ops: ModuleType) -> None:
    x, y = torch.randn(40, 9), torch.randn(30, 9)
    expected = ops.pairwise(x, y)
    bad = x[:, :3]

    def work(i: int) -> bool:
        for k in range(200):
            if (i + k) % 3 == 0:
                with pytest.raises(RuntimeError, match="testops::pairwise"):
                    ops.pairwise(bad, y)
            if not torch.equal(ops.pairwise(x, y), expected):
                return False
            scaled = ops.add_constant(x[0], torch.tensor(float(k % 7)))
            if not torch.equal(scaled, x[0] + k % 7):
                return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(16)))


def test_the_number_of_threads_is_pytorchs(ops: ModuleType) -> None:
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            offered, seen = ops.num_threads().tolist()
            assert offered == threads and 1 <= seen <= threads
    finally:
        torch.set_num_threads(before)


def test_state_is_counted_across_threads(ops: ModuleType) -> None:
    before = ops.counter().item()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: [ops.counter() for _ in range(100)], range(8)))
    assert ops.counter().item() == before + 801


def squares_are_right() -> bool:
    x = torch.arange(1000, dtype=torch.float64)
    return torch.equal(torch.ops.testops.squares(x), x * x)


class Squares(Dataset[bool]):
    """Each item is the outcome of a call in a worker."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> bool:
        try:
            torch.ops.testops.fails(torch.ones(1), message=f"item {index}")
        except RuntimeError as error:
            return str(error) == f"testops::fails: item {index}" and squares_are_right()
        return False


def test_a_forked_data_loader_worker(ops: ModuleType) -> None:
    assert squares_are_right()
    loader = DataLoader(Squares(), num_workers=2, multiprocessing_context="fork", timeout=60)
    assert [bool(item) for item in loader] == [True] * 4


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_after_a_raw_fork(ops: ModuleType) -> None:
    assert squares_are_right()
    child = os.fork()
    if child == 0:
        # A grandchild too: it is a fork of a fork.
        grandchild = os.fork()
        right = squares_are_right() and torch.ops.testops.num_threads().tolist() == [1, 1]
        if grandchild == 0:
            os._exit(0 if right else 1)
        _, status = os.waitpid(grandchild, 0)
        os._exit(0 if right and status == 0 else 1)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.alarm(60)
    _, status = os.waitpid(child, 0)
    signal.alarm(0)
    assert status == 0
    assert squares_are_right()
