"""AOTInductor: a package of PyTorch's that a program of C++ or Rust runs, without Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import compiled, library, output, python, run

EXPORT = """
import sys, numpy as np, opsmith, torch
library, package, x, y, language = sys.argv[1:]
opsmith.load(library)
if language == "rust":
    op = torch.ops.distances.pairwise_manhattan_distance.default
    function = "aoti_torch_cpu_pairwise_manhattan_distance"
    declared = f"AOTITorchError {function}(AtenTensorHandle x, AtenTensorHandle y, AtenTensorHandle* result)"
    torch._inductor.config.aot_inductor.custom_ops_to_c_shims = {op: [declared]}
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


Served = tuple[Path, Path, np.ndarray, np.ndarray]


@pytest.fixture(scope="module", params=["c++", "rust"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """A program, a package for it, an input, and what PyTorch gives for that."""
    folder = tmp_path_factory.mktemp("model")
    options = python(OPTIONS).split()
    if request.param == "c++":
        links = ["-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu", "-lc10", "-ldl"]
        program = compiled("g++", "aot_inductor.cpp", folder, ["-std=c++20", "-O1", "-w", *options, *links])
    else:
        # The package looks its C functions up in the program, and needs libtorch.so.
        folders = [option for option in options if option.startswith("-L")]
        links = [option for option in options if option.startswith("-Wl,-rpath")]
        links += ["-Wl,--export-dynamic", "-Wl,--no-as-needed", "-ltorch"]
        arguments = ["--edition=2024", "-Dwarnings", *folders, *(f"-Clink-arg={link}" for link in links)]
        program = compiled("rustc", "aot_inductor.rs", folder, arguments)
    package, x, y = folder / "model.pt2", folder / "x.npy", folder / "y.npy"
    python(EXPORT, library("distances"), package, x, y, request.param)
    return program, package, np.load(x), np.load(y)


def test_a_package_gives_what_pytorch_gives(served: Served) -> None:
    program, package, x, y = served
    got = output(run(program, package, library("distances"), matrix=x))
    np.testing.assert_allclose(got, y, rtol=1e-6, atol=1e-6)
    few = output(run(program, package, library("distances"), matrix=x[:2]))
    np.testing.assert_allclose(few, y[:2], rtol=1e-6, atol=1e-6)


def test_without_the_library_it_is_an_error(served: Served) -> None:
    program, package, x, _ = served
    done = run(program, package, matrix=x)
    assert done.returncode == 1
    assert "pairwise_manhattan_distance" in done.stderr


def test_what_does_not_fit_is_an_error(served: Served) -> None:
    program, package, x, _ = served
    done = run(program, package, library("distances"), matrix=np.hstack([x, x]))
    assert done.returncode == 1, done.stdout
    assert "expected: 3, but got: 6" in done.stderr, done.stderr
    package.with_name("cut.pt2").write_bytes(package.read_bytes()[:-100])
    done = run(program, package.with_name("cut.pt2"), library("distances"), matrix=x)
    assert done.returncode == 1
