"""Makes the first, the second, the third call of a kind to the system fail, until an operation has no more
of them.

For each operation of `OPERATIONS` and each kind of call there is a process of its own for each call that
fails: it must end in
an error of Opsmith's, or of the framework's that it is called in, or do its work without. What was in a
file before must be
whole then, the old or the new, and the operation must succeed when nothing fails any more.

The calls are those of the C library, which `failing_calls.c` stands before: it takes `cc`. Run it with the
folder of the built
libraries, and perhaps with the names of operations: `python attacks/failing_calls.py target/release`.
`--quick` fails one call
of several. `OPSMITH_PROGRAM` is the program `opsmith`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Threads of NumPy's would not be there in the processes that are forked.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

HERE = Path(__file__).parent
ROOT = HERE.parent
KINDS = {
    name: 1 << bit
    for bit, name in enumerate(
        [
            "allocate",
            "map",
            "open",
            "read",
            "write",
            "sync",
            "rename",
            "close",
            "folder",
            "mode",
            "lock",
            "remove",
            "thread",
            "library",
            "symbol",
            "status",
            "resize",
        ]
    )
}
FILES: dict[str, tuple[int, ...]] = {
    "open": (errno.EACCES, errno.EMFILE, errno.ENOSPC),
    "read": (errno.EIO,),
    "write": (errno.ENOSPC, errno.EIO),
    "sync": (errno.EIO, errno.EINVAL),
    "rename": (errno.EROFS, errno.ENOSPC),
    "close": (errno.EIO,),
    "folder": (errno.ENOSPC, errno.EROFS),
    "mode": (errno.EPERM,),
    "lock": (errno.ENOLCK,),
    "remove": (errno.EROFS,),
    "status": (errno.EACCES, errno.EIO),
    "resize": (errno.ENOSPC,),
}
"""The kinds of calls on files, and the errors that they fail with."""

MEMORY = {"allocate": (errno.ENOMEM,), "map": (errno.ENOMEM,)}
THREADS = {"thread": (errno.EAGAIN,)}
LOOKUPS = {"library": (errno.ENOENT,), "symbol": (errno.ENOENT,)}

LIMIT = 120
"""So many seconds an operation has."""

ENDS = {0: "ok", 1: "did without", 2: "an error", 3: "WRONG"}


@dataclass
class Operation:
    """Something that makes calls."""

    name: str
    act: Callable[[], None]
    """Does it, in a process of its own; a result that is not right is an `AssertionError`."""
    calls: dict[str, tuple[int, ...]]
    where: str = ""
    """The folder whose files are meant; the shared object that asks for memory and threads, or a part of
    its name."""
    least: int = 0
    """The bytes of memory from which on it may be missing."""
    errors: tuple[type[BaseException], ...] = ()
    """What it may raise besides Opsmith's errors and `MemoryError`."""
    before: Callable[[], None] | None = None
    """Puts there what is to be there before."""
    check: Callable[[bool], None] | None = None
    """Looks at what is there afterwards, in a process of its own; it hears whether there was an error."""
    most: int = 400
    """As many calls are made to fail one by one."""


@functools.cache
def shim() -> Any:
    """What stands before the C library in this process."""
    return ctypes.CDLL(os.environ["LD_PRELOAD"].split(":")[0])


def in_child(body: Callable[[], int]) -> str:
    """How a process ends that does this, whose status is that of `ENDS`."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 3
        try:
            signal.alarm(LIMIT)
            status = body()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return "HANGS" if name == "SIGALRM" else f"DIED of {name}"
    return ENDS.get(os.WEXITSTATUS(status), f"DIED with status {os.WEXITSTATUS(status)}")


def attempt(operation: Operation, kind: str, number: int, once: bool, code: int) -> str:
    """What becomes of the operation where this call fails: `ok` where there is none."""
    import opsmith

    def body() -> int:
        faults = shim()
        faults.faults_disarm.restype = ctypes.c_long
        where = ctypes.create_string_buffer(operation.where.encode())
        arm = (KINDS[kind], ctypes.c_long(number), int(once), code, ctypes.c_size_t(operation.least), where)
        failed: BaseException | None = None
        faults.faults_arm(*arm)
        try:
            operation.act()
        except BaseException as error:
            failed = error
        reached = faults.faults_disarm() >= number
        if failed is None:
            return 1 if reached else 0
        is_ours = isinstance(failed, (opsmith.Error, *operation.errors)) and str(failed) != ""
        if reached and (is_ours or isinstance(failed, MemoryError)):
            return 2
        traceback.print_exception(failed)
        return 3

    return in_child(body)


def succeeds(body: Callable[[], None]) -> str:
    """How this ends where nothing fails."""

    def run() -> int:
        body()
        return 0

    return in_child(run)


def walk(operation: Operation, kind: str, quick: bool) -> tuple[Counter[str], list[str]]:
    """How often the operation ended how, and what was wrong."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for code in operation.calls[kind][:1] if quick else operation.calls[kind]:
        for once in (True, False):
            number, step = 1, 1
            while number <= operation.most:
                if operation.before is not None:
                    operation.before()
                end = attempt(operation, kind, number, once, code)
                if end == "ok":
                    break
                counts[end] += 1
                which = f"{kind} {number}{'' if once else ' and all later'}"
                told = f"{operation.name}: {which}: {errno.errorcode[code]}"
                if end not in ("did without", "an error"):
                    wrong.append(f"{told}: {end}")
                then = [("the next one", operation.act)] if number % 8 == 1 else []
                if operation.check is not None:
                    looks = functools.partial(operation.check, end == "an error")
                    then.insert(0, ("what is there", looks))
                for what, body in then:
                    if (came := succeeds(body)) != "ok":
                        wrong.append(f"{told}: {what}: {came}")
                step += quick and number > 8
                number += step
    return counts, wrong


def graphs(folder: Path) -> Iterator[Operation]:
    """Graphs and checkpoints, written over those that were there, and read."""
    import numpy as np
    import opsmith

    versions = []
    for value in (1, 2):
        graph = opsmith.Graph()
        graph.constant(np.full(50_000, value, "float32"), name="constant")
        versions.append(graph)
    path = folder / "graph"
    contents = []
    for graph in reversed(versions):
        graph.save(path)
        contents.insert(0, path.read_bytes())

    def is_old(path: Path, contents: list[bytes], was_error: bool) -> None:
        assert path.read_bytes() == contents[not was_error]
        left = {file.name for file in folder.iterdir()} - {"graph", "checkpoint"}
        assert all(name.startswith(".") for name in left), left

    def load_graph() -> None:
        graph = opsmith.Graph.load(path)
        found = opsmith.Session(graph, threads=1).run(graph.output("constant"))
        assert found.tolist() in [[1.0] * 50_000, [2.0] * 50_000], found

    yield Operation(
        "save a graph",
        lambda: versions[1].save(path),
        FILES,
        str(folder),
        before=lambda: path.write_bytes(contents[0]) and None,
        check=functools.partial(is_old, path, contents),
    )
    yield Operation("load a graph", load_graph, FILES, str(folder))

    graph = opsmith.Graph()
    variables = [graph.variable(np.zeros(20_000, "float32"), name=name) for name in "ab"]
    session = opsmith.Session(graph, threads=1)
    session.initialize()
    steps = [variable.assign(variable + 1.0) for variable in variables]
    checkpoint = folder / "checkpoint"
    session.save(checkpoint)
    saved = [checkpoint.read_bytes()]

    def save() -> None:
        session.run(steps)
        session.save(checkpoint)

    assert succeeds(save) == "ok"
    saved.append(checkpoint.read_bytes())

    def restore() -> None:
        before = session.run(variables)
        try:
            session.restore(checkpoint)
        except opsmith.Error:
            assert np.array_equal(before, session.run(variables)), "a failed restore has changed variables"
            raise
        found = {value for array in session.run(variables) for value in set(array.tolist())}
        assert found in ({0.0}, {1.0}), found

    yield Operation(
        "save a checkpoint",
        save,
        FILES,
        str(folder),
        before=lambda: checkpoint.write_bytes(saved[0]) and None,
        check=functools.partial(is_old, checkpoint, saved),
    )
    yield Operation("restore a checkpoint", restore, FILES, str(folder))


def libraries(folder: Path, built: Path) -> Iterator[Operation]:
    """A library opened and called for the first time."""
    import numpy as np
    import opsmith

    path = shutil.copy(built / "libdistances.so", folder)
    x = np.ones((4, 3))

    def load() -> None:
        assert opsmith.load(path).pairwise_manhattan_distance(x, x).tolist() == [[0.0] * 4] * 4

    yield Operation("load a library", load, FILES, str(folder))
    yield Operation("load a library: lookups", load, LOOKUPS, "libdistances")
    yield Operation("load a library: memory", load, MEMORY, "", 1 << 16)
    standard = opsmith._native.standard()
    python = "libpython" if "libpython" in Path("/proc/self/maps").read_text() else "bin/python"

    def describe() -> None:
        assert len(standard.describe()) > 1 << 15

    memory = {"allocate": MEMORY["allocate"]}
    yield Operation("describe the standard operators: Python's memory", describe, memory, python, 1 << 15)


def just_in_time(folder: Path, built: Path) -> Iterator[Operation]:
    """A build in an empty cache, and one that is found in it. A program that copies a library stands for
    the compiler, and
    what it needs is not compiled."""
    from opsmith import jit
    from opsmith.jit import _dependencies, _toolchain

    cache, compiler = folder / "cache", folder / "compiler"
    compiler.write_text(
        "#!/bin/sh\n"
        'for part; do case "$part" in --emit=*) to=${part#--emit=link=};; esac; done\n'
        f'cp {built / "libdistances.so"} "${{to%%,*}}" && echo "${{to%%,*}}: " > "${{to##*dep-info=}}"\n'
    )
    compiler.chmod(0o700)
    source = '#[op(shape = "(n)->(n)")]\nfn copied(x: ArrayView1<f64>, y: ArrayViewMut1<f64>) {}\n'
    os.environ["OPSMITH_CACHE_DIR"] = str(cache)
    toolchain = _toolchain.Toolchain(str(compiler), "cargo", "rustc 1.90.0\nhost: x86_64-unknown-linux-gnu")
    _toolchain.find = lambda cache: toolchain
    _dependencies.compiled = lambda *_, **__: _dependencies.Compiled({}, [])

    def forget() -> None:
        shutil.rmtree(cache / "libraries", ignore_errors=True)

    def found() -> None:
        library = jit.load_inline("distances", source)
        assert library.pairwise_manhattan_distance([[1.0]], [[3.0]]) == [[2.0]]

    def check(_: bool) -> None:
        assert not [
            place
            for place in (cache / "libraries").glob("*")
            if not (place / "entry.json").exists()
            or (place / "libdistances.so").read_bytes() != (built / "libdistances.so").read_bytes()
        ]

    yield Operation("build just in time", found, FILES, str(cache), before=forget, check=check)
    yield Operation("find what was built", found, FILES, str(cache), check=check)


def wheels(folder: Path) -> Iterator[Operation]:
    """The wheel of a crate that Cargo has built, over the one that was there."""
    import io
    import zipfile

    import opsmith
    from opsmith.build.__main__ import main

    crate = ROOT / "examples" / "distances"
    os.environ |= {"CARGO_TARGET_DIR": str(ROOT / "target"), "CARGO_NET_OFFLINE": "true"}
    out = folder / "wheels"

    def build() -> None:
        said = io.StringIO()
        arguments = ["--manifest-path", str(crate / "Cargo.toml"), "--out", str(out), "--release"]
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            status = main(arguments)
        if status != 0:
            assert "error: " in said.getvalue() and "Traceback" not in said.getvalue(), said.getvalue()
            raise opsmith.Error(said.getvalue())

    def check(_: bool) -> None:
        for path in out.iterdir():
            if not path.name.startswith("."):
                with zipfile.ZipFile(path) as archive:
                    assert archive.testzip() is None

    # It loads the library that it has built.
    assert succeeds(build) == "ok"
    yield Operation("build a wheel", build, FILES, str(out), check=check)


def calls(built: Path) -> Iterator[Operation]:
    """Calls in NumPy and in sessions, of all kinds of operators; memory is missing from some kilobytes on."""
    sys.path.insert(0, str(HERE))
    import exhausted_memory as memory

    for _, (function, inputs, attributes) in memory.cases(built, memory.SMALL):
        function(*inputs, **attributes)
    for name, (function, inputs, attributes) in memory.cases(built, memory.QUICK_LARGE):
        if "mat_mul" in name or name == "lltm.lltm":
            # Whose packed factors' memory is asked for once, to see whether there is any, and then by a
            # crate that ends the
            # process without it.
            continue
        run = functools.partial(function, *inputs, **attributes)
        yield Operation(f"call: {name}", run, MEMORY, "", LEAST, most=40)


LEAST = int(os.environ.get("OPSMITH_FAULTS_LEAST", 1 << 15))
"""Memory of at least so many bytes may be missing in calls."""


def threads(built: Path) -> Iterator[Operation]:
    """The first loop of a process, whose threads are not started yet; a session, and a call in a library
    that is opened."""
    import numpy as np
    import opsmith

    os.environ["OPSMITH_NUM_THREADS"] = "4"
    library = opsmith.load(built / "libdistances.so")
    assert opsmith.ops.neg(1.0) == -1.0
    x = np.arange(1 << 18, dtype="float32").reshape(256, -1)

    def loop() -> None:
        assert np.array_equal(opsmith.ops.exp(x[:, :2]), opsmith.ops.exp(x[:, :2].copy()))
        assert opsmith.ops.neg(x).sum() == -x.sum()
        rows = x[:, :64].astype("float64")
        assert np.array_equal(library.pairwise_manhattan_distance(rows, rows).diagonal(), np.zeros(256))

    def session() -> None:
        graph = opsmith.Graph()
        inputs = [graph.constant(x + shift) for shift in range(4)]
        total = sum(opsmith.ops.neg(each) for each in inputs[1:]) + inputs[0]
        found = opsmith.Session(graph, simplify=False).run(total)
        assert np.array_equal(found, x - (x + 1) - (x + 2) - (x + 3))

    yield Operation("first loop of a process", loop, THREADS | MEMORY, "", 1 << 16)
    yield Operation("session with threads", session, THREADS | MEMORY, "", 1 << 16)


def cuda(folder: Path) -> Iterator[Operation]:
    """A session on a card, where there is a driver that has none; NVRTC, where it is installed."""
    import numpy as np
    import opsmith

    names = re.findall(r'c"(cu\w+)"', (ROOT / "crates/opsmith-cuda/src/driver.rs").read_text())
    source = "".join(f"int {name}(void) {{ return {0 if name == 'cuInit' else 100}; }}\n" for name in names)
    (folder / "driver.c").write_text(source)
    library = folder / "libcuda.so.1"
    named = "-Wl,-soname,libcuda.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", named, "-o", library, folder / "driver.c"], check=True)
    ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)

    def session() -> None:
        graph = opsmith.Graph()
        with graph.device("cuda:0"):
            node = opsmith.ops.neg(graph.constant(np.ones(3, "float32")))
        try:
            opsmith.Session(graph).run(node)
        except opsmith.Error as error:
            # What the driver says, all of whose functions are there.
            if "cuDeviceGetCount: " not in str(error) and "cuDriverGetVersion: " not in str(error):
                raise

    yield Operation("a session on a card", session, {"symbol": LOOKUPS["symbol"]}, "_native")


def torch(built: Path) -> Iterator[Operation]:
    """PyTorch: the library is opened, and called for the first time."""
    import numpy as np
    import opsmith
    import torch

    torch.set_num_threads(1)
    x = torch.ones(64, 300, dtype=torch.float64)

    def first() -> None:
        library = opsmith.load(built / "libdistances.so")
        found = library.pairwise_manhattan_distance(x, x)
        assert type(found) is torch.Tensor and np.array_equal(found.numpy(), np.zeros((64, 64)))

    errors = (RuntimeError,)
    yield Operation("PyTorch: lookups", first, LOOKUPS, "libdistances", errors=errors)
    yield Operation("PyTorch: memory", first, MEMORY, "libdistances", LEAST, errors=errors)
    yield Operation("PyTorch: its own memory", first, MEMORY, "libc10", LEAST, errors=errors)


def tensorflow(built: Path) -> Iterator[Operation]:
    """TensorFlow: the same."""
    import numpy as np
    import opsmith
    import tensorflow as tf

    def first() -> None:
        library = opsmith.load(built / "libdistances.so")
        x = tf.ones([64, 300], tf.float64)
        found = library.pairwise_manhattan_distance(x, x)
        assert isinstance(found, tf.Tensor) and np.array_equal(found, np.zeros((64, 64)))

    errors = (tf.errors.OpError, RuntimeError)
    yield Operation("TensorFlow: lookups", first, LOOKUPS, "libdistances", errors=errors)
    yield Operation("TensorFlow: memory", first, MEMORY, "libdistances", LEAST, errors=errors)


def jax(built: Path) -> Iterator[Operation]:
    """JAX: the same, with the just-in-time compiler."""
    import jax
    import numpy as np
    import opsmith

    def first() -> None:
        library = opsmith.load(built / "libdistances.so")
        x = jax.numpy.ones((64, 300), "float32")
        for function in (library.pairwise_manhattan_distance, jax.jit(library.pairwise_manhattan_distance)):
            found = function(x, x)
            assert isinstance(found, jax.Array) and np.array_equal(found, np.zeros((64, 64)))

    errors = (RuntimeError,)
    yield Operation("JAX: lookups", first, LOOKUPS, "libdistances", errors=errors)
    yield Operation("JAX: memory", first, MEMORY, "libdistances", LEAST, errors=errors)


def disks(folder: Path, built: Path) -> int:
    """What writes, on a disk that is full, read-only and gone; gives how much was wrong. Only root can
    mount one."""
    import opsmith

    disk, wrong, count = folder / "disk", 0, 0
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        print("disks: none can be mounted here")
        return 0

    def refused(act: Callable[[], None]) -> int:
        try:
            act()
        except opsmith.Error:
            return 2
        return 3

    def all_refused(state: str) -> None:
        nonlocal wrong, count
        for operation in writers:
            end, count = in_child(functools.partial(refused, operation.act)), count + 1
            is_kept = state == "gone" or all(path.read_bytes() == content for path, content in before.items())
            if end != "an error" or not is_kept:
                wrong += 1
                told = "" if is_kept else ", and what was there is lost"
                print(f"WRONG {operation.name} on a disk that is {state}: {end}{told}", flush=True)

    try:
        made = [*graphs(disk), *just_in_time(disk, built), *wheels(disk)]
        writers = [each for each in made if each.name.startswith(("save", "build"))]
        for operation in writers:
            assert succeeds(operation.act) == "ok", operation.name
        shutil.rmtree(disk / "cache")
        before = {path: path.read_bytes() for path in disk.rglob("*") if path.is_file()}
        with contextlib.suppress(OSError), open(disk / "full", "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        all_refused("full")
        (disk / "full").unlink()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        all_refused("read-only")
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
    disk.rmdir()
    disk.write_text("")
    all_refused("gone")
    print(f"disks that are full, read-only and gone: {count} failed: {count - wrong} an error")
    return wrong


OPERATIONS: dict[str, Callable[[Path, Path], Any]] = {
    "graphs": lambda folder, built: graphs(folder),
    "libraries": libraries,
    "jit": just_in_time,
    "wheels": lambda folder, built: wheels(folder),
    "disks": disks,
    "threads": lambda folder, built: threads(built),
    "cuda": lambda folder, built: cuda(folder),
    "calls": lambda folder, built: calls(built),
    "torch": lambda folder, built: torch(built),
    "tensorflow": lambda folder, built: tensorflow(built),
    "jax": lambda folder, built: jax(built),
}


def group(name: str, folder: Path, built: Path, quick: bool) -> int:
    """Walk through the operations of a group, and print a line for each, those of calls as one; gives how
    much was wrong."""
    total: dict[tuple[str, str], Counter[str]] = {}
    wrong = 0
    if name == "disks":
        return disks(folder, built)
    for operation in OPERATIONS[name](folder, built):
        for kind in operation.calls:
            counts, found = walk(operation, kind, quick)
            wrong += len(found)
            for line in found:
                print(f"WRONG {line}", flush=True)
            row = operation.name.partition(":")[0] if name == "calls" else operation.name
            total.setdefault((row, kind), Counter()).update(counts)
    for (row, kind), counts in total.items():
        if counts:
            ends = ", ".join(f"{count} {end}" for end, count in sorted(counts.items()))
            print(f"{row}: {kind}: {counts.total()} failed: {ends}", flush=True)
    return wrong


def main() -> int:
    """Run each group in a process that the shim was loaded into; the status says whether anything was
    wrong."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--quick"]
    built, quick = Path(arguments[0]).absolute(), "--quick" in sys.argv
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "OPSMITH_FAULTS_GROUP" in os.environ:
            return group(os.environ["OPSMITH_FAULTS_GROUP"], folder, built, quick) > 0
        preloaded = folder / "failing_calls.so"
        source = HERE / "failing_calls.c"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", preloaded, source], check=True)
        wrong = 0
        for wanted in arguments[1:] or OPERATIONS:
            # What Rust says of memory that is missing takes memory.
            environment = os.environ | {"RUST_BACKTRACE": "0", "PYTHONMALLOC": "malloc"}
            environment |= {"LD_PRELOAD": str(preloaded), "OPSMITH_FAULTS_GROUP": wanted}
            command = [sys.executable, __file__, str(built), *(["--quick"] if quick else [])]
            status = subprocess.run(command, env=environment, check=False).returncode
            if status != 0:
                wrong += 1
                print(f"WRONG {wanted}: status {status}", flush=True)
    print(f"{wrong} groups with something wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
