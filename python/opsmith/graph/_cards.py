"""The memory of cards, which all sessions of the process share."""

from __future__ import annotations

from opsmith import _native
from opsmith._errors import InvalidArgumentError


def card_memory(device: str) -> tuple[int, int]:
    """How many bytes tensors take on a card now, and the most that they have taken at one time.

        >>> now, peak = opsmith.graph.card_memory("cuda:0")

    It counts tensors of all sessions, variables included, but not memory that is kept for reuse.

    Raises `opsmith.InvalidArgumentError` if `device` is not a card, and `opsmith.FailedPreconditionError` or
    `opsmith.NotFoundError` if there is no driver or no such card.
    """
    return _native.card_memory(_name(device))


def release_card_memory(device: str) -> None:
    """Return memory that is kept for reuse to the card, for PyTorch or another process say. Waits for what
    runs there.

    Raises the errors of `card_memory`.
    """
    _native.release_card_memory(_name(device))


def _name(device: str) -> str:
    if not isinstance(device, str):
        raise InvalidArgumentError(f"expected the name of a card such as 'cuda:0', got {device!r}")
    return device
