"""AOTInductor: a package of PyTorch's that a program of C++ runs, without Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import compiled, library, output, python, run

EXPORT = """
import sys, numpy as np, opsmith, torch
library, package, x, y = sys.argv[1:]
opsmith.load(library)
points = torch.linspace(-1, 1, 12).reshape(4, 3)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("points", points)

    def forward(self, x):
        return torch.ops.distances.pairwise_manhattan_distance(torch.sin(x), self.points) * 2

torch.manual_seed(0)
given = torch.randn(5, 3)
rows = torch.export.Dim("rows", min=1)
program = torch.export.export(Model(), (given,), dynamic_shapes={"x": {0: rows}})
torch._inductor.aoti_compile_and_package(program, package_path=package)
given = torch.randn(7, 3)
np.save(x, given.numpy())
np.save(y, Model()(given).numpy())
"""

OPTIONS = """
import torch
from torch.utils import cpp_extension
flags = [f"-I{path}" for path in cpp_extension.include_paths()]
for path in cpp_extension.library_paths():
    flags += [f"-L{path}", f"-Wl,-rpath,{path}"]
flags.append(f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}")
print(*flags)
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of C++."""
    options = python(OPTIONS).split()
    links = ["-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu", "-lc10", "-ldl"]
    folder = tmp_path_factory.mktemp("program")
    return compiled("g++", "aot_inductor.cpp", folder, ["-std=c++20", "-O1", "-w", *options, *links])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray, np.ndarray]:
    """A package, an input, and what PyTorch gives for it."""
    folder = tmp_path_factory.mktemp("model")
    package, x, y = folder / "model.pt2", folder / "x.npy", folder / "y.npy"
    python(EXPORT, library("distances"), package, x, y)
    return package, np.load(x), np.load(y)


def test_a_package_gives_what_pytorch_gives(
    program: Path, model: tuple[Path, np.ndarray, np.ndarray]
) -> None:
    package, x, y = model
    got = output(run(program, package, library("distances"), matrix=x))
    np.testing.assert_allclose(got, y, rtol=1e-6, atol=1e-6)
    few = output(run(program, package, library("distances"), matrix=x[:2]))
    np.testing.assert_allclose(few, y[:2], rtol=1e-6, atol=1e-6)


def test_without_the_library_it_is_an_error(
    program: Path, model: tuple[Path, np.ndarray, np.ndarray]
) -> None:
    package, x, _ = model
    done = run(program, package, matrix=x)
    assert done.returncode == 1
    assert "pairwise_manhattan_distance" in done.stderr


def test_what_does_not_fit_is_an_error(program: Path, model: tuple[Path, np.ndarray, np.ndarray]) -> None:
    package, x, _ = model
    done = run(program, package, library("distances"), matrix=np.hstack([x, x]))
    assert done.returncode == 1, done.stdout
    assert "expected: 3, but got: 6" in done.stderr, done.stderr
    package.with_name("cut.pt2").write_bytes(package.read_bytes()[:-100])
    done = run(program, package.with_name("cut.pt2"), library("distances"), matrix=x)
    assert done.returncode == 1
