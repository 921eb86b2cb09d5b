"""CUDA kernels compiled ahead of time by the program, without a card, of libraries built just in time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opsmith import jit

REPOSITORY = Path(__file__).parents[3]
PROGRAM = Path(os.environ.get("OPSMITH_PROGRAM", REPOSITORY / "target" / "debug" / "opsmith"))
LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", REPOSITORY / "target" / "release"))

OP = """
use opsmith::cuda::{CudaCall, CudaElement, DeviceView, DeviceViewMut, Index};

/// Twice the input.
#[op(shape = "(n)->(n)", dtypes(T = [f32, i32]), strided, cuda = "FILE.cu")]
fn doubled<T: Number>(x: ArrayView1<T>, mut y: ArrayViewMut1<T>) {
    azip!((y in &mut y, &x in &x) *y = x + x);
}

fn doubled_cuda<T: CudaElement>(call: &CudaCall, x: DeviceView<T>, y: DeviceViewMut<T>) -> Result<()> {
    let index = Index::of(&[&x, &y]);
    REFUSE
    let kernel = call.kernel(format!("doubled<{}, {}>", T::NAME, index.name()));
    // SAFETY: the kernel takes these two, with these types.
    unsafe { kernel.for_each(y.num_elements()).flat(&x, index).flat(&y, index).launch() }
}
"""
KERNEL = """#include "opsmith.cuh"
template <typename T, typename Index>
__global__ void doubled(opsmith::FlatAccessor<const T, Index> x, opsmith::FlatAccessor<T, Index> y) {
    OPSMITH_GRID_LOOP(Index, i, y.count()) y[i] = 2 * x[i];
}
"""
NAMES = [f"doubled<{dtype}, {index}>" for dtype in ("float", "int") for index in ("int", "long long")]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The cache of just-in-time builds that other tests have, and the compiler of this Python."""
    pytest.importorskip("nvidia.cu13", reason="there is no NVRTC")
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(LIBRARIES.parent / "tests" / "jit"))
    monkeypatch.setenv("OPSMITH_NVRTC", sys.prefix)
    yield


def library(name: str, tmp_path: Path, refuse: str = "", kernel: str = KERNEL) -> tuple[Path, Path]:
    """A copy of a library that is built of a source and a kernel, and the kernel's file."""
    ops, cuda = tmp_path / f"{name}.rs", tmp_path / f"{name}.cu"
    ops.write_text(OP.replace("FILE", name).replace("REFUSE", refuse))
    cuda.write_text(kernel)
    built = jit.load(name, [ops, cuda])
    np.testing.assert_equal(built.doubled(np.arange(3, dtype=np.int32)), [0, 2, 4])
    copy = tmp_path / Path(built.__file__).name
    copy.write_bytes(Path(built.__file__).read_bytes())
    return copy, cuda


def compiled(file: Path, *arguments: str, status: int = 0) -> str:
    """What the program says that compiles the kernels of a library."""
    command: list[str | Path] = [PROGRAM, "build", "--cuda-kernels", "--library", file, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stderr if status else done.stdout


def inspected(file: Path) -> str:
    """What the program shows of a library."""
    return subprocess.run([PROGRAM, "inspect", file], capture_output=True, text=True, check=True).stdout


def test_every_dtype_and_index_is_compiled_for_each_generation(tmp_path: Path) -> None:
    file, _ = library("ahead_whole", tmp_path)
    told: dict[str, Any] = json.loads(compiled(file, "--json"))[0]["cuda_kernels"]
    folder = Path(f"{file}.kernels")
    assert (told["kernels"], told["not_reached"], told["folder"]) == (NAMES, [], str(folder))
    assert told["architectures"] == ["sm_75", "sm_80", "sm_90", "sm_100"]
    kernels = list(folder.glob("*.kernel"))
    assert len(kernels) == 16 and all(kernel.stat().st_size > 1000 for kernel in kernels)
    assert json.loads((folder / "kernels.json").read_text())["architectures"] == told["architectures"]
    # Made anew, the folder has what was asked for and nothing else.
    text = compiled(file, "--cuda-arch", "80,90")
    assert "4 CUDA kernels of 1 ops for sm_80, sm_90" in text
    assert "compiled ahead of time: 4 CUDA kernels for sm_80, sm_90\n" in inspected(file)
    again = set(folder.glob("*.kernel"))
    assert len(again) == 8 and again < set(kernels)
    (folder / "kernels.json").unlink()
    assert "compiled ahead of time: 8 files of CUDA kernels\n" in inspected(file)
    for kernel in again:
        kernel.unlink()
    assert "compiled ahead" not in inspected(file)


def test_a_kernel_that_does_not_compile_is_told_with_the_authors_file_and_line(tmp_path: Path) -> None:
    file, _ = library("ahead_broken", tmp_path)
    compiled(file, "--cuda-arch", "90")
    kept = sorted(Path(f"{file}.kernels").iterdir())
    broken, cuda = library("ahead_broken", tmp_path, kernel=KERNEL.replace("2 * x[i]", "twice(x[i])"))
    assert broken != file
    broken.replace(file)
    said = compiled(file, "--cuda-arch", "90", status=1)
    assert f'{cuda}(4): error: identifier "twice" is undefined' in said
    assert said.count("does not compile") == 4
    assert sorted(Path(f"{file}.kernels").iterdir()) == kept, "the folder is as it was"
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == [Path(f"{file}.kernels")]


def test_they_are_beside_the_file_that_a_link_leads_to(tmp_path: Path) -> None:
    """Where the library looks; and nothing else is left."""
    (tmp_path / "links").mkdir()
    file, _ = library("ahead_linked", tmp_path)
    link = tmp_path / "links" / "link.so"
    link.symlink_to(file)
    told: dict[str, Any] = json.loads(compiled(link, "--json", "--cuda-arch", "90"))[0]["cuda_kernels"]
    assert told["folder"] == f"{file}.kernels" and told["kernels"] == NAMES
    assert "compiled ahead of time: 4 CUDA kernels for sm_90\n" in inspected(link)
    assert list((tmp_path / "links").iterdir()) == [link]
    assert [path for path in tmp_path.iterdir() if path.is_dir() and path.name != "links"] == [
        Path(f"{file}.kernels")
    ]


def test_what_no_call_launches_is_told(tmp_path: Path) -> None:
    refuse = 'ensure!(index.name() == "int" && T::NAME == "float", Unimplemented, "not {}", T::NAME);'
    file, _ = library("ahead_refusing", tmp_path, refuse)
    told = json.loads(compiled(file, "--json", "--cuda-arch", "80"))[0]["cuda_kernels"]
    assert told["kernels"] == ["doubled<float, int>"]
    wide, none = told["not_reached"]
    assert (wide["op"], wide["types"], wide["only_64_bit_indices"]) == ("Doubled", "T = float32", True)
    assert (none["types"], none["only_64_bit_indices"]) == ("T = int32", False)
    assert none["why"] == "Doubled: not int"
    text = " ".join(compiled(file, "--cuda-arch", "80").split())
    assert "not reached: Doubled for T = float32 with indices of 64 bits: Doubled: not float" in text
    assert "not reached: Doubled for T = int32: Doubled: not int" in text


def test_what_cannot_be_compiled_for_is_an_error(tmp_path: Path) -> None:
    file, _ = library("ahead_refused", tmp_path)
    assert "no longer compiles for cards of sm_35" in compiled(file, "--cuda-arch", "35", status=2)
    assert "does not know cards of sm_999" in compiled(file, "--cuda-arch", "90,999", status=2)
    same = "fn same(x: ArrayView1<f32>, mut y: ArrayViewMut1<f32>) { y.assign(&x); }"
    plain = jit.load_inline("ahead_plain", f'#[op(shape = "(n)->(n)")] {same}')
    said = compiled(Path(plain.__file__), status=2)
    assert "has no CUDA kernels" in said and "→ leave out --cuda-kernels" in said
    nowhere = os.environ | {"OPSMITH_NVRTC": str(tmp_path)}
    command: list[str | Path] = [PROGRAM, "build", "--cuda-kernels", "--library", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=nowhere)
    assert done.returncode == 2 and "where there is no libnvrtc.so" in done.stderr
    assert not list(tmp_path.glob("*.kernels*"))
