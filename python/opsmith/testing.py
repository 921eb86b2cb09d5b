"""Property tests of operators from their definitions alone.

    >>> import opsmith.testing
    >>> distances = opsmith.load("libdistances.so")
    >>> opsmith.testing.check(distances.pairwise_manhattan_distance)

Calls are generated from the op's shape signature, dtypes and attributes, and made in another process, so that
one that crashes or hangs is a failure like any other. What is checked, property by property, is described in
`docs/cli.md`; the program `opsmith check` does the same.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from opsmith import _apart, _html, _native
from opsmith._definition import Arg, Attr, Op
from opsmith._errors import FailedPreconditionError, InvalidArgumentError
from opsmith._library import Library, definition_of, library_meant, op_meant

__all__ = ["CheckFailed", "Report", "Row", "check"]

_Plain = tuple[str, tuple[int, ...], bytes, list[bytes]]
"""A tensor as it goes to the native part and comes back: dtype, dims, bytes, and the elements if they are
strings."""


_MOST_SIZE = 100_000
"""The longest dim of a generated tensor."""


@dataclass(frozen=True)
class Row:
    """The result of checking one property of one op."""

    op: str
    property: str
    verdict: str
    """`passed`, `failed` or `skipped`."""
    cases: int
    """In how many cases it was seen to hold."""
    message: str
    """What is wrong, or why it was skipped; empty where it passed."""
    python: str
    """A line of Python that makes the call in which it does not hold; else empty."""


@dataclass(frozen=True)
class Report:
    """The results of a check. As text it is a table."""

    library: str
    seed: int
    rows: tuple[Row, ...]
    table: str

    @property
    def failures(self) -> tuple[Row, ...]:
        """The rows that failed."""
        return tuple(row for row in self.rows if row.verdict == "failed")

    def __str__(self) -> str:
        return self.table

    def _repr_html_(self) -> str:
        rows = [(row.op, row.property, row.verdict, row.cases, row.message) for row in self.rows]
        head = ("op", "property", "verdict", "cases", "")
        return _html.table(f"{self.library}, seed {self.seed}", head, rows)


class CheckFailed(AssertionError):
    """A property does not hold. `report` says which."""

    def __init__(self, report: Report) -> None:
        super().__init__(f"\n{report}")
        self.report = report


def check(
    op: Callable[..., Any] | Library | ModuleType,
    name: str | None = None,
    /,
    *,
    inputs: Callable[..., Sequence[Any] | Mapping[str, Any]] | None = None,
    reference: Callable[..., Any] | None = None,
    attrs: Mapping[str, Iterable[Any]] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
    cases: int | None = None,
    sizes: tuple[int, int] | None = None,
    properties: Sequence[str] | None = None,
    time_limit: float = 10.0,
    raises: bool = True,
) -> Report:
    """Test ops from their definitions: shapes, gradients, strides, threads and more. Returns a `Report`.

        >>> opsmith.testing.check(distances)                                # all ops of a library
        >>> opsmith.testing.check(distances.pairwise_manhattan_distance)    # one op
        >>> opsmith.testing.check(opsmith.ops, "gather", cases=50)          # one op by its name

    Calls are generated, and made in another process, so a crash is a failure like any other. The following
    parameters add what you know about one op:

    - `inputs`: a function that makes the inputs of a call, if a definition cannot say which are meaningful.
      It is called as `inputs(rng)` with a NumPy generator, or `inputs(rng, size)` with a size from 0 to 8;
      failing cases are shrunk by the size. It returns one array for each input, in order or as a dict by
      names: a list of arrays for a list, `None` for an absent input.
    - `reference`: a function that computes the expected outputs, called as `reference(*inputs, **attrs)`
      with NumPy arrays. It returns an array, or a tuple for several outputs, of any dtype. Nothing is
      compared if it returns `None`, or if NumPy lacks the dtype of an input.
    - `attrs`: values to choose from, for some attributes: `{"axis": [0, 1]}`.
    - `rtol`, `atol`: how exact the op is. By default, as exact as rounding allows.

    The others are for any number of ops:

    - `seed`: the same seed gives the same cases.
    - `cases`: how many cases to try for each property.
    - `sizes`: the smallest and the largest size, `(1, 4)` for example, of dims that the definition leaves
      open.
    - `properties`: which to check: shapes, empty, scalars, strided, determinism, threads, extremes,
      gradient, parallel, wanted, ill-formed, reference, cuda.
    - `time_limit`: how many seconds a call may take; on a card it is two minutes at least.
    - `raises`: whether a failure raises.

    Raises `CheckFailed`, an `AssertionError`, with the table and the smallest failing cases. Raises
    `opsmith.InvalidArgumentError` for parameters out of range. Exceptions of `inputs` and `reference` are
    passed on.
    """
    if cases is not None and cases < 1:
        raise InvalidArgumentError(f"`cases` must be at least 1, got {cases}")
    if sizes is not None and not 0 <= sizes[0] <= sizes[1] <= _MOST_SIZE:
        raise InvalidArgumentError(
            f"`sizes` must be the smallest and the largest, of 0 to {_MOST_SIZE}, got {sizes}"
        )
    library, ops = _resolve(op, name)
    if len(ops) != 1 and (inputs, reference, attrs) != (None, None, None):
        raise TypeError("`inputs`, `reference` and `attrs` are for one op: pass a function of the library")
    for attr, values in (attrs or {}).items():
        if (
            not isinstance(values, Iterable)
            or isinstance(values, str | bytes)
            or getattr(values, "ndim", 1) == 0
        ):
            raise InvalidArgumentError(
                f"`attrs` has a list of values for each attribute, such as {{{attr!r}: [{values!r}]}}"
            )
    if not sys.executable:
        raise FailedPreconditionError(
            "`sys.executable` is empty, so no process can be started to make the calls"
        )
    if properties is None and reference is None:
        properties = [name for name in _native.PROPERTIES if name != "reference"]
    program, *arguments = _apart.command("native.check_worker()")
    options = {
        "ops": [op.name for op in ops],
        "properties": None if properties is None else list(properties),
        "seed": seed,
        "cases": cases,
        "sizes": sizes,
        "rtol": rtol,
        "atol": atol,
        "time_limit": time_limit,
        "worker": (program, arguments),
    }
    text, table = _native.run_checks(
        None if library._opsmith_loaded.embedded else library.__file__,
        options,
        None if inputs is None else _Inputs(ops[0], inputs),
        None if reference is None else _Reference(ops[0], reference),
        None if attrs is None else {_attribute(ops[0], name): list(attrs[name]) for name in attrs},
    )
    report = _report(json.loads(text), table)
    if raises and report.failures:
        raise CheckFailed(report)
    return report


def _resolve(
    op: Callable[..., Any] | Library | ModuleType, name: str | None
) -> tuple[Library, tuple[Op, ...]]:
    """The library and those of its ops that are meant."""
    library = library_meant(op)
    if library is not None and name is None:
        return library, definition_of(library).ops
    library, definition = op_meant("check", op, name)
    return library, (definition,)


def _attribute(op: Op, name: str) -> str:
    """The definition's name of an attribute that may be written as the function has it."""
    return next((attr.name for attr in op.call_attrs if name == attr.python_name), name)


def _report(data: dict[str, Any], table: str) -> Report:
    rows = tuple(
        Row(
            op=row["op"],
            property=row["property"],
            verdict=row["verdict"],
            cases=row["cases"],
            message=row.get("message", row.get("why", "")),
            python=row.get("python", ""),
        )
        for row in data["rows"]
    )
    return Report(data["library"], data["seed"], rows, table)


@dataclass(frozen=True)
class _Inputs:
    """The author's generator as the native part calls it."""

    op: Op
    function: Callable[..., Any]

    def __call__(self, seed: int, size: int) -> list[list[_Plain | None]]:
        rng = np.random.default_rng(seed)
        given = self.function(rng, size) if _takes_two(self.function) else self.function(rng)
        defs = self.op.inputs
        if isinstance(given, Mapping):
            unknown = given.keys() - {arg.name for arg in defs}
            if unknown:
                names = ", ".join(arg.name for arg in defs)
                text = f"`inputs` gave {sorted(unknown)}, but the op's inputs are {names}"
                raise InvalidArgumentError.of(self.op.name, None, text)
            given = [given.get(arg.name) for arg in defs]
        elif len(defs) == 1 and not isinstance(given, tuple):
            given = (given,)
        if len(given) != len(defs):
            names = ", ".join(arg.name for arg in defs)
            text = f"takes {len(defs)} inputs ({names}), `inputs` gave {len(given)}"
            raise InvalidArgumentError.of(self.op.name, None, text)
        return [_plain_list(arg, value) for arg, value in zip(defs, given, strict=True)]


@dataclass(frozen=True)
class _Reference:
    """The author's reference as the native part calls it."""

    op: Op
    function: Callable[..., Any]

    def __call__(self, inputs: list[list[_Plain | None]], attrs: str) -> list[_Plain] | None:
        try:
            arrays = [[None if plain is None else _array(plain) for plain in tensors] for tensors in inputs]
        except TypeError:
            # NumPy has no such dtype.
            return None
        pairs = zip(self.op.inputs, arrays, strict=True)
        arguments = [tensors if arg.is_list else tensors[0] for arg, tensors in pairs]
        given = json.loads(attrs)
        keywords = {
            attr.python_name: _attr_value(attr, given.get(attr.name, attr.default))
            for attr in self.op.call_attrs
        }
        outputs = self.function(*arguments, **keywords)
        if outputs is None:
            return None
        # What an op saves for its gradient is nothing that its caller sees.
        returned = [self.op.outputs[position] for position in self.op.returned]
        if len(returned) == 1:
            outputs = (outputs,)
        flat: list[_Plain] = []
        for arg, value in zip(returned, outputs, strict=True):
            flat.extend(_plain(element) for element in (value if arg.is_list else [value]))
        return flat


def _takes_two(function: Callable[..., Any]) -> bool:
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return sum(parameter.kind in positional for parameter in parameters) > 1


def _plain_list(arg: Arg, value: Any) -> list[_Plain | None]:
    if value is None:
        return [None]
    return [_plain(element) for element in value] if arg.is_list else [_plain(value)]


def _plain(value: Any) -> _Plain:
    array = np.asarray(value)
    if array.dtype.kind in "OSU":
        texts = [text.encode() if isinstance(text, str) else bytes(text) for text in array.ravel().tolist()]
        return "string", array.shape, b"", texts
    return array.dtype.name, array.shape, array.tobytes(), []


def _array(plain: _Plain) -> np.ndarray[Any, Any]:
    dtype, shape, data, texts = plain
    if dtype == "string":
        array = np.empty(len(texts), object)
        array[:] = [text.decode(errors="surrogateescape") for text in texts]
        return array.reshape(shape)
    return np.frombuffer(data, np.dtype(dtype)).reshape(shape)


def _attr_value(attr: Attr, value: Any) -> Any:
    """The value as a function takes it, from JSON, which has no infinities and no tensors."""
    if attr.is_list:
        return [_one_attr_value(attr, element) for element in value]
    return _one_attr_value(attr, value)


def _one_attr_value(attr: Attr, value: Any) -> Any:
    if attr.type == "float":
        return float(value)
    if attr.type == "tensor":
        return np.array(value["values"], value["dtype"]).reshape(value["shape"])
    return value
