"""One part of a call that is cut along free axes: what a worker runs, in this process or another one."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from opsmith._errors import Error, InternalError

if TYPE_CHECKING:
    from opsmith._library import Library

Array: TypeAlias = NDArray[Any]
Given: TypeAlias = "int | Array"
"""The position of an array of the part, or an array that all parts have whole."""

_libraries: dict[bytes, Library] = {}
"""By what was pickled for them."""


@dataclass(frozen=True)
class Cut:
    """A free axis along which a call is cut."""

    name: str
    sizes: tuple[int, ...]
    """Of its parts."""

    def span(self, at: int) -> str:
        """The positions that a part has, as Python writes a slice."""
        start = sum(self.sizes[:at])
        return f"{self.name} = {start}:{start + self.sizes[at]}"


@dataclass(frozen=True)
class Result:
    """A tensor that a call gives."""

    dims: tuple[tuple[int, int | None] | None, ...] | None
    """Of each dim, whether it is cut and which cut or size it is; `None` for a dim, and for the rank, that
    only the call tells."""
    in_front: int
    """How many dims of 1 its parts get in front: those along which they are added up."""

    def shape(self, cuts: Sequence[Cut], block: Sequence[int]) -> list[int | None] | None:
        """Of a part, as far as it is known."""
        if self.dims is None:
            return None
        return [
            None if dim is None else size if cut is None else cuts[cut].sizes[block[cut]]
            for dim in self.dims
            for size, cut in [dim or (0, None)]
        ]


@dataclass(frozen=True)
class Part:
    """What is the same of all parts of a call. It refers to the library by what is pickled for it, and loads
    it where it is called."""

    library: bytes
    library_name: str
    op: int
    op_name: str
    attrs: tuple[Any, ...]
    inputs: tuple[Given | tuple[Given, ...] | None, ...]
    cuts: tuple[Cut, ...]
    results: tuple[Result, ...]

    def __call__(self, block: Sequence[int], *arrays: Array) -> Array | tuple[Array, ...]:
        """The tensors of one part, of which `block` says which one it is; a tuple where there are several.

        Raises what the op raises, and what loading the library raises, with op and part in the message.
        """
        try:
            native = _library(self.library)._opsmith_loaded.native.op(self.op)
            answer = native.call(tuple(_filled(given, arrays) for given in self.inputs), self.attrs or None)
            tensors = [self._checked(result, x, block) for result, x in self._pairs(answer)]
        except Error as error:
            told = type(error)(self._told(str(error), block))
            told.code = error.code
            raise told from error
        return tensors[0] if len(tensors) == 1 else tuple(tensors)

    def _pairs(self, answer: Any) -> list[tuple[Result, Array]]:
        tensors: list[Array] = []
        for value in answer if isinstance(answer, tuple) else (answer,):
            tensors += value if isinstance(value, list) else [value]
        if len(tensors) != len(self.results):
            raise InternalError(f"{self.op_name}: gave {len(tensors)} tensors, not {len(self.results)}")
        return list(zip(self.results, tensors, strict=True))

    def _checked(self, result: Result, tensor: Array, block: Sequence[int]) -> Array:
        tensor = np.asarray(tensor)
        shape = result.shape(self.cuts, block)
        known = shape is None or (
            len(shape) == tensor.ndim
            and all(size in (None, own) for size, own in zip(shape, tensor.shape, strict=True))
        )
        if not known:
            raise InternalError(
                f"{self.op_name}: a part gave shape {tensor.shape}, expected {tuple(shape or ())}; "
                "its free axes are not those that it declares"
            )
        return tensor[(None,) * result.in_front] if result.in_front else tensor

    def _told(self, message: str, block: Sequence[int]) -> str:
        rest = message.removeprefix(f"{self.op_name}: ")
        if not self.cuts:
            return f"{self.op_name}: {rest}"
        spans = ", ".join(cut.span(at) for cut, at in zip(self.cuts, block, strict=True))
        return f"{self.op_name}: in the chunk {spans}: {rest}"

    def __repr__(self) -> str:
        return f"<part of {self.library_name}.{self.op_name}>"


def reference(library: Library) -> bytes:
    """What a `Part` refers to the library by."""
    data = pickle.dumps(library)
    _libraries.setdefault(data, library)
    return data


def _library(data: bytes) -> Library:
    found = _libraries.get(data)
    if found is None:
        loaded: Library = pickle.loads(data)
        found = _libraries.setdefault(data, loaded)
    return found


def _filled(given: Given | tuple[Given, ...] | None, arrays: Sequence[Array]) -> Any:
    if given is None:
        return None
    if isinstance(given, tuple):
        return [_filled(each, arrays) for each in given]
    return arrays[given] if isinstance(given, int) else given
