"""Threads and forks: who computes, and where."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import numpy as np
import pytest
import tensorflow as tf
from conftest import library


def test_sixteen_threads_agree_with_one(ops: ModuleType) -> None:
    x, y = tf.random.normal([40, 9]), tf.random.normal([30, 9])
    expected = ops.testops_pairwise(x, y).numpy()
    bad = x[:, :3]

    def work(i: int) -> bool:
        for k in range(100):
            if (i + k) % 3 == 0:
                with pytest.raises(tf.errors.InvalidArgumentError, match="Pairwise"):
                    ops.testops_pairwise(bad, y)
            if not np.array_equal(ops.testops_pairwise(x, y), expected):
                return False
            if ops.testops_make(shape=[k % 7]).shape != (k % 7,):
                return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(16)))


def test_nodes_of_a_graph_run_at_once(ops: ModuleType) -> None:
    x = tf.range(2000, dtype=tf.float64)

    @tf.function
    def many(x: tf.Tensor) -> list[tf.Tensor]:
        return [ops.testops_squares(x + i) for i in range(32)]

    for _ in range(5):
        for i, result in enumerate(many(x)):
            np.testing.assert_array_equal(result, (x.numpy() + i) ** 2)


def test_a_parallel_pipeline(ops: ModuleType) -> None:
    numbers = tf.data.Dataset.range(64).map(
        lambda i: ops.testops_squares(tf.fill([500], tf.cast(i, tf.float64))), num_parallel_calls=8
    )
    for i, result in enumerate(numbers.prefetch(4)):
        np.testing.assert_array_equal(result, np.full(500, float(i * i)))


def test_the_number_of_threads_is_the_environments() -> None:
    code = """
import sys, tensorflow as tf
ops = tf.load_op_library(sys.argv[1])
print(*ops.testops_num_threads().numpy())
"""
    command = [sys.executable, "-c", code, library("opsmith_testops")]
    for threads in ("1", "3"):
        environment = os.environ | {"OPSMITH_NUM_THREADS": threads}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        offered, seen = map(int, done.stdout.split())
        assert offered == int(threads) and 1 <= seen <= offered


def test_state_is_counted_across_threads(ops: ModuleType) -> None:
    before = ops.testops_counter().numpy()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: [ops.testops_counter() for _ in range(100)], range(8)))
    assert ops.testops_counter().numpy() == before + 801


def test_a_stateful_op_runs_in_every_call_of_a_graph(zero_out: ModuleType) -> None:
    @tf.function
    def count() -> tf.Tensor:
        first = zero_out.zero_out_counter(name_="graph")
        second = zero_out.zero_out_counter(name_="graph")
        return first + second

    assert [int(count()) for _ in range(3)] == [3, 7, 11]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_after_a_raw_fork(ops: ModuleType) -> None:
    x = tf.range(1000, dtype=tf.float64)
    expected = x.numpy() ** 2
    np.testing.assert_array_equal(ops.testops_squares(x), expected)
    child = os.fork()
    if child == 0:
        # A grandchild too: it is a fork of a fork.
        grandchild = os.fork()
        right = np.array_equal(ops.testops_squares(x), expected)
        if grandchild == 0:
            os._exit(0 if right else 1)
        _, status = os.waitpid(grandchild, 0)
        os._exit(0 if right and status == 0 else 1)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.alarm(60)
    _, status = os.waitpid(child, 0)
    signal.alarm(0)
    assert status == 0
    np.testing.assert_array_equal(ops.testops_squares(x), expected)
