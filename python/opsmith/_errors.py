"""The exceptions that ops and libraries raise.

Each class also derives from the exception of Python that comes closest, so code that catches ``ValueError``
keeps working. All are ``RuntimeError``, as what PyTorch raises for an op is, so one ``except`` serves
whichever framework computes. ``code`` names the kind of failure as the C ABI and every other framework do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

E = TypeVar("E", bound="Error")


class Error(RuntimeError):
    """An error of an op or a library. The message names the op and the argument.

    - ``code``: the kind of failure. Some kinds have no class of their own, such as ``"DataLoss"`` for a
      damaged file.
    - ``op``: the name of the op that failed, or `None`.
    - ``argument``: the input, output or attribute to blame, or `None` if there is none or it is not known.
    - ``text``: the message without the name of the op.
    """

    code: str = "Unknown"
    op: str | None = None
    argument: str | None = None
    _text: str | None = None

    @classmethod
    def of(cls: type[E], op: str, argument: str | None, text: str) -> E:
        """The error of an op, about one of its arguments if that is known."""
        error = cls(f"{op}: {text}")
        error.op, error.argument, error._text = op, argument, text
        return error

    @property
    def text(self) -> str:
        """What is wrong, without the name of the op."""
        return str(self) if self._text is None else self._text


# TensorFlow's AutoGraph adds its traceback to an exception of such a class, and replaces any other.
Error.__init__ = Exception.__init__  # type: ignore[method-assign]


class InvalidArgumentError(Error, ValueError):
    """An input or an attribute is wrong, whatever the state of the system."""

    code = "InvalidArgument"


class NotFoundError(Error, LookupError):
    """A named thing, such as a file or an op, does not exist."""

    code = "NotFound"


class OutOfRangeError(Error, IndexError):
    """An index is outside the valid range."""

    code = "OutOfRange"


class UnimplementedError(Error, NotImplementedError):
    """There is no kernel for this device or dtype, or the caller lacks something that the op needs."""

    code = "Unimplemented"


class ResourceExhaustedError(Error, MemoryError):
    """Memory or another resource ran out."""

    code = "ResourceExhausted"


class FailedPreconditionError(Error):
    """The system is not in the state that the call needs. For example, a library has another ABI version."""

    code = "FailedPrecondition"


class AlreadyExistsError(Error, ValueError):
    """Something of this name exists already and differs, such as a library with other definitions."""

    code = "AlreadyExists"


class InternalError(Error):
    """A bug in a kernel or in Opsmith, such as a panic."""

    code = "Internal"


# Tracebacks name a class by the module that users know it from.
for _kind in (Error, *Error.__subclasses__()):
    _kind.__module__ = "opsmith"


@contextmanager
def refused(what: str) -> Iterator[None]:
    """What is raised within it of a value becomes an `InvalidArgumentError` that begins with `what`. What
    says nothing of the value, such as an interrupt or too little memory, is passed on as it is."""
    try:
        yield
    except (Error, MemoryError, RecursionError):
        raise
    except Exception as error:
        raise InvalidArgumentError(f"{what}: {error}") from error
