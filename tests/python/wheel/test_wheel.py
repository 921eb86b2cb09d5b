"""The wheel of the distances example: what is in it, and that it works wherever it is installed."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
from opsmith.build import _inventory
from packaging.metadata import Metadata
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

REPOSITORY = Path(__file__).parents[3]
LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", REPOSITORY / "target" / "release"))
EXAMPLE = REPOSITORY / "examples" / "distances"
PROGRAM = Path(os.environ.get("OPSMITH_PROGRAM", REPOSITORY / "target" / "debug" / "opsmith"))
OPS = [f"pairwise_manhattan_distance{ending}" for ending in ("", "_grad", "_grad_grad")]
FRAMEWORKS = ["numpy", "torch", "tensorflow", "jax"]

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_it_has_the_module_the_library_and_what_describes_them(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
        modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
    info = "distances-0.1.0.dist-info"
    module = ["__init__.py", "__init__.pyi", "libdistances.so", "py.typed"]
    about = ["licenses/LICENSE-APACHE", "licenses/LICENSE-MIT", "licenses/THIRD-PARTY-LICENSES.txt"]
    about += ["sboms/distances.cdx.json", "METADATA", "WHEEL", "RECORD"]
    # Whoever runs the tests may have compiled kernels ahead of time.
    names = [name for name in content if ".so.kernels/" not in name]
    assert names == [*(f"distances/{name}" for name in module), *(f"{info}/{name}" for name in about)]
    assert modes["distances/libdistances.so"] == 0o100755 and modes["distances/__init__.py"] == 0o100644
    for line in content[f"{info}/RECORD"].decode().splitlines():
        name, digest, size = line.split(",")
        if name == f"{info}/RECORD":
            assert digest == size == ""
            continue
        own = base64.urlsafe_b64encode(hashlib.sha256(content[name]).digest()).decode().rstrip("=")
        assert (digest, size) == (f"sha256={own}", str(len(content[name])))
    assert content[f"{info}/licenses/LICENSE-MIT"] == (REPOSITORY / "LICENSE-MIT").read_bytes()
    metadata = Metadata.from_email(content[f"{info}/METADATA"])
    assert (metadata.name, str(metadata.version)) == ("distances", "0.1.0")
    assert metadata.metadata_version == "2.4"
    assert metadata.license_expression == "MIT OR Apache-2.0"
    assert metadata.license_files == ["LICENSE-APACHE", "LICENSE-MIT", "THIRD-PARTY-LICENSES.txt"]
    assert metadata.requires_dist is not None and metadata.summary is not None
    # Whatever is newer than what it was made with has all that its library asks of it.
    own = version("opsmith")
    assert {str(need) for need in metadata.requires_dist} == {f"opsmith>={own}", "numpy>=1.26"}
    assert metadata.summary.startswith("Pairwise Manhattan distances")
    assert metadata.description == (EXAMPLE / "README.md").read_text()


def test_its_tag_is_the_newest_c_library_that_it_asks_for(wheel: Path) -> None:
    name, release, _, tags = parse_wheel_filename(wheel.name)
    (tag,) = tags
    assert (name, str(release), tag.interpreter, tag.abi) == ("distances", "0.1.0", "py3", "none")
    assert tag in set(sys_tags()), "pip would not install it here"
    with zipfile.ZipFile(wheel) as archive:
        library = archive.read("distances/libdistances.so")
        assert f"Tag: {tag}\n" in archive.read("distances-0.1.0.dist-info/WHEEL").decode()
    asked = {tuple(map(int, found.split(b"."))) for found in re.findall(rb"GLIBC_(\d+\.\d+)", library)}
    major, minor = max(*asked, (2, 17))
    assert tag.platform == f"manylinux_{major}_{minor}_{os.uname().machine}"


def test_it_tells_what_is_linked_into_its_library(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        info = "distances-0.1.0.dist-info"
        bill = json.loads(archive.read(f"{info}/sboms/distances.cdx.json"))
        licences = archive.read(f"{info}/licenses/THIRD-PARTY-LICENSES.txt").decode()
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    assert bill["metadata"]["component"]["purl"] == "pkg:cargo/distances@0.1.0"
    scopes = {component["name"]: component["scope"] for component in bill["components"]}
    assert scopes["opsmith-core"] == scopes["half"] == scopes["Rust's standard library"] == "required"
    assert scopes["opsmith-macros"] == scopes["syn"] == "excluded", "macros are not linked"
    assert not scopes.keys() & {"opsmith-runtime", "pyo3", "clap"}, "of other crates of the workspace"
    references = {component["bom-ref"] for component in bill["components"]} | {"pkg:cargo/distances@0.1.0"}
    edges = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
    assert "pkg:cargo/opsmith@0.1.0" in edges["pkg:cargo/distances@0.1.0"]
    assert references >= edges.keys() | {needed for needs in edges.values() for needed in needs}
    text = json.dumps(bill) + licences
    assert str(REPOSITORY) not in text and str(Path.home()) not in text, "it names this machine's folders"
    for name in ("half 2.", "libc 0.", "Rust's standard library"):
        assert f"\n{name}" in licences or f", {name}" in licences, name
    assert "Permission is hereby granted" in licences and "syn 3." not in licences


# Builds as Cargo does, and tells how it was asked.
ZIGBUILD = """\
#!/bin/sh
echo "$1 $2 $3 $CARGO_ZIGBUILD_PYTHON_PATH" > {told}
shift 3
exec "$CARGO" build "$@"
"""


def test_a_link_that_has_become_a_file_is_no_licence(tmp_path: Path) -> None:
    (tmp_path / "LICENSE").write_text("../LICENSE\n")
    package = {"manifest_path": str(tmp_path / "Cargo.toml"), "license": "MIT", "license_file": None}
    [text] = _inventory._texts(package | {"name": "a", "authors": ["Somebody"]})
    assert text.startswith("Copyright (c) Somebody\n\nPermission is hereby granted")


def test_compatibility_is_kept_or_an_error(run: Run, build: Run, wheel: Path, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    zigbuild, told = programs / "cargo-zigbuild", tmp_path / "told"
    zigbuild.write_text(ZIGBUILD.format(told=shlex.quote(str(told))))
    zigbuild.chmod(0o755)
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    arguments = ["--out", tmp_path / "made", "--compatibility"]
    done = build(EXAMPLE, *arguments, "manylinux_2_99", PATH=path)
    assert done.returncode == 0, done.stderr
    host = f"{os.uname().machine}-unknown-linux-gnu"
    assert told.read_text() == f"zigbuild --target {host}.2.99 {sys.executable}\n"
    (made,) = (tmp_path / "made").iterdir()
    assert made.name == wheel.name, "the tag is that of what the library needs, not of what was asked for"
    done = build(EXAMPLE, *arguments, "manylinux2014", PATH=path)
    assert done.returncode == 1 and f"--target {host}.2.17 " in told.read_text()
    assert re.search(
        r"^error: the library needs .*GLIBC_2\.\d+, which not every system of manylinux2014 has$",
        done.stderr,
        re.MULTILINE,
    ), done.stderr
    hook = "from opsmith import build; print(build.get_requires_for_build_wheel({'compatibility': 'x'})[-1])"
    assert run(sys.executable, "-c", hook).stdout == "cargo-zigbuild\n"


def test_pip_and_the_program_make_the_same_file(run: Run, wheel: Path, tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps", "--no-index"]
    pip += ["--no-build-isolation", "-C", "profile=release"]
    done = run(*pip, "--wheel-dir", tmp_path / "pip", EXAMPLE)
    assert done.returncode == 0, done.stderr
    arguments = ["--manifest-path", EXAMPLE / "Cargo.toml", "--python", sys.executable, "--json"]
    done = run(PROGRAM, "wheel", "--release", *arguments, "--out", tmp_path / "program")
    assert done.returncode == 0, done.stderr
    for maker in ("pip", "program"):
        assert (tmp_path / maker / wheel.name).read_bytes() == wheel.read_bytes(), maker
    assert f'"bytes": {wheel.stat().st_size}' in done.stdout


USE = """\
import sys
import numpy as np
import distances

assert not {"torch", "tensorflow", "jax"} & sys.modules.keys(), "a framework was imported"
assert distances.__version__ == "0.1.0" and distances.__doc__.startswith("Pairwise Manhattan distances")
assert distances.__file__.startswith(sys.argv[2]), distances.__file__
x = np.array([[0.0, 1.0], [2.0, 3.0]])
expected = np.abs(x[:, None] - x[:1]).sum(-1)
match sys.argv[1]:
    case "numpy":
        z = distances.pairwise_manhattan_distance(x, x[:1])
        assert type(z) is np.ndarray
    case "torch":
        import torch
        own = torch.tensor(x, requires_grad=True)
        z = distances.pairwise_manhattan_distance(own, torch.from_numpy(x[:1]))
        assert type(z) is torch.Tensor
        z.sum().backward()
        np.testing.assert_array_equal(own.grad, [[0, 0], [1, 1]])
        z = z.detach().numpy()
    case "tensorflow":
        import tensorflow as tf
        own = tf.constant(x)
        with tf.GradientTape() as tape:
            tape.watch(own)
            z = tf.function(distances.pairwise_manhattan_distance)(own, own[:1])
        assert isinstance(z, tf.Tensor)
        assert tape.gradient(z, own).shape == (2, 2)
        z = z.numpy()
    case "jax":
        import jax
        jax.config.update("jax_enable_x64", True)
        own = jax.numpy.asarray(x)
        z = jax.jit(distances.pairwise_manhattan_distance)(own, own[:1])
        assert isinstance(z, jax.Array)
        jax.grad(lambda x: distances.pairwise_manhattan_distance(x, own[:1]).sum())(own)
np.testing.assert_array_equal(z, expected)
print("right")
"""


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_installed_it_runs(framework: str, run: Run, installed: Path) -> None:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    path = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
    done = run(sys.executable, "-c", USE, framework, installed, PYTHONPATH=path)
    assert done.stdout == "right\n", done.stderr


def test_installed_its_functions_are_pickled_as_the_modules(run: Run, installed: Path) -> None:
    path = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
    dumps = """
import distances, pickle
data = pickle.dumps(distances.pairwise_manhattan_distance)
assert b"/" not in data and pickle.dumps(distances.pairwise_manhattan_distance, 0).startswith(b"cdistances")
print(data)
"""
    done = run(sys.executable, "-c", dumps, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    loads = f"import pickle; print(pickle.loads({done.stdout.strip()})([[1.0]], [[3.0]]))"
    again = run(sys.executable, "-c", loads, PYTHONPATH=path)
    assert again.stdout == "[[2.]]\n", again.stderr


# Where the library itself looks: beside the file that its own code is in.
LOOKS = """
import ctypes
import distances

class Found(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), *((each, ctypes.c_void_p) for each in ("base", "symbol", "at"))]

library, found = ctypes.CDLL(distances._library.__file__), Found()
own = ctypes.c_char.in_dll(library, "opsmith_library_v1")
assert ctypes.CDLL(None).dladdr(ctypes.byref(own), ctypes.byref(found))
print(found.name.decode() + ".kernels")
"""


# Says that Cargo made a library elsewhere than it did: what lies beside it is the user's.
ELSEWHERE = """\
#!/bin/sh
told=$({cargo} "$@")
status=$?
printf '%s\\n' "$told" | sed 's|{made}|{copy}|g'
exit $status
"""


@pytest.fixture
def kernels(wheel: Path, tmp_path: Path) -> Path:
    """A folder of kernels, older than the library, beside a copy of what Cargo makes."""
    made = LIBRARIES.parent / "release" / "libdistances.so"
    copy, cargo = tmp_path / "built" / made.name, tmp_path / "cargo"
    folder = copy.with_name(f"{copy.name}.kernels")
    folder.mkdir(parents=True)
    shutil.copyfile(made, copy)
    (folder / "0123.kernel").write_bytes(b"compiled")
    (folder / "kernels.json").write_text("{}")
    os.utime(folder, (0, 0))
    real = shlex.quote(os.environ.get("CARGO", "cargo"))
    cargo.write_text(ELSEWHERE.format(cargo=real, made=made, copy=copy))
    cargo.chmod(0o755)
    return folder


def test_kernels_compiled_ahead_of_time_are_where_the_library_looks(
    run: Run, build: Run, kernels: Path, tmp_path: Path
) -> None:
    cargo = str(tmp_path / "cargo")
    done = build(EXAMPLE, "--out", tmp_path, CARGO=cargo)
    assert done.returncode == 0 and f"opsmith: {kernels} is older than the library" in done.stderr
    os.utime(kernels)
    done = build(EXAMPLE, "--out", tmp_path, CARGO=cargo)
    assert done.returncode == 0 and "older" not in done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps", "--no-index"]
    done = run(*pip, "--target", installed, wheel)
    assert done.returncode == 0, done.stderr
    path = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
    done = run(sys.executable, "-c", LOOKS, PYTHONPATH=path)
    folder = Path(done.stdout.strip())
    assert folder == installed / "distances" / "libdistances.so.kernels", done.stderr
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {
        "0123.kernel": b"compiled",
        "kernels.json": b"{}",
    }


TYPED = """\
import numpy as np
import distances

x = np.ones((2, 3))
z = distances.pairwise_manhattan_distance(x, x)
reveal_type(z)
version: str = distances.__version__
"""
WRONG = """\
distances.pairwise_manhattan_distance(x)
distances.pairwise_manhattan_distance_grad(x, x, z, a="k")
distances.cosine(x, x)
"""


def test_a_type_checker_accepts_a_right_use_and_refuses_wrong_ones(
    run: Run, installed: Path, tmp_path: Path
) -> None:
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(TYPED)
    wrong.write_text(TYPED + WRONG)
    mypy = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--cache-dir", os.devnull]
    done = run(*mypy, right, MYPYPATH=str(installed))
    assert done.returncode == 0, done.stdout
    assert 'Revealed type is "numpy.ndarray' in done.stdout
    done = run(*mypy, wrong, MYPYPATH=str(installed))
    lines = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    assert lines == {8, 9, 10}, done.stdout


def test_an_editable_one_loads_what_cargo_built(run: Run, tmp_path: Path) -> None:
    hook = "import sys; from opsmith import build; print(build.build_editable(sys.argv[1]))"
    done = run(sys.executable, "-c", hook, tmp_path, cwd=EXAMPLE)
    assert done.stdout == f"distances-0.1.0-py3-none-linux_{os.uname().machine}.whl\n", done.stderr
    with zipfile.ZipFile(tmp_path / done.stdout.strip()) as archive:
        assert not any(name.endswith(".so") for name in archive.namelist())
        archive.extractall(tmp_path)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    use = "import distances; print(distances._library.__file__, *distances.__all__)"
    done = run(sys.executable, "-c", use, PYTHONPATH=path)
    library, *names = done.stdout.split()
    assert library.endswith("/release/libdistances.so") and names == OPS[:1], done.stderr
