"""The cache of just-in-time builds: whose it is, what it keeps, and what is made again."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import opsmith
import pytest
from conftest import (
    CACHE,
    added,
    child,
    child_command,
    failure,
    source,
)
from opsmith import _pickling, jit
from opsmith.jit import _crates, _dependencies, _toolchain

pytestmark = pytest.mark.usefixtures("cache")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else, who may not write")
def test_a_cache_that_is_read_only_serves_what_it_has(name: str, cache: Path) -> None:
    """Or, for one that is empty, says what to do."""
    library = jit.load_inline(name, source(7))
    # The compiler may be where only root can see it.
    drop = "import os, numpy; from opsmith.jit import _toolchain\n"
    drop += "found = _toolchain.find(jit.cache_folder()); _toolchain.find = lambda cache: found\n"
    drop += "os.setuid(65534)\n"
    # As whoever shares a cache opens it to others.
    subprocess.run(["chmod", "-R", "go+rX", f"{cache}/"], check=True)
    for folder in Path(library.__file__).parents:
        if folder.stat().st_mode & 0o005 != 0o005:
            pytest.skip(f"{folder} is closed to others")
    done = child(drop + f"print(jit.load_inline({name!r}, source(7)).__file__)")
    assert done.stdout.strip() == library.__file__, done.stderr
    said = failure(drop + f"jit.load_inline({name!r}, source(8))")
    assert "cannot be used: Permission denied" in said
    assert "set OPSMITH_CACHE_DIR" in said


def refused(path: Path, name: str, value: float) -> str:
    """What is said of the path, from which no code is taken; the source is that of `value`."""
    with pytest.raises(opsmith.Error, match=re.escape(f"{path}: ")) as raised:
        jit.load_inline(name, source(value))
    assert raised.value.code == "PermissionDenied"
    assert "set OPSMITH_CACHE_DIR to" in str(raised.value)
    return str(raised.value)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A new folder that others get at; those of pytest lie in one that is closed to them."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def test_a_cache_that_others_can_write_to_is_refused(
    name: str, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a compiler is started that its files name, or a library opened."""
    cache = open_folder / "shared" / "cache"
    cache.mkdir(parents=True)
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(cache))
    cache.chmod(0o777)
    assert "(mode 0777)" in refused(cache, name, 1)
    cache.chmod(0o700)
    # Whoever can write to the folder above can put another in its place.
    cache.parent.chmod(0o777)
    assert "(mode 0777)" in refused(cache.parent, name, 1)
    cache.parent.chmod(0o755)
    cache.chmod(0o755)
    for folder in ["toolchains", "libraries", "dependencies"]:
        (cache / folder).mkdir()
        (cache / folder).chmod(0o777)
        refused(cache / folder, name, 1)
        (cache / folder).chmod(0o755)
    planted = _dependencies.folder(cache, _toolchain.find(cache), _crates.find(cache))
    (planted / "target").mkdir(parents=True)
    (planted / "target" / "libplanted.so").touch()
    (planted / "target" / "libplanted.so").chmod(0o666)
    assert "(mode 0666)" in refused(planted / "target" / "libplanted.so", name, 1)


def test_a_pickled_function_is_not_loaded_from_where_others_write(name: str, open_folder: Path) -> None:
    copied = shutil.copy(jit.load_inline(name, source(4)).__file__, open_folder)
    os.chmod(copied, 0o666)
    with pytest.raises(opsmith.Error, match=r"cannot unpickle .*\(mode 0666\)") as raised:
        _pickling.restored(copied, name, "0.0.0", "", built=True)
    assert raised.value.code == "PermissionDenied"


def test_programs_are_started_where_the_umask_cannot_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> str:
        raise FileNotFoundError("/proc/self/status")

    monkeypatch.setattr(Path, "read_text", missing)
    assert _toolchain.umask() == 0o022


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_others_put_into_a_cache_is_refused(name: str, cache: Path, tmp_path: Path) -> None:
    file = Path(jit.load_inline(name, source(2)).__file__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("opsmith.jit._load._built", {})
        patch.setattr("opsmith.jit._load._by_key", {})
        patch.setattr("opsmith.jit._load._names", set())
        inputs = max((cache / "inputs").iterdir(), key=lambda path: path.stat().st_mtime_ns)
        # Others than the one that is asked now may have been kept.
        shutil.rmtree(cache / "toolchains")
        _toolchain.find(cache)
        (toolchain,) = (cache / "toolchains").iterdir()
        for path in [file, file.with_name("entry.json"), inputs, toolchain]:
            os.chown(path, 65534, -1)
            assert "belongs to user 65534" in refused(path, name, 2)
            os.chown(path, 0, -1)
        # A link to what somebody else has, under a name that is ours.
        theirs = tmp_path / "lib.so"
        shutil.copy(file, theirs)
        os.chown(theirs, 65534, -1)
        own = file.read_bytes()
        file.unlink()
        file.symlink_to(theirs)
        refused(theirs, name, 2)
        file.unlink()
        file.write_bytes(own)


def test_what_is_made_is_this_users_alone(name: str, cache: Path) -> None:
    """Whatever modes new files have."""
    made = f"import os; os.umask(0); jit.load_inline({name!r}, source(3))"
    done = child(made)
    assert done.returncode == 0, done.stderr
    for part in ["libraries", "inputs", "sources", "toolchains", "building"]:
        for path in [cache / part, *(cache / part).rglob("*")]:
            mode = path.stat().st_mode
            assert mode & 0o022 == 0, path
            assert not path.is_dir() or mode & 0o777 in (0o700, 0o755), (path, oct(mode))
    assert next((cache / "libraries").glob(f"{name}-*")).stat().st_mode & 0o777 == 0o700


def test_a_cache_that_is_a_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = failure(f"jit.load_inline({name!r}, source(9))", OPSMITH_CACHE_DIR=str(tmp_path / "file"))
    assert "set OPSMITH_CACHE_DIR to a folder that can be written to" in said


def test_the_build_after_a_killed_one_succeeds(name: str, cache: Path) -> None:
    process = subprocess.Popen(child_command(f"jit.load_inline({name!r}, source(10))"))
    deadline = time.monotonic() + 60
    while not list((cache / "building").glob("*/lib.rs")) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list((cache / "building").glob("*/lib.rs")), "killed while it compiled"
    assert added(jit.load_inline(name, source(10))) == 10


def test_two_processes_at_once_build_it_once(name: str) -> None:
    command = child_command(f"print(jit.load_inline({name!r}, source(11), verbose=True).__file__)")
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]
    told = [process.communicate() for process in processes]
    assert len({out for out, _ in told}) == 1
    assert sum("--crate-type cdylib" in err for _, err in told) == 1


@pytest.mark.parametrize("damage", ["truncated", "changed", "no entry"])
def test_a_corrupt_entry_is_built_again(name: str, damage: str) -> None:
    code = f"from numpy import zeros; library = jit.load_inline({name!r}, source(12))\n"
    code += "print(library.shifted(zeros(1)), library.__file__)"
    shown = child(code).stdout
    file = Path(shown.split(" ", 1)[1].strip())
    content = file.read_bytes()
    match damage:
        case "truncated":
            file.write_bytes(content[: len(content) // 2])
        case "changed":
            file.write_bytes(content[:-100] + b"\0" * 50 + content[-50:])
        case "no entry":
            (file.parent / "entry.json").write_text("{")
    assert child(code).stdout == shown


def test_broken_dependencies_are_compiled_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that the compiler refuses, though it has the size it should have."""
    calls = []

    def compiled(*arguments: object) -> _dependencies.Compiled:
        calls.append(arguments[-1])
        found = ours(*arguments[:-1])  # type: ignore[arg-type]
        if arguments[-1]:
            return found
        return _dependencies.Compiled({"opsmith": str(broken)}, found.search)

    ours = _dependencies.compiled
    broken = CACHE / "libopsmith-broken.rlib"
    broken.write_bytes(b"!<arch>\n")
    monkeypatch.setattr(_dependencies, "compiled", compiled)
    assert added(jit.load_inline(name, source(13))) == 13
    assert calls == [False, True]
    broken.unlink()


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OPSMITH_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jit.cache_folder() == tmp_path / "opsmith"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/me")
    assert jit.cache_folder() == Path("/home/me/.cache/opsmith")
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(tmp_path / "own"))
    assert jit.cache_folder() == tmp_path / "own"


def libraries(cache: Path) -> set[str]:
    """The names of the libraries in the cache."""
    return {place.name.rpartition("-")[0] for place in (cache / "libraries").iterdir()}


def test_what_was_not_used_for_longest_goes_where_there_is_no_room(
    name: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But nothing that a process has, nor the crates that all libraries are compiled with."""
    own = [f"{name}_{number}" for number in range(3)]
    for number, one in enumerate(own):
        assert child(f"jit.load_inline({one!r}, source(100 + {number}))").returncode == 0
    kept = jit.load_inline(f"{name}_kept", source(110))
    sizes = {part.name: part.size for part in jit.cache_info().parts}
    stamps = {one: next((cache / "libraries").glob(f"{one}-*")) / "entry.json" for one in own}
    # The first is used again: the second goes, then the third.
    for age, one in [(300, own[1]), (200, own[2]), (100, own[0])]:
        os.utime(stamps[one], (time.time() - age,) * 2)
    others = [place for place in (cache / "libraries").glob("*/entry.json") if place not in stamps.values()]
    # What other releases or toolchains have compiled may be there from former runs, and would go first.
    others += [place / "used" for kind in ("dependencies", "crates") for place in (cache / kind).iterdir()]
    for place in others:
        place.touch()
    one_less = sum(sizes.values()) - sizes[f"libraries/{stamps[own[1]].parent.name}"] // 2
    monkeypatch.setenv("OPSMITH_JIT_CACHE_LIMIT", str(one_less))
    # A build adds a library, for which another one goes.
    jit.load_inline(f"{name}_last", source(120))
    assert libraries(cache).isdisjoint(own[1:]) and own[0] in libraries(cache)
    assert jit.cache_info().size <= one_less

    monkeypatch.setenv("OPSMITH_JIT_CACHE_LIMIT", "1 KB")
    held = child(
        f"""
library = jit.load_inline({own[0]!r}, source(100))
import subprocess, sys
code = "from opsmith import jit; jit.load_inline({name!r} + '_tiny', " + repr(source(130)) + ")"
subprocess.run([sys.executable, "-c", code], check=True)
import os
assert os.path.exists(library.__file__)
"""
    )
    assert held.returncode == 0, held.stderr
    assert {own[0], f"{name}_kept", f"{name}_last"} <= libraries(cache)
    jit.load_inline(f"{name}_end", source(140))
    assert not {own[0], f"{name}_tiny"} & libraries(cache)
    assert {f"{name}_kept", f"{name}_last", f"{name}_end"} <= libraries(cache)
    assert added(kept) == 110
    kinds = {part.kind for part in jit.cache_info().parts}
    assert "dependencies" in kinds, "what all libraries share stays"


def test_what_the_cache_takes_is_shown(name: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = jit.load_inline(name, source(9))
    info = jit.cache_info()
    place = Path(library.__file__).parent
    (part,) = [part for part in info.parts if part.name == f"libraries/{place.name}"]
    files = sum(path.stat().st_blocks * 512 for path in [place, *place.iterdir()])
    assert (part.kind, part.size) == ("library", files)
    assert abs(part.used - time.time()) < 600
    assert info.limit == 4 << 30 and info.folder == cache
    assert info.size == sum(part.size for part in info.parts) > 20 << 20, "the compiled crates are among it"
    shown = subprocess.run(
        [sys.executable, "-m", "opsmith.jit"], capture_output=True, text=True, check=True
    ).stdout
    assert shown.startswith(f"{cache}: ") and " of 4.0 GB\n" in shown
    assert f"  libraries/{place.name}\n" in shown
    for text, size in [("2GB", 2 << 30), ("1.5 mb", 3 << 19), ("700", 700)]:
        monkeypatch.setenv("OPSMITH_JIT_CACHE_LIMIT", text)
        assert jit.cache_info().limit == size
    monkeypatch.setenv("OPSMITH_JIT_CACHE_LIMIT", "much")
    with pytest.raises(opsmith.InvalidArgumentError, match=r"OPSMITH_JIT_CACHE_LIMIT: 'much' is not a size"):
        jit.cache_info()
