"""Kills whoever writes, at any moment: builds, wheels, just-in-time builds, graphs and checkpoints.

Each writer is a process of its own that gets SIGKILL after a random time, alone or with all that it has
started. What lies
in the place that it writes to must then be whole, the old or the new; and the next one must do its work,
with no lock left.

Run it with how many are to be killed, and a seed: `python attacks/killed_writers.py 1000 1`.
`OPSMITH_PROGRAM` is the program
`opsmith`, `OPSMITH_LIB_DIR` the folder of the built libraries, beside which crates are built.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

# Threads of NumPy's would not be there in the processes that are forked.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import opsmith
from opsmith import jit
from opsmith.build.__main__ import main as build_wheel
from opsmith.jit._cache import digest_of_file

ROOT = Path(__file__).parents[1]
LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", ROOT / "target" / "release"))
PROGRAM = Path(os.environ.get("OPSMITH_PROGRAM", ROOT / "target" / "debug" / "opsmith"))
TARGET = LIBRARIES.parent

LIMIT = 300.0
"""So many seconds a writer that is not killed has; a lock that was left would be waited for."""

VALUES = 1 << 17
"""The numbers of a graph's constant and of a variable: a file takes as long to write as there are moments
to kill."""

OP = """
/// Adds VALUE to each number.
#[op(shape = "(n)->(n)")]
fn shifted(x: ArrayView1<f64>, mut y: ArrayViewMut1<f64>) {
    azip!((y in &mut y, &x in &x) *y = x + VALUE.0);
}
"""
CRATE = "use opsmith::prelude::*;\n" + OP + 'opsmith::library! { name = "killed_ops", ops = [shifted] }\n'
MANIFEST = """\
[package]
name = "killed_ops"
version = "0.1.0"
edition = "2024"

[lib]
crate-type = ["cdylib"]

[dependencies]
opsmith = { path = "FOLDER" }

[workspace]
"""


class Wrong(Exception):
    """What must not be."""


@dataclass
class Writer:
    """What is killed."""

    name: str
    write: Callable[[int], None]
    """Writes a version, in a process of its own, in which it may do what it likes; perhaps again and
    again."""
    check: Callable[[], set[int] | None]
    """The versions that are there, each whole; none where there is nothing yet. Else `Wrong`."""
    parts: int
    """Of a thousand kills, so many are its own."""
    every: int
    """After so many kills one is let to its end."""
    longest: float = 0.0
    """So many seconds it took undisturbed."""
    counts: Counter[str] = field(default_factory=Counter)


def forked(body: Callable[[], None], output: Path) -> int:
    """Start this in a process, and a group, of its own."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setpgid(0, 0)
            told = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(told, 1)
            os.dup2(told, 2)
            body()
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
        finally:
            os._exit(status)
    # Whichever of the two comes first: it is killed by that group.
    with contextlib.suppress(OSError):
        os.setpgid(child, child)
    return child


def ended(child: int, limit: float) -> int | None:
    """The status of the process, none where it has not ended in time."""
    deadline = time.monotonic() + limit
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            return None
        time.sleep(min(0.001, limit / 10))


def finish(writer: Writer, version: int, output: Path) -> float:
    """Let it do its work; gives how long that took."""
    began = time.monotonic()
    child = forked(lambda: writer.write(version), output)
    status = ended(child, LIMIT)
    if status is None:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise Wrong(f"the next one has not ended in {LIMIT:.0f} s:\n{output.read_text()[-2000:]}")
    if status != 0:
        raise Wrong(f"the next one ended with status {status}:\n{output.read_text()[-2000:]}")
    took = time.monotonic() - began
    found = writer.check()
    if found is None or version not in found:
        raise Wrong(f"the next one has written version {version}, but there is {found}")
    return took


def kill(writer: Writer, version: int, moment: float, whole_group: bool, output: Path) -> None:
    """Kill it at that moment, and look at what is there."""
    child = forked(lambda: writer.write(version), output)
    status = ended(child, moment)
    if status is None:
        (os.killpg if whole_group else os.kill)(child, signal.SIGKILL)
        os.waitpid(child, 0)
        writer.counts["killed"] += 1
    elif status == 0:
        writer.counts["had ended"] += 1
    else:
        raise Wrong(f"the next one ended with status {status}:\n{output.read_text()[-2000:]}")
    found = writer.check()
    writer.counts["nothing there" if found is None else "new" if version in found else "old"] += 1


def leftovers(folder: Path, known: set[str]) -> None:
    """What a killed writer has left has a hidden name; it is removed here."""
    for path in folder.iterdir():
        if path.name in known:
            continue
        if not path.name.startswith("."):
            raise Wrong(f"{path} was left")
        path.unlink()


def graph_writer(folder: Path) -> Writer:
    """Graphs, one after the other."""
    path = folder / "graph"
    folder.mkdir()
    graphs = []
    for version in range(3):
        graph = opsmith.Graph()
        graph.constant(np.full(VALUES, version, "float32"), name="constant") * 2.0
        graphs.append(graph)

    def write(version: int) -> None:
        graphs[version].save(path)

    def check() -> set[int]:
        leftovers(folder, {"graph"})
        graph = opsmith.Graph.load(path)
        found = set(opsmith.Session(graph).run(graph.output("constant")).tolist())
        if len(found) != 1:
            raise Wrong(f"a mixture of {found}")
        return found

    return Writer("graph", write, check, 300, 10)


def checkpoint_writer(folder: Path) -> Writer:
    """The values of variables."""
    path = folder / "checkpoint"
    folder.mkdir()
    graph = opsmith.Graph()
    variables = [graph.variable(np.zeros(VALUES, "float32"), name=name) for name in "ab"]
    steps = [
        [variable.assign(np.full(VALUES, version, "float32")) for variable in variables]
        for version in range(3)
    ]
    # On one thread: others are not there in the processes that are forked.
    session, reader = (opsmith.Session(graph, threads=1) for _ in range(2))
    session.initialize()

    def write(version: int) -> None:
        session.run(steps[version])
        session.save(path)

    def check() -> set[int]:
        leftovers(folder, {"checkpoint"})
        reader.restore(path)
        found = {value for array in reader.run(variables) for value in set(array.tolist())}
        if len(found) != 1:
            raise Wrong(f"a mixture of {found}")
        return found

    return Writer("checkpoint", write, check, 300, 10)


def added(file: Path) -> int:
    """What the op of a library adds, as a process says that loads it; for `Wrong` where it cannot."""
    code = "import sys, opsmith; print(opsmith.load(sys.argv[1]).shifted([0.0])[0])"
    done = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True)
    if done.returncode != 0:
        raise Wrong(f"{file} cannot be used: {done.stderr}")
    return int(float(done.stdout))


def jit_writer(cache: Path) -> Writer:
    """Libraries in the cache of just-in-time builds, which takes its dependencies from the one of the
    tests."""
    cache.mkdir()
    for part in ["dependencies", "crates"]:
        (TARGET / "tests" / "jit" / part).mkdir(parents=True, exist_ok=True)
        (cache / part).symlink_to(TARGET / "tests" / "jit" / part)

    def write(version: int) -> None:
        os.environ["OPSMITH_CACHE_DIR"] = str(cache)
        library = jit.load_inline("killed", OP.replace("VALUE", str(version)))
        if library.shifted(np.zeros(1))[0] != version:
            raise Wrong("another library is in its place")

    def check() -> set[int] | None:
        """Each library that is there has its checksum. They are removed, so that the next one is built."""
        found: set[int] | None = None
        for place in (cache / "libraries").glob("*"):
            try:
                entry = json.loads((place / "entry.json").read_text())
            except (OSError, ValueError) as error:
                raise Wrong(f"{place} is not whole: {error}") from error
            if digest_of_file(place / "libkilled.so") != entry["checksum"]:
                raise Wrong(f"{place} has another checksum")
            found = (found or set()) | {added(place / "libkilled.so")}
            shutil.rmtree(place)
        return found

    return Writer("just-in-time build", write, check, 200, 10)


def whole(wheel: Path) -> bytes:
    """The content of a wheel, all of whose files are as it lists them; else `Wrong`."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            (record,) = (name for name in archive.namelist() if name.endswith("/RECORD"))
            for line in archive.read(record).decode().splitlines():
                name, digest, _ = line.rsplit(",", 2)
                said = base64.urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest()).decode()
                if digest not in ("", "sha256=" + said.rstrip("=")):
                    raise Wrong(f"{wheel}: {name} is another")
    except zipfile.BadZipFile as error:
        raise Wrong(f"{wheel}: {error}") from error
    return wheel.read_bytes()


def make_crate(folder: Path) -> Path:
    """A crate of one op, with the versions that the repository has of others."""
    (folder / "src").mkdir(parents=True)
    (folder / "Cargo.toml").write_text(MANIFEST.replace("FOLDER", str(ROOT / "crates" / "opsmith")))
    (folder / "src" / "lib.rs").write_text(CRATE.replace("VALUE", "0"))
    shutil.copy(ROOT / "Cargo.lock", folder)
    os.environ |= {"CARGO_TARGET_DIR": str(TARGET), "CARGO_NET_OFFLINE": "true"}
    return folder


def wheel_writer(crate: Path, out: Path) -> Writer:
    """Wheels, which differ by the date that their files have."""
    out.mkdir()

    def write(version: int) -> None:
        os.environ["SOURCE_DATE_EPOCH"] = str(1_000_000_000 + 86_400 * version)
        status = build_wheel(["--manifest-path", str(crate / "Cargo.toml"), "--out", str(out), "--release"])
        if status != 0:
            raise Wrong(f"status {status}")

    def check() -> set[int] | None:
        wheels = list(out.glob("*.whl"))
        leftovers(out, {wheel.name for wheel in wheels})
        if not wheels:
            return None
        (wheel,) = wheels
        with zipfile.ZipFile(wheel) as archive:
            whole(wheel)
            day = archive.infolist()[0].date_time[2]
        return {day - time.gmtime(1_000_000_000).tm_mday}

    return Writer("wheel", write, check, 100, 10)


def build_writer(crate: Path) -> Writer:
    """Libraries where Cargo puts them."""
    file = TARGET / "release" / "libkilled_ops.so"

    def write(version: int) -> None:
        (crate / "src" / "lib.rs").write_text(CRATE.replace("VALUE", str(version)))
        command = [PROGRAM, "build", "--release", "--manifest-path", crate / "Cargo.toml"]
        # It takes this process's place, and is what is killed.
        os.execv(PROGRAM, [str(part) for part in command])

    def check() -> set[int] | None:
        return {added(file)} if file.exists() else None

    return Writer("build", write, check, 100, 10)


def attack(writer: Writer, number: int, seed: int, folder: Path) -> int:
    """Kill so many; gives how often something was wrong."""
    rng, output, wrong = random.Random(f"{seed} {writer.name}"), folder / f"{writer.name}.txt", 0
    version = 1
    writer.longest = min(finish(writer, version, output) for version in (1, 2, 1))
    turn = 0
    while writer.counts["killed"] < number and wrong <= number:
        version, turn = version % 2 + 1, turn + 1
        try:
            # A little longer than it takes: all moments, and the end.
            moment = rng.uniform(0.0, 1.1) * writer.longest
            kill(writer, version, moment, rng.random() < 0.5, output)
            if turn % writer.every == 0:
                version = version % 2 + 1
                finish(writer, version, output)
                writer.counts["let to its end"] += 1
        except (Wrong, opsmith.Error) as error:
            wrong += 1
            print(f"WRONG {writer.name}, turn {turn}: {error}", flush=True)
    finish(writer, version % 2 + 1, output)
    counts = ", ".join(f"{count} {what}" for what, count in writer.counts.items())
    print(f"{writer.name}: {counts}, in up to {writer.longest:.3f} s", flush=True)
    return wrong


def main() -> int:
    """Kill as many writers of each kind as belong to it; the status says whether anything was wrong."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    wanted = sys.argv[3:]
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        crate = make_crate(folder / "killed_ops")
        writers = [
            graph_writer(folder / "graphs"),
            checkpoint_writer(folder / "checkpoints"),
            jit_writer(folder / "cache"),
            wheel_writer(crate, folder / "wheels"),
            build_writer(crate),
        ]
        try:
            for writer in writers:
                if not wanted or writer.name in wanted:
                    wrong += attack(writer, max(1, number * writer.parts // 1000), seed, folder)
        finally:
            for left in (TARGET / "release").glob("libkilled_ops.*"):
                left.unlink()
    print(f"{wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
