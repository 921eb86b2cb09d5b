"""What an author has written in Python beside the ops, in the folder `python` of the crate."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import opsmith
import pytest
from conftest import LIBRARIES
from opsmith.build import _own, _package
from opsmith.build._crate import Crate
from opsmith.jit import BuildError

Run = Callable[..., "subprocess.CompletedProcess[str]"]

INIT = '''\
"""What runs when the package is imported."""

import opsmith

from . import pairwise_manhattan_distance_grad_grad

__all__ = ["SCALE", "nearest"]

SCALE = 2.0


@opsmith.register_gradient(pairwise_manhattan_distance_grad_grad, replace=True)
def gradient(inputs: object, outputs: object, attributes: object, grads: object) -> list[None]:
    raise AssertionError("it is registered")


def nearest(x: object, y: object) -> object:
    """Which row of y is nearest to each of x."""
    from .layers import numbers

    return numbers.distances(x, y).argmin(axis=1)
'''
NUMBERS = '''\
"""Distances, scaled."""

from typing import Any

from distances import SCALE, pairwise_manhattan_distance


def distances(x: Any, y: Any) -> Any:
    """The distances of rows."""
    return pairwise_manhattan_distance(x, y) * SCALE
'''
USE = """\
import distances
from distances.layers import numbers
from opsmith import testing

assert distances.__all__ == ["pairwise_manhattan_distance", "SCALE", "nearest"]
# The module stands for its library.
assert testing.check(distances, "pairwise_manhattan_distance", cases=1, properties=["empty"]).failures == ()
assert distances.pairwise_manhattan_distance_grad.__module__ == "distances"
assert numbers.distances([[1.0]], [[3.0]]).tolist() == [[4.0]]
assert distances.nearest([[1.0], [9.0]], [[8.0], [2.0]]).tolist() == [1, 0]
print(numbers.__file__)
"""
TYPED = """\
import distances
from distances.layers.numbers import distances as scaled

reveal_type(distances.SCALE)
reveal_type(distances.nearest)
scaled([[1.0]], [[3.0]])
"""


@pytest.fixture
def crate(tmp_path: Path) -> Crate:
    """A crate with the ops of the distances example, and Python of its own."""
    folder = tmp_path / "größere crate"
    write(folder, "__init__.py", INIT)
    write(folder, "layers/__init__.py", "")
    write(folder, "layers/numbers.py", NUMBERS)
    write(folder, "layers/table.csv", "1,2\n")
    write(folder, "__pycache__/layers.pyc", "")
    write(folder, ".hidden", "")
    return Crate(folder, folder, {"name": "distances"})


def write(folder: Path, name: str, text: str) -> None:
    path = folder / "python" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def packed(crate: Crate, folder: Path, editable: bool) -> set[str]:
    """Puts what a wheel has of the crate into a folder; the names of the files."""
    file = LIBRARIES / "libdistances.so"
    files = _package._files(crate, opsmith.load(file), file, "release", editable)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return {name for name in files if ".so.kernels/" not in name}


@pytest.mark.parametrize("editable", [False, True])
def test_it_is_in_the_package(crate: Crate, editable: bool, run: Run, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    names = packed(crate, installed, editable)
    own = (
        {"_init.py"}
        if editable
        else {"_init.py", "layers/__init__.py", "layers/numbers.py", "layers/table.csv"}
    )
    generated = {"__init__.py", "__init__.pyi", "py.typed"} | (set() if editable else {"libdistances.so"})
    assert names == {f"distances/{name}" for name in own | generated}
    path = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
    done = run(sys.executable, "-c", USE, PYTHONPATH=path)
    place = crate.folder / "python" if editable else installed / "distances"
    assert done.stdout == f"{place / 'layers' / 'numbers.py'}\n", done.stderr
    # An editable one has what is changed in a new process.
    write(crate.folder, "__init__.py", INIT.replace("SCALE = 2.0", "SCALE = 3.0"))
    done = run(sys.executable, "-c", "import distances; print(distances.SCALE)", PYTHONPATH=path)
    assert done.stdout == ("3.0\n" if editable else "2.0\n"), done.stderr


def test_it_is_typed(crate: Crate, run: Run, tmp_path: Path) -> None:
    installed, use = tmp_path / "installed", tmp_path / "use.py"
    packed(crate, installed, editable=False)
    use.write_text(TYPED)
    mypy = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--cache-dir", os.devnull]
    done = run(*mypy, use, MYPYPATH=str(installed))
    assert done.returncode == 0, done.stdout
    assert 'float"' in done.stdout and "def (x: " in done.stdout


def test_without_it_the_module_is_as_it_was(tmp_path: Path) -> None:
    crate = Crate(tmp_path, tmp_path, {"name": "distances"})
    packed(crate, tmp_path / "installed", editable=False)
    assert "author" not in (tmp_path / "installed" / "distances" / "__init__.py").read_text()


def test_its_docstring_begins_with_the_description(run: Run, tmp_path: Path) -> None:
    summary = 'Größere """rows""" of \\ and {x}'
    file = LIBRARIES / "libdistances.so"
    files = _package._files(
        Crate(tmp_path, tmp_path, {"name": "distances"}), opsmith.load(file), file, "release", False, summary
    )
    (tmp_path / "distances").mkdir()
    for name in ("distances/__init__.py", "distances/libdistances.so"):
        (tmp_path / name).write_bytes(files[name])
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = run(sys.executable, "-c", "import distances; print(distances.__doc__)", PYTHONPATH=path)
    assert done.stdout.startswith(f"{summary}\n\nThe operators of `distances` 0.1.0."), done.stderr
    stub = ast.get_docstring(ast.parse(files["distances/__init__.pyi"]))
    assert stub == done.stdout.strip().replace('"""', "'''")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("layers.py", "x = (", r"layers.py:1: '\(' was never closed"),
        ("layers.py", "x = 'a\0'", "null bytes"),
        ("pairwise_manhattan_distance.py", "", "would take the place of the op of that name"),
        ("pairwise_manhattan_distance/x.py", "", "would take the place of the op of that name"),
        ("__init__.pyi", "", "the wheel has a file of this name, which is generated"),
        ("_init.py", "", "the wheel has a file of this name, which is generated"),
        ("py.typed", "", "the wheel has a file of this name, which is generated"),
        ("libdistances.so", "", "a shared library is not Python"),
        ("__init__.py", "__all__ = [name]", "`__all__` must be a list of names that is written out"),
        ("__init__.py", "__all__ = [3]", "`__all__` must be a list of names that is written out"),
        ("__init__.py", "__all__ = ['class']", "`__all__` must be a list of names that is written out"),
        ("__init__.py", "__all__ = {'a'}", "`__all__` must be a list of names that is written out"),
        ("__init__.py", "__all__ = 'a'", "`__all__` must be a list of names that is written out"),
        ("__init__.py", "__all__ = ['a']\n__all__ += ['b']", "__init__.py:2: `__all__` must be a list"),
        ("__init__.py", "__all__ = ['a']\n__all__.append('b')", "__init__.py:2: `__all__` must be a list"),
        ("__init__.py", "__all__: list[str]", "`__all__` must be a list of names that is written out"),
        ("__init__.py", "from x import __all__", "`__all__` must be a list of names that is written out"),
        ("__init__.py", "a = 1\n__all__ = ['a', 'b']", "`__all__` has `b`, which the file does not define"),
        (
            "__init__.py",
            '__all__ = ["pairwise_manhattan_distance"]',
            "`__all__` has `pairwise.*`, which is an op",
        ),
    ],
)
def test_what_cannot_be_packed_is_told(name: str, text: str, message: str, tmp_path: Path) -> None:
    write(tmp_path, name, text)
    with pytest.raises(BuildError, match=message):
        _own.find(Crate(tmp_path, tmp_path, {}), ["pairwise_manhattan_distance"])


@pytest.mark.parametrize(
    "text",
    [
        "def __getattr__(name): ...",
        "from lazy import __getattr__",
        "__getattr__ = attach(__name__)",
        "from x import *",
        "locals()['a'] = 1",
        "sys.modules[__name__].a = 1",
        "match x:\n    case [*a]: pass",
        "for a in b: pass",
        "import a.c",
    ],
)
def test_names_come_in_many_ways(text: str, tmp_path: Path) -> None:
    write(tmp_path, "__init__.py", f"__all__ = ['a', '__doc__']\n{text}\n")
    assert _own.find(Crate(tmp_path, tmp_path, {}), []).exported == ("a", "__doc__")


@pytest.mark.parametrize(
    "form", ["__all__ = ['a', 'b']", "__all__: list[str] = ['a', 'b']", "__all__ = 'a', 'b'"]
)
def test_names_are_found_in_each_form(form: str, tmp_path: Path) -> None:
    write(tmp_path, "__init__.py", f"from x import a\n{form}\n\n\ndef b():\n    return __all__\n")
    assert _own.find(Crate(tmp_path, tmp_path, {}), []).exported == ("a", "b")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("layers.py", "from . import scale_row"),
        ("layers.py", "def f():\n    from rows import scale_row"),
        ("deep/layers.py", "from .. import scale_row"),
        ("__init__.py", "from . import scale_row"),
        ("layers.py", "try:\n    pass\nexcept ImportError:\n    from . import scale_row"),
    ],
)
def test_an_import_of_what_the_module_lacks_is_told(file: str, text: str, tmp_path: Path) -> None:
    write(tmp_path, file, text)
    line = len(text.splitlines())
    told = rf"{file}:{line}: imports `scale_row` from `rows`, .* not have it\n  → did you mean `scale_rows`\?"
    with pytest.raises(BuildError, match=told):
        check_imports(tmp_path)
    write(tmp_path, "__init__.py", "def double(): ...")
    write(tmp_path, file, "from rows import double")
    with pytest.raises(BuildError, match="not have it\n  → name an op, a module, or what is in `__all__` of"):
        check_imports(tmp_path)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("layers.py", "from . import scale_rows, table, double, __version__, _library"),
        ("layers.py", "from rows import *"),
        ("layers.py", "from .table import anything"),
        ("layers.py", "from other import anything"),
        ("deep/layers.py", "from . import anything"),
        ("layers.py", "try:\n    from . import fast\nexcept ImportError:\n    fast = None"),
        ("__init__.py", "import sys\nsys.modules[__package__].fast = 1\nfrom . import fast"),
    ],
)
def test_other_imports_are_left_alone(file: str, text: str, tmp_path: Path) -> None:
    write(tmp_path, "__init__.py", "__all__ = ['double']\ndef double(): ...")
    write(tmp_path, "table.py", "")
    write(tmp_path, file, text)
    check_imports(tmp_path)


def check_imports(folder: Path) -> None:
    own = _own.find(Crate(folder, folder, {}), ["scale_rows"])
    _own.check_imports(own, "rows", ["scale_rows"])
