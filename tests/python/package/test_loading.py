"""Loading a library, with and without frameworks in the process; each case in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import opsmith
import pytest

LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", Path(__file__).parents[3] / "target" / "release"))
DISTANCES = LIBRARIES / "libdistances.so"


def run(source: str) -> list[str]:
    """What the program prints, line by line. It finds `path`, of the library of distances."""
    head = f"import sys\npath = {str(DISTANCES)!r}\n"
    command = [sys.executable, "-W", "error", "-c", head + textwrap.dedent(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_no_framework_is_imported() -> None:
    assert run("""
        import opsmith
        library = opsmith.load(path)
        repr(library), dir(library), library.__doc__, opsmith.stubs(library)
        print(sorted({"torch", "tensorflow", "jax", "numpy"} & sys.modules.keys()))
        print(library.pairwise_manhattan_distance([[0.0, 0.0]], [[1.0, 2.0]]).tolist())
        print(sorted({"torch", "tensorflow", "jax", "numpy"} & sys.modules.keys()))
    """) == ["[]", "[[3.0]]", "['numpy']"]


USE = """
def use():
    x = torch.ones(1, 2, requires_grad=True)
    library.pairwise_manhattan_distance(x, torch.zeros(1, 2)).backward()
    print(x.grad.tolist())
    x = torch.ones(1, 2, requires_grad=True)
    torch.ops.distances.pairwise_manhattan_distance(x, torch.zeros(1, 2)).backward()
    print(x.grad.tolist())
    assert torch.compiler.is_compiling() is False
"""


@pytest.mark.parametrize(
    "order",
    [
        "import torch\nimport opsmith\nlibrary = opsmith.load(path)\n",
        "import opsmith\nimport torch\nlibrary = opsmith.load(path)\n",
        "import opsmith\nlibrary = opsmith.load(path)\nimport torch\n",
        "import torch\ntorch.ops.load_library(path)\nimport opsmith\nlibrary = opsmith.load(path)\n",
        "import opsmith\nlibrary = opsmith.load(path)\nlibrary = opsmith.load(path)\nimport torch\n",
        "import opsmith\nlibrary = opsmith.load(path)\nimport torch.nn as nn\nimport torch\n",
        "import opsmith\nlibrary = opsmith.load(path)\nimport opsmith.torch\nimport torch\n",
        "import importlib, opsmith\nlibrary = opsmith.load(path)\ntorch = importlib.import_module('torch')\n",
    ],
    ids=[
        "torch first",
        "package first",
        "library first",
        "as a torch library too",
        "twice",
        "a submodule",
        "the package's own module",
        "importlib",
    ],
)
def test_torch_may_be_imported_whenever(order: str) -> None:
    assert run(order + USE + "\nuse()\n") == ["[[1.0, 1.0]]"] * 2


def test_the_import_of_torch_is_not_disturbed() -> None:
    assert run("""
        import opsmith
        opsmith.load(path)
        import torch
        from opsmith._hooks import _Finder
        print(type(torch.__spec__.loader).__name__, torch.__loader__ is torch.__spec__.loader)
        print([finder for finder in sys.meta_path if isinstance(finder, _Finder) and finder.name == "torch"])
    """) == ["SourceFileLoader True", "[]"]


def test_a_library_is_loaded_once() -> None:
    assert run("""
        import os, pickle, tempfile, opsmith
        library = opsmith.load(path)
        link = os.path.join(tempfile.mkdtemp(), "link.so")
        os.symlink(path, link)
        print(opsmith.load(link) is library, pickle.loads(pickle.dumps(library)) is library)
    """) == ["True True"]


def test_a_library_that_was_rebuilt_takes_a_new_process() -> None:
    assert run("""
        import os, shutil, tempfile, opsmith
        copy = os.path.join(tempfile.mkdtemp(), "copy.so")
        shutil.copy(path, copy)
        first = opsmith.load(copy)
        print(opsmith.load(path) is first)
        os.remove(copy)
        shutil.copy(path, copy)
        try:
            opsmith.load(copy)
        except opsmith.FailedPreconditionError as error:
            print("has changed since" in str(error))
    """) == ["True", "True"]


def test_what_is_no_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("no library")
    (tmp_path / "cut.so").write_bytes(DISTANCES.read_bytes()[:5000])
    assert run(f"""
        import opsmith
        folder = {str(tmp_path)!r}
        for name in ("absent.so", "text.so", "cut.so"):
            try:
                opsmith.load(folder + "/" + name)
            except opsmith.Error as error:
                print(type(error).__name__, name in str(error))
    """) == ["NotFoundError True", "InvalidArgumentError True", "InvalidArgumentError True"]


def test_what_it_runs_on_is_told_where_its_compiled_part_cannot_be_used(tmp_path: Path) -> None:
    package = Path(opsmith.__file__).parent
    shutil.copytree(package, tmp_path / "opsmith", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    # What another system's loader sees in it, or a release of Python that it is not for.
    for content in (None, b"\x7fELF\x02\x01\x01"):
        if content is not None:
            (tmp_path / "opsmith" / "_native.abi3.so").write_bytes(content)
        done = subprocess.run(
            [sys.executable, "-c", "import opsmith"],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
        )
        assert "ImportError: the compiled part of opsmith cannot be used here: " in done.stderr
        assert "on Linux on x86-64 with the GNU C library" in done.stderr
