"""What a cache loses for want of room: what Opsmith has made, and nothing else that lies there."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from conftest import SHARED, added, child, failure, link_dependencies, source
from opsmith import jit
from opsmith.jit import _room

DIGEST = "0123456789abcdef" * 2
OTHER = "fedcba9876543210" * 2
PARTS = ["libraries", "dependencies", "crates", "building", "sources", "inputs", "toolchains", "locks"]


def make(path: Path, text: str = "mine", size: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + " " * size)
    return path


def age(folder: Path) -> None:
    """Make all of it look as if it had not been used for a day."""
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            os.utime(path, (time.time() - 86400,) * 2)


def foreign(cache: Path, parts: list[str]) -> dict[Path, str]:
    """Files of the user's own, in folders whose names are those of the cache's."""
    made = [make(cache / "notes.txt"), make(cache / "photos" / "one.jpg", size=4 << 20)]
    for part in parts:
        made += [
            make(cache / part / "notes.txt"),
            make(cache / part / "project" / "src" / "main.rs", size=4 << 20),
            make(cache / part / "ops-1" / "a.txt"),
            # Names of Opsmith's form, with something else in them.
            make(cache / part / OTHER / "data.bin"),
            make(cache / part / "ops-0123456789abcdef" / "data.bin"),
            make(cache / part / f"{OTHER}.json", '{"mine": 1}'),
            make(cache / part / f"ops.{DIGEST}" / "a.txt"),
        ]
        outside = make(cache.parent / "outside" / part / "ops.rs")
        made.append(outside)
        for name in (DIGEST, "ops-fedcba9876543210", f"{DIGEST}.{DIGEST}", f"{DIGEST}.json"):
            if not (cache / part / name).exists():
                (cache / part / name).symlink_to(outside.parent)
    return {path: path.read_text() for path in made}


def own(cache: Path) -> list[Path]:
    """What builds of other releases, and builds that were killed, have left."""
    entry = json.dumps({"checksum": "", "key": DIGEST, "sources": []})
    files = [
        make(cache / "libraries" / "old-0123456789abcdef" / "entry.json", entry, 2 << 20),
        make(cache / "dependencies" / ("1" * 32) / "used", "", 2 << 20),
        make(cache / "crates" / ("1" * 32) / "used", "", 2 << 20),
        make(cache / "building" / f"{'1' * 32}.{DIGEST}" / "lib.rs"),
        make(cache / "building" / f"crates-{'1' * 32}.{DIGEST}" / "lib.rs"),
        make(cache / "building" / f"removed.{'1' * 32}" / "entry.json"),
        make(cache / "sources" / ("1" * 32) / "old.rs"),
        make(cache / "inputs" / f"{'1' * 32}.json", '["/a/b.rs"]'),
    ]
    return [file if file.parent.name == "inputs" else file.parent for file in files]


@pytest.mark.parametrize("most", [1 << 20, 4 << 30])
def test_files_of_the_user_s_own_stay(tmp_path: Path, most: int) -> None:
    cache = tmp_path / "cache"
    mine, ours = foreign(cache, PARTS), own(cache)
    age(tmp_path)
    _room.make_room(cache, frozenset(), most)
    assert {path: path.read_text() for path in mine} == mine
    goes = ours if most == 1 << 20 else [place for place in ours if place.parent.name in PARTS[3:]]
    assert [place for place in goes if place.exists()] == []
    assert all(place.exists() for place in ours if place not in goes)


@pytest.mark.parametrize("most", ["1M", ""])
def test_files_of_the_user_s_own_outlive_builds(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dependencies: Path, most: str
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    link_dependencies(cache)
    for place in [*(SHARED / "dependencies").glob("*/used"), *(SHARED / "crates").glob("*/used")]:
        place.touch()
    mine = foreign(cache, ["libraries", "building", "sources", "inputs", "toolchains"])
    age(cache)
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(cache))
    monkeypatch.setenv("OPSMITH_JIT_CACHE_LIMIT", most)
    for number in range(2):
        assert added(jit.load_inline(f"{name}_{number}", source(200 + number))) == 200 + number
    assert {path: path.read_text() for path in mine} == mine


def test_only_what_opsmith_has_made_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    foreign(cache, PARTS)
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(cache))
    assert jit.cache_info().parts == ()
    own(cache)
    names = {part.name for part in jit.cache_info().parts}
    assert {"libraries/old-0123456789abcdef", "building", "sources", "inputs"} <= names
    assert not {"photos", "toolchains", f"crates/{OTHER}"} & names
    assert jit.cache_info().size < 7 << 20


@pytest.mark.parametrize("parts", [["libraries"], ["libraries", "inputs", "sources"]])
def test_a_library_whose_file_was_deleted_is_built_into_its_place(
    name: str, cache: Path, parts: list[str]
) -> None:
    library = jit.load_inline(name, source(300))
    data = pickle.dumps(library.shifted)
    for part in parts:
        shutil.rmtree(cache / part)
    assert pickle.dumps(library.shifted) == data and pickle.loads(data) is library.shifted
    load = f"import pickle\nprint(pickle.loads({data!r})([1.0]))"
    assert "was built just in time, and is in the cache" in child(load).stderr
    assert jit.load_inline(name, source(300)) is library and Path(library.__file__).exists()
    assert added(library) == 300 and pickle.loads(data) is library.shifted
    assert child(load).stdout == "[301.]\n"
    assert added(jit.load_inline(name, source(301))) == 301


def test_a_library_that_another_process_removes_at_once_is_built_again(
    name: str, cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    left = [2, 1]

    def removed(entry: Path) -> bool:
        if left and left.pop():
            shutil.rmtree(entry.parent)
        return hold(entry)

    hold = _room.hold
    monkeypatch.setattr(_room, "hold", removed)
    with pytest.raises(jit.BuildError, match=r"was removed as soon as it was built\n  → stop what empties"):
        jit.load_inline(name, source(302))
    left.append(1)
    assert added(jit.load_inline(name, source(302), verbose=True)) == 302
    told = capfd.readouterr().err
    assert told.count("removed by another process: once more") == 1
    assert told.count("--crate-type cdylib") == 2


def shown(arguments: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """What `python -m opsmith.jit` gives; the arguments are a shell's, redirections and all."""
    command = f"exec {sys.executable} -m opsmith.jit {arguments}"
    variables = {**os.environ, **environment}
    return subprocess.run(command, shell=True, env=variables, capture_output=True, text=True, check=False)


def test_the_command_that_shows_the_cache(tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    done = shown("--help")
    assert done.returncode == 0 and done.stdout.startswith("usage: python -m opsmith.jit") and not done.stderr
    done = shown("--much")
    assert done.returncode == 2 and "unrecognized arguments: --much" in done.stderr
    done = shown(OPSMITH_CACHE_DIR=cache, OPSMITH_JIT_CACHE_LIMIT="700")
    assert done.stdout == f"{cache}: 0 bytes of 700 bytes\n"
    done = shown(">/dev/full", OPSMITH_CACHE_DIR=cache)
    assert done.returncode == 1
    assert done.stderr == "error: this cannot be written: No space left on device\n"
    # The reader has gone before anything is written.
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "opsmith.jit"]
    gone = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (gone.returncode, gone.stderr) == (0, "")
    make(tmp_path / "file")
    done = shown(OPSMITH_CACHE_DIR=str(tmp_path / "file"))
    assert done.returncode == 1 and not done.stdout
    assert f"error: the cache {tmp_path / 'file'} must be a folder, but is a file\n  → set" in done.stderr


@pytest.mark.skipif(
    not os.access("/dev/shm", os.W_OK) or os.stat("/dev/shm").st_dev == os.stat("/tmp").st_dev,
    reason="there is one file system",
)
def test_a_part_of_the_cache_on_another_file_system_is_named(
    name: str, tmp_path: Path, dependencies: Path
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    link_dependencies(cache)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        (cache / "libraries").symlink_to(elsewhere)
        told = failure(f"jit.load_inline({name!r}, source(9))", OPSMITH_CACHE_DIR=str(cache))
    why = f"{cache / 'libraries'} is on another file system than {cache / 'building'}\n  → set"
    assert f"the cache {cache} cannot be used: {why} OPSMITH_CACHE_DIR to a folder" in told
