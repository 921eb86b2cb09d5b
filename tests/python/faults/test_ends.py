"""Processes and threads that end, or are interrupted, while an op is computed; threads with next to no
stack."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", ROOT / "target" / "release"))

HEAD = """
import os, random, signal, sys, threading, time
import numpy as np
import opsmith
# A program in the background may have been told to ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
library = opsmith.load(sys.argv[1] + "/libdistances.so")
rows = np.random.default_rng(0).normal(size=(1500, 300))
graph = opsmith.Graph()
x = graph.placeholder("float64", [None, None])
output = library.pairwise_manhattan_distance(x, x)
session = opsmith.Session(graph)
calls = {
    "op": lambda rows: library.pairwise_manhattan_distance(rows, rows),
    "session": lambda rows: session.run(output, {x: rows}),
}
call = calls[sys.argv[2]]
call(rows[:2])
inside = threading.Event()

def again():
    inside.set()
    while True:
        call(rows)

def beside():
    thread = threading.Thread(target=again, daemon=True)
    thread.start()
    inside.wait()
    time.sleep(random.random() * 0.05)
"""


def run(body: str, kind: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process that does this."""
    command = [sys.executable, "-c", HEAD + body, str(LIBRARIES), kind]
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.parametrize("kind", ["op", "session"])
def test_a_process_exits_at_once_while_another_thread_computes(kind: str) -> None:
    for _ in range(3):
        done = run("beside(); os._exit(7)", kind)
        assert (done.returncode, done.stderr) == (7, "")


@pytest.mark.parametrize("kind", ["op", "session"])
def test_the_interpreter_shuts_down_while_another_thread_computes(kind: str) -> None:
    """Also while there are more calls than there are processors, of threads that are not waited for."""
    for _ in range(3):
        done = run("[beside() for _ in range(5)]; print('done')", kind)
        assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("kind", ["op", "session"])
def test_an_interrupt_reaches_the_caller_when_the_call_has_ended(kind: str) -> None:
    body = """
expected = call(rows)
for _ in range(5):
    timer = threading.Timer(random.random() * 0.05, signal.raise_signal, [signal.SIGINT])
    try:
        timer.start()
        for _ in range(1000):
            call(rows)
    except KeyboardInterrupt:
        pass
    else:
        sys.exit("it was not interrupted")
    assert np.array_equal(call(rows), expected)
"""
    done = run(body, kind)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_thread_with_a_stack_of_96_kib_calls_every_op() -> None:
    """The least that Python gives a thread is 32 KiB, of which calls of Python's own take most."""
    body = """
sys.path.insert(0, os.environ["ATTACKS"])
import exhausted_memory as memory
from pathlib import Path
cases = list(memory.cases(Path(sys.argv[1]), memory.QUICK_LARGE))
threading.stack_size(96 << 10)
made = []

def one(case):
    made.append(memory.run(case))

for name, case in cases:
    thread = threading.Thread(target=one, args=[case])
    thread.start()
    thread.join()
    assert made.pop() == 0, name
print(len(cases))
"""
    done = run(body, "op", ATTACKS=str(ROOT / "attacks"))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 180


def test_a_main_thread_with_a_stack_of_256_kib_calls_ops() -> None:
    code = HEAD + "print(call(rows).shape, opsmith.ops.softmax(rows).shape)"
    command = f'ulimit -s 256; exec "{sys.executable}" -c "$CODE" "{LIBRARIES}" session'
    done = subprocess.run(
        ["sh", "-c", command], env=os.environ | {"CODE": code}, capture_output=True, text=True, check=False
    )
    assert done.stdout == "(1500, 1500) (1500, 300)\n", done.stderr
