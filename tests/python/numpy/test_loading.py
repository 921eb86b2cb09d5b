"""Loading: what is not a whole library is refused, and one library is one."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import opsmith
import pytest
from conftest import library_path
from opsmith import _native

ATTACKS = Path(__file__).parents[3] / "attacks"


def test_hostile_files_are_refused(tmp_path: Path) -> None:
    answers = runpy.run_path(str(ATTACKS / "hostile_libraries.py"))["answers"]
    count = 0
    for name, expected, answer in answers(library_path("zero_out").read_bytes(), tmp_path):
        assert expected in answer, name
        assert not answer.startswith("loaded"), name
        count += 1
    assert count > 50


def test_no_damaged_table_kills_the_process() -> None:
    command = [sys.executable, str(ATTACKS / "damaged_tables.py"), str(library_path("zero_out")), "1000", "1"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    loaded = re.search(r"^1000 files, (\d+) loaded, 0 died$", told.stdout, re.MULTILINE)
    assert loaded and int(loaded[1]) >= 200, told.stdout


def test_files_that_are_not_there_or_not_files(tmp_path: Path) -> None:
    with pytest.raises(opsmith.NotFoundError, match="there is no such file"):
        _native.open(tmp_path / "none.so")
    with pytest.raises(opsmith.InvalidArgumentError, match="is a directory"):
        _native.open(tmp_path)
    with pytest.raises(opsmith.InvalidArgumentError, match="does not export"):
        _native.open(_native.__file__)
    with pytest.raises(opsmith.InvalidArgumentError, match="path of a file"):
        _native.open(3)


def test_one_file_is_one_library(tmp_path: Path) -> None:
    path = library_path("distances")
    first = _native.open(path)
    link = tmp_path / "link.so"
    link.symlink_to(path)
    copy = tmp_path / "copy.so"
    shutil.copy(path, copy)
    for other in (path, str(path), link, copy):
        assert _native.open(other).path == first.path
    assert (first.name, len(first)) == ("distances", 3)
    assert "distances" in repr(first)


def test_two_libraries_that_define_an_op_differently(tmp_path: Path) -> None:
    first = _native.open(library_path("distances"))
    other = tmp_path / "other.so"
    content = library_path("distances").read_bytes()
    changed = content.replace(b"Pairwise Manhattan", b"Pairwise Manhatten")
    assert changed != content
    other.write_bytes(changed)
    with pytest.raises(opsmith.AlreadyExistsError) as raised:
        _native.open(other)
    for part in ("`distances`", first.path, str(other)):
        assert part in str(raised.value)
    assert _native.open(library_path("distances")).path == first.path


def test_nothing_is_imported_that_is_not_needed() -> None:
    program = f"""
import sys
import opsmith
assert "numpy" not in sys.modules
library = opsmith.load({str(library_path("distances"))!r})
assert "numpy" not in sys.modules
print(library.pairwise_manhattan_distance([[1.0]], [[3.0]]))
assert not {{"torch", "tensorflow", "jax", "scipy"}} & sys.modules.keys()
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == "[[2.]]\n"
