"""Calls operators with what they do not take: wrong dtypes, ranks, shapes, counts, kinds and values of
attributes, None, objects of any kind that lie about themselves, tensors of layouts and devices that are rare.

A call gives a result or raises an exception; none may end the process, hang, or come back with a panic.

Run it with a framework (`numpy`, `torch`, `tensorflow`, `jax`) and the folder of the built libraries:
`python attacks/ill_formed_calls.py torch target/release [NUMBER [SEED]]`. The calls are made in a process of
its own, which is begun anew behind a call that ends it. One call alone is made by
`--only CALL`, whose number is shown when it goes wrong.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import mmap
import os
import random
import resource
import struct
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# What JAX takes out of a traceback costs as much as the call.
os.environ.setdefault("JAX_TRACEBACK_FILTERING", "off")

import numpy as np
import opsmith

FRAMEWORKS = ("numpy", "torch", "tensorflow", "jax")
# What is no library, and ops that panic or wait on purpose.
LEFT_OUT = {"opsmith_faulty", "opsmith_testops", "_native", "opsmith_macros"}
PATIENCE = 120
"""A call that takes longer hangs, in seconds."""
ROOM = 4 << 30
"""By how much the process may grow: a size that is only large is refused like one that is too large."""

INTS = [0, 1, -1, 2, 3, -2, 7, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63), 1 << 63, 10**30]
FLOATS = [0.0, 0.5, -0.5, 1e-300, 1e300, float("nan"), float("inf"), -float("inf")]
DTYPES = ["float32", "float64", "float16", "int32", "int64", "int8", "uint8", "uint64", "bool", "complex64"]
RARE = ["object", "U3", "S2", "M8[s]", "m8[ns]", ">f4", "<u2", "V4", "f4,i4", "longdouble", "complex128"]
WORDS = [
    "",
    "float32",
    "DT_FLOAT",
    "nearest",
    "sum",
    "a\0b",
    "\ud800",
    "é" * 9,
    "inputs 1\ninput 0\noutput 0 1",
]


class Liar:
    """Says that it is an array, a number and a list, and is none of them."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def _tell(self, *_: Any, **__: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    __array__ = __index__ = __int__ = __float__ = __len__ = __getitem__ = __iter__ = __bool__ = _tell
    __dlpack__ = __dlpack_device__ = __str__ = __repr__ = __hash__ = __eq__ = _tell  # type: ignore[assignment]


class Named(str):
    """Text of another class."""


class Number(int):
    """A number of another class."""


class Endless:
    """A list without end."""

    def __iter__(self) -> Iterator[int]:
        while True:
            yield 1


def nested(depth: int) -> list[Any]:
    """Lists in lists."""
    inside: list[Any] = []
    for _ in range(depth):
        inside = [inside]
    return inside


def in_itself() -> list[Any]:
    """A list that is its own element."""
    own: list[Any] = []
    own.append(own)
    return own


def strange(rng: random.Random) -> Any:
    """What is no tensor."""
    # Where lists are too deep, JAX 0.10's own `tree_leaves` never again calls any function that is deep.
    deepest = 3000 if "jax" not in sys.modules else 100
    makers: list[Callable[[], Any]] = [
        lambda: None,
        lambda: rng.choice(WORDS),
        lambda: rng.choice(INTS),
        lambda: rng.choice(FLOATS),
        lambda: rng.choice([True, 1 + 2j, b"bytes", Ellipsis, NotImplemented, slice(None), object, len]),
        lambda: [rng.choice(INTS[:7]) for _ in range(rng.randrange(4))],
        lambda: [[1], [2, 3]],
        lambda: [rng.choice(WORDS), 1, None],
        lambda: rng.choice([{}, set(), {"a": 1}, frozenset(), range(3), iter([1]), bytearray(4)]),
        lambda: memoryview(bytes(8)),
        lambda: rng.choice(
            [object(), Decimal("1.5"), Named("float32"), Number(2), np.float32, np.dtype("f4")]
        ),
        lambda: Liar(
            rng.choice([None, "text", -1, 1 << 62, [], np.zeros(2), ValueError("no"), MemoryError()])
        ),
        lambda: nested(rng.choice([2, 40, deepest])),
        in_itself if deepest > 100 else dict,
        lambda: (n for n in range(3)),
        lambda: type("Sized", (), {"__array_interface__": rng.choice([{}, 3, {"shape": (1,)}])})(),
        lambda: np.datetime64("2020-01-01"),
        lambda: np.void(b"abcd"),
        lambda: np.float16(1),
    ]
    return rng.choice(makers)()


def numpy_array(rng: random.Random, shape: tuple[int, ...], rare: bool) -> Any:
    """An array of any dtype and layout."""
    dtype = np.dtype(rng.choice(RARE if rare and rng.random() < 0.5 else DTYPES))
    count = int(np.prod(shape, dtype=np.int64))
    numbers = np.arange(count) % 5 - rng.randrange(3)
    with contextlib.suppress(TypeError, ValueError):
        array = numbers.astype(dtype).reshape(shape)
        if not rare:
            return array
        layouts: list[Callable[[], Any]] = [
            lambda: array.T,
            lambda: array[..., ::-1] if array.ndim else array,
            lambda: np.broadcast_to(array, (2, *shape)),
            lambda: np.asfortranarray(array),
            lambda: np.ma.masked_array(array),
            lambda: array.view(np.recarray),
            lambda: np.frombuffer(b"\0" + array.tobytes(), dtype, offset=1).reshape(shape),
            lambda: np.lib.stride_tricks.as_strided(array, shape, (0,) * array.ndim),
            lambda: np.broadcast_to(dtype.type(1), (1 << 16,)),
            lambda: np.empty((0, 1 << 40), dtype),
            array.tolist,
            lambda: array[()] if array.ndim == 0 else array[:0],
        ]
        array.setflags(write=rng.random() < 0.5)
        return rng.choice(layouts)()
    return np.zeros(shape, dtype)


def torch_tensor(rng: random.Random, shape: tuple[int, ...], rare: bool) -> Any:
    """A tensor of any dtype, layout and device that there is without a card."""
    import torch

    names = ["float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "bool", "complex64"]
    dtype = getattr(torch, rng.choice(names))
    tensor = (torch.arange(int(np.prod(shape))) % 5 - 1).to(dtype).reshape(shape)
    if not rare:
        return tensor.requires_grad_() if dtype.is_floating_point and rng.random() < 0.2 else tensor
    makers: list[Callable[[], Any]] = [
        lambda: tensor.to("meta"),
        lambda: tensor.to_sparse(),
        lambda: tensor.t() if tensor.ndim < 3 else tensor.transpose(0, 1),
        lambda: tensor.expand(2, *shape),
        lambda: torch.as_strided(tensor, shape, (0,) * len(shape)),
        lambda: torch.conj(tensor.to(torch.complex64)),
        lambda: tensor.to(torch.complex64).conj().imag,
        lambda: torch.nn.Parameter(tensor.float()),
        lambda: torch.quantize_per_tensor(tensor.float(), 0.1, 0, torch.quint8),
        lambda: torch.nested.nested_tensor([tensor, tensor]),
        lambda: tensor.to(torch.float8_e4m3fn),
        lambda: torch.empty(0, 1 << 40),
        lambda: torch.ones(1).expand(1 << 16),
        lambda: torch.zeros(shape, device="meta", dtype=dtype),
        tensor.untyped_storage,
        lambda: tensor.flatten()[1:],
        lambda: tensor.to_mkldnn(),
        lambda: tensor.numpy(),
    ]
    return rng.choice(makers)()


def tensorflow_tensor(rng: random.Random, shape: tuple[int, ...], rare: bool) -> Any:
    """A tensor of any dtype, or what TensorFlow has beside them."""
    import tensorflow as tf

    names = ["float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "bool", "complex64"]
    numbers = np.arange(int(np.prod(shape))).reshape(shape) % 5
    tensor = tf.cast(tf.constant(numbers), getattr(tf, rng.choice(names)))
    if not rare:
        return tensor
    makers: list[Callable[[], Any]] = [
        lambda: tf.constant(["a", "b"]),
        lambda: tf.ragged.constant([[1], [2, 3]]),
        lambda: tf.sparse.from_dense(tf.ones((2, 2))),
        lambda: tf.Variable(tensor),
        lambda: tf.TensorSpec(shape, tf.float32),
        lambda: tf.cast(tensor, tf.qint8),
        lambda: tf.zeros((0, 1 << 30)),
        lambda: tf.data.Dataset.range(3),
        lambda: tensor.numpy(),
    ]
    return rng.choice(makers)()


def jax_array(rng: random.Random, shape: tuple[int, ...], rare: bool) -> Any:
    """An array of any dtype, or what JAX has beside them."""
    import jax
    import jax.numpy as jnp

    names = ["float32", "float16", "bfloat16", "int32", "uint8", "bool", "complex64"]
    # NumPy makes it: what JAX makes of an array is compiled.
    numbers = (np.arange(int(np.prod(shape))).reshape(shape) % 5).astype(jnp.dtype(rng.choice(names)))
    if not rare:
        return jax.device_put(numbers)

    def deleted() -> Any:
        array = jax.device_put(numbers)
        array.delete()
        return array

    makers: list[Callable[[], Any]] = [
        deleted,
        lambda: jax.random.key(1),
        lambda: jax.ShapeDtypeStruct(shape, "float32"),
        lambda: jax.device_put(numbers.T),
        lambda: jax.device_put(numbers.astype(jnp.int4)),
        lambda: jax.device_put(numbers.astype(jnp.float8_e4m3fn)),
        # With 2^30 columns XLA's compiler runs out of memory by itself, and ends the process.
        lambda: jnp.zeros((0, 1 << 20)),
        lambda: numbers,
    ]
    return rng.choice(makers)()


TENSORS = {"numpy": numpy_array, "torch": torch_tensor, "tensorflow": tensorflow_tensor, "jax": jax_array}


class Caller:
    """All ops of all libraries, and calls of them by number."""

    def __init__(self, framework: str, folder: Path, seed: int) -> None:
        if framework != "numpy":
            __import__(framework)
        self.framework, self.seed = framework, seed
        files = sorted(folder.glob("lib*.so"))
        chosen = [file for file in files if file.stem.removeprefix("lib") not in LEFT_OUT]
        if framework == "numpy":
            # The package has the standard operators, for arrays alone.
            chosen = [file for file in chosen if file.stem != "libopsmith_ops"]
        libraries = [*([opsmith.ops] if framework == "numpy" else []), *map(opsmith.load, chosen)]
        self.ops = []
        for library in libraries:
            functions = library._opsmith_functions.values()
            self.ops += zip(library._opsmith_loaded.definition.ops, functions, strict=True)

    def value(self, rng: random.Random, attr: Any) -> Any:
        """What is given for an attribute: one of its kind, or not."""
        if rng.random() < 0.25:
            return strange(rng)
        kinds: dict[str, Callable[[], Any]] = {
            "string": lambda: rng.choice(WORDS),
            "int": lambda: rng.choice(INTS),
            "float": lambda: rng.choice(FLOATS),
            "bool": lambda: rng.choice([True, False, 0, 1, 2]),
            "type": lambda: rng.choice([*DTYPES, *RARE, np.float32, float, "nothing"]),
            "shape": lambda: [rng.choice([*INTS, None]) for _ in range(rng.randrange(4))],
            "tensor": lambda: numpy_array(rng, (2,), rng.random() < 0.5),
        }
        one = kinds[attr.type]
        if attr.allowed and rng.random() < 0.7:
            one = partial(rng.choice, attr.allowed)
        return [one() for _ in range(rng.randrange(4))] if attr.is_list else one()

    def tensor(self, rng: random.Random, shape: tuple[int, ...]) -> Any:
        """What is given for an input: a tensor mostly."""
        chance = rng.random()
        if chance < 0.15:
            return strange(rng)
        if rng.random() < 0.25:
            shape = tuple(rng.randrange(5) for _ in range(rng.randrange(5)))
        make = TENSORS[self.framework] if rng.random() < 0.9 else numpy_array
        return make(rng, shape, chance < 0.4)

    def call(self, number: int) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """The function and the arguments of the call of this number."""
        rng = random.Random(f"{self.seed}/{number}")
        op, function = rng.choice(self.ops)
        shape = tuple(rng.randrange(1, 4) for _ in range(rng.randrange(4)))
        if self.framework == "jax":
            # Each shape is compiled.
            shape = (2,) * (len(shape) % 3)
        args: list[Any] = []
        for arg in op.inputs:
            if arg.is_list and rng.random() < 0.9:
                args.append([self.tensor(rng, shape) for _ in range(rng.randrange(4))])
            else:
                args.append(self.tensor(rng, shape))
        if rng.random() < 0.1:
            args = args[:-1] if rng.random() < 0.5 else [*args, strange(rng)]
        given = {}
        for attr in op.attrs:
            if rng.random() < (0.1 if attr.inferred else 0.4 if attr.has_default else 0.95):
                given[attr.python_name] = self.value(rng, attr)
        if rng.random() < 0.05:
            given[rng.choice(["axis", "out", "dtype", "no_such_attribute", "x"])] = strange(rng)
        return function, tuple(args), given

    def outcome(self, number: int) -> str:
        """What came of a call: `result`, the name of an exception, or `WRONG: …`."""
        try:
            function, args, given = self.call(number)
        except Exception:
            # The framework has no such tensor.
            return "not made"
        try:
            function(*args, **given)
        except Exception as error:
            said = ""
            with contextlib.suppress(Exception):
                said = str(error)
            if "panicked" in said or "this is a bug" in said or isinstance(error, opsmith.InternalError):
                return f"WRONG: {type(error).__name__}: {said}"
            return type(error).__name__
        except BaseException as error:
            return f"WRONG: {type(error).__name__}: {error}"
        return "result"


def begin(framework: str, folder: Path, seed: int) -> Caller:
    """The caller, in a process that cannot take all memory."""
    warnings.simplefilter("ignore")
    caller = Caller(framework, folder, seed)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    room = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (room, resource.RLIM_INFINITY))
    return caller


def work(framework: str, folder: Path, first: int, last: int, seed: int, path: Path) -> None:
    """Make these calls; the file tells how far it is, and in the end what came of them."""
    caller = begin(framework, folder, seed)
    counts: Counter[str] = Counter()
    wrong: list[tuple[int, str]] = []
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 8) as place:
        for number in range(first, last):
            place[:8] = struct.pack("<Q", number)
            if number % 64 == first % 64:
                faulthandler.dump_traceback_later(PATIENCE, exit=True)
            outcome = caller.outcome(number)
            counts[outcome.split(":")[0]] += 1
            if outcome.startswith("WRONG"):
                wrong.append((number, outcome))
    faulthandler.cancel_dump_traceback_later()
    print(json.dumps({"counts": counts, "wrong": wrong}), flush=True)
    # Not what frameworks do when they end, which is not ours.
    os._exit(0)


def outcomes(framework: str, folder: Path, number: int, seed: int) -> tuple[Counter[str], list[str]]:
    """How many calls came to what, and what went wrong."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    first = 0
    with tempfile.NamedTemporaryFile() as progress:
        while first < number:
            last = min(number, first + 50_000)
            progress.seek(0)
            progress.write(struct.pack("<Q", first))
            progress.flush()
            given = [framework, str(folder), str(first), str(last), str(seed), progress.name]
            command = [sys.executable, __file__, "--work", *given]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
            if done.returncode == 0:
                told = json.loads(done.stdout.splitlines()[-1])
                counts.update(told["counts"])
                wrong += [f"call {at}: {outcome}" for at, outcome in told["wrong"]]
                first = last
                continue
            (at,) = struct.unpack("<Q", Path(progress.name).read_bytes()[:8])
            wrong.append(f"call {at}: died with {done.returncode}\n{done.stderr[-2000:]}")
            counts["died"] += 1
            counts["calls before a death, not counted apart"] += at - first
            first = at + 1
    return counts, wrong


def main() -> int:
    """Show what came of the calls; the status says whether all ended well."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--work"]:
        framework, folder, first, last, seed, path = arguments[1:]
        work(framework, Path(folder), int(first), int(last), int(seed), Path(path))
    if len(arguments) < 2 or arguments[0] not in FRAMEWORKS:
        print(__doc__, file=sys.stderr)
        return 2
    framework, folder, *rest = arguments
    if "--only" in rest:
        number, seed = int(rest[rest.index("--only") + 1]), int(rest[rest.index("--only") + 2 :][0])
        caller = begin(framework, Path(folder), seed)
        function, args, given = caller.call(number)
        print(f"{function.__name__}(*{args!r}, **{given!r})", flush=True)
        print(caller.outcome(number))
        return 0
    number, seed = [*map(int, rest), *[10_000, 1][len(rest) :]]
    counts, wrong = outcomes(framework, Path(folder), number, seed)
    for text in wrong:
        print(text)
    print(f"{framework}, {number} calls with seed {seed}: {dict(counts.most_common())}")
    print(f"{number} calls, {len(wrong)} went wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
