"""Just-in-time builds in a process that forks."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

from opsmith._forks import Turn
from opsmith.jit._cache import locked


def fail() -> None:
    raise AssertionError("somebody has the lock")


def test_a_forked_child_keeps_no_lock_of_the_cache(tmp_path: Path) -> None:
    """It has its parent's for no longer than that does, and waits for no turn that another thread had."""
    turn = Turn()
    held, end = threading.Event(), threading.Event()

    def hold() -> None:
        with turn.take(), locked(tmp_path, "lock", fail):
            held.set()
            end.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        with turn.take():
            os.write(tell, b"has the turn")
        signal.pause()
    try:
        os.set_blocking(told, True)
        signal.alarm(20)
        assert os.read(told, 100) == b"has the turn"
        end.set()
        thread.join()
        # While the child lives.
        with locked(tmp_path, "lock", fail):
            pass
    finally:
        signal.alarm(0)
        end.set()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
