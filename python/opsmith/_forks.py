"""What threads share, in a process that forks.

A forked child has one thread: a lock that another thread held is held for ever there, and nobody ends what
it was doing. `LOADING` is waited for before a fork; a `Turn` is not, and is free in the child.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar, overload

LOADING = threading.RLock()
"""Held while a library is loaded, frameworks learn about it, or a module of the package is imported. There is
one lock for all that: were there two, a fork that has one could wait for a thread that has the other."""

os.register_at_fork(before=LOADING.acquire, after_in_parent=LOADING.release, after_in_child=LOADING.release)

_T = TypeVar("_T")


class Turn:
    """A lock for what takes long: a fork does not wait for it, and in the child it is free."""

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    @contextmanager
    def take(self) -> Iterator[None]:
        """Wait until no other thread of this process has it."""
        with self._lock:
            yield


class cached(Generic[_T]):
    """A property that is computed once; `functools.cached_property` has a lock before Python 3.12."""

    def __init__(self, function: Callable[[Any], _T]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> cached[_T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> _T: ...

    def __get__(self, instance: object | None, owner: type) -> cached[_T] | _T:
        if instance is None:
            return self
        # The next access finds it there: this is no data descriptor.
        value = instance.__dict__[self._function.__name__] = self._function(instance)
        return value
