"""The memory of cards, which all sessions of the process share."""

from __future__ import annotations

from opsmith import _native
from opsmith._errors import InvalidArgumentError


def card_memory(device: str) -> tuple[int, int]:
    """How many bytes tensors take on the card of this name, `cuda:0` say, and the most that they took at one
    time: those of all sessions, variables among them. What is kept to be used again is not counted.

    Raises `opsmith.InvalidArgumentError` for what is no card, and `opsmith.FailedPreconditionError` or
    `opsmith.NotFoundError` where there is no driver or no such card.
    """
    return _native.card_memory(_name(device))


def release_card_memory(device: str) -> None:
    """Give memory that is kept to be used again, and that no tensor is in, back to the card of this name: for
    others in this process, PyTorch say, or in another. It waits for what runs on the card.

    Raises as `card_memory` does.
    """
    _native.release_card_memory(_name(device))


def _name(device: str) -> str:
    if not isinstance(device, str):
        raise InvalidArgumentError(f"expected the name of a card such as 'cuda:0', got {device!r}")
    return device
