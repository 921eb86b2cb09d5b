"""What cannot be made a wheel ends in an instruction; and how what `Cargo.toml` says is told in Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import LIBRARIES
from opsmith import build as build_hooks
from opsmith.build import _metadata, _package
from opsmith.build._crate import Crate, _carried, find
from opsmith.build._elf import Needs, oldest_system
from opsmith.build._metadata import Metadata, python_version
from opsmith.build._sdist import sdist
from opsmith.jit import BuildError
from packaging.metadata import Metadata as Checked

REPOSITORY = Path(__file__).parents[3]
Run = Callable[..., "subprocess.CompletedProcess[str]"]
MANIFEST = """\
[package]
name = "row-ops"
version = "0.2.0-beta.3"
edition = "2024"
description = "Rows,\\n scaled"
authors = ["Ada Lovelace <ada@example.org>", "Grace Hopper"]
license = "MIT/Apache-2.0"
repository = "https://example.org/rows"
keywords = ["rows", "scale"]

[lib]
crate-type = ["cdylib"]

[workspace]
"""


@pytest.fixture
def crate(tmp_path: Path) -> Iterator[Path]:
    """A crate whose library has nothing of Opsmith, and is not left beside those that have."""
    folder = tmp_path / "größere crate"
    (folder / "src").mkdir(parents=True)
    (folder / "Cargo.toml").write_text(MANIFEST)
    (folder / "src" / "lib.rs").write_text("//! Nothing.\n")
    yield folder
    (LIBRARIES.parent / "release" / "librow_ops.so").unlink(missing_ok=True)


def change(crate: Path, was: str, becomes: str) -> None:
    text = (crate / "Cargo.toml").read_text()
    assert was in text
    (crate / "Cargo.toml").write_text(text.replace(was, becomes))


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1 and not done.stdout and "Traceback" not in done.stderr, done.stderr
    assert "error: " in done.stderr
    return done.stderr


def test_without_a_crate(build: Run, tmp_path: Path) -> None:
    said = refusal(build(tmp_path))
    assert "Cargo.toml: there is no such file\n  → `opsmith new NAME` makes a crate" in said


def test_without_cargo(build: Run, crate: Path) -> None:
    said = refusal(build(crate, CARGO="no-such-cargo"))
    assert "there is no `no-such-cargo`, which builds need\n  → install Rust" in said


def test_without_a_linker_for_older_systems(build: Run, crate: Path, tmp_path: Path) -> None:
    cargo = str(shutil.which(os.environ.get("CARGO", "cargo")))
    done = build(crate, "--compatibility", "manylinux_2_28", PATH=str(tmp_path), CARGO=cargo)
    assert done.returncode == 1 and done.stderr.endswith("  → pip install cargo-zigbuild\n"), done.stderr


@pytest.mark.parametrize(
    "compatibility", ["musllinux_1_2", "manylinux_2_12", "manylinux_2_28_x86_64", "2.28"]
)
def test_a_compatibility_that_is_none(compatibility: str) -> None:
    with pytest.raises(BuildError, match=f"no compatibility '{compatibility}'\n  → name .* manylinux_2_17, "):
        oldest_system(compatibility)


def test_a_workspace(build: Run) -> None:
    said = refusal(build(REPOSITORY))
    advice = "go to the folder of one of its crates: activations, composed, distances"
    assert f"is a workspace\n  → {advice}" in said


def test_a_manifest_that_is_none(build: Run, crate: Path) -> None:
    change(crate, 'name = "row-ops"', "name = 7")
    assert "Cargo cannot read it:" in refusal(build(crate))


def test_a_crate_that_makes_no_shared_library(build: Run, crate: Path) -> None:
    change(crate, 'crate-type = ["cdylib"]', "")
    said = refusal(build(crate))
    assert "makes no shared library\n  → write into it:" in said and 'crate-type = ["cdylib"]' in said


def test_a_source_that_does_not_compile(build: Run, crate: Path) -> None:
    (crate / "src" / "lib.rs").write_text("fn f( {}\n")
    said = refusal(build(crate))
    assert "src/lib.rs:1" in said and "`row-ops` could not be built; Cargo's messages, above, say why" in said


@pytest.mark.parametrize("name", ["__init__.py", "py.typed"])
def test_python_is_looked_at_before_cargo_compiles(build: Run, crate: Path, name: str) -> None:
    (crate / "src" / "lib.rs").write_text("fn f( {}\n")
    (crate / "python").mkdir()
    (crate / "python" / name).write_text("x = (")
    said = refusal(build(crate))
    assert f"python/{name}" in said and "src/lib.rs" not in said


def test_a_library_that_is_none_of_operators(build: Run, crate: Path, tmp_path: Path) -> None:
    said = refusal(build(crate, "--out", tmp_path / "dist"))
    assert "`row-ops` was built, but cannot be used: " in said
    assert "\n  → list the ops of the crate once, at its root: opsmith::library!" in said
    assert not (tmp_path / "dist").exists()


def test_a_library_without_ops(build: Run, crate: Path) -> None:
    # The repository's own profile, so that nothing of Opsmith is compiled again.
    text = (REPOSITORY / "Cargo.toml").read_text()
    profile = text.partition("[profile.release]")[2].partition("# What is shipped")[0]
    opsmith = f'[dependencies]\nopsmith = {{ path = "{REPOSITORY / "crates" / "opsmith"}" }}\n'
    change(crate, "[workspace]", f"{opsmith}\n[workspace]\n\n[profile.release]{profile}")
    (crate / "Cargo.lock").write_bytes((REPOSITORY / "Cargo.lock").read_bytes())
    (crate / "src" / "lib.rs").write_text('opsmith::library! { name = "row_ops", ops = [] }\n')
    assert "`row-ops` was built, but its library has no ops\n  → list" in refusal(build(crate))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"profle": "release"}, "the setting `profle` does not exist"),
        ({"profile": ["dist", "release"]}, "the setting `profile` takes one value, not ['dist', 'release']"),
    ],
)
@pytest.mark.parametrize(
    "hook", ["get_requires_for_build_wheel", "build_wheel", "build_editable", "build_sdist"]
)
def test_a_setting_that_there_is_not(
    hook: str, settings: dict[str, object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = () if hook.startswith("get") else (str(tmp_path),)
    # What ends the program is written alone, without a traceback.
    with pytest.raises(SystemExit) as told:
        getattr(build_hooks, hook)(*folder, config_settings=settings)
    advice = "the settings are `-C profile=release` and `-C compatibility=manylinux_2_28`"
    assert told.value.code == f"error: {message}\n  → {advice}"


@pytest.mark.parametrize("name", ["json", "numpy", "torch", "opsmith"])
def test_a_module_that_is_python_s_or_a_framework_s(name: str) -> None:
    with pytest.raises(
        BuildError, match=f"`import {name}` means something else in Python\n  → choose another"
    ):
        _package._check_name(name, Metadata("ops", "1"))


def test_a_module_that_another_package_has() -> None:
    with pytest.raises(BuildError, match="the module `pytest` is installed already, by pytest\n  → choose"):
        _package._check_name("pytest", Metadata("ops", "1"))
    _package._check_name("pytest", Metadata("PyTest", "1"))


def test_versions() -> None:
    pairs = {
        "1.2.3": "1.2.3",
        "0.1.0-alpha": "0.1.0a0",
        "0.1.0-alpha.1": "0.1.0a1",
        "0.1.0-beta2": "0.1.0b2",
        "0.1.0-rc.1": "0.1.0rc1",
        "0.1.0-dev.4": "0.1.0.dev4",
        "0.1.0+cuda.12-X": "0.1.0+cuda.12.x",
    }
    assert {version: python_version(version) for version in pairs} == pairs
    with pytest.raises(
        BuildError, match=r"'0\.1\.0-nightly' has no counterpart in Python\n  → write in Cargo.toml"
    ):
        python_version("0.1.0-nightly")


def test_what_the_manifest_says_is_told(crate: Path) -> None:
    (crate / "COPYING").write_text("Do as you please.\n")
    (crate / "README.md").write_text("# Größere Zeilen\n")
    metadata = _metadata.read(find(crate))
    assert metadata.stem == "row_ops-0.2.0b3"
    told = Checked.from_email(metadata.text())
    assert (told.name, str(told.version), told.summary) == ("row-ops", "0.2.0b3", "Rows, scaled")
    assert (told.author, told.author_email) == ("Grace Hopper", "Ada Lovelace <ada@example.org>")
    assert told.license_expression == "MIT OR Apache-2.0" and told.license_files == ["COPYING"]
    assert told.project_urls == {"Repository": "https://example.org/rows"}
    assert told.keywords == ["rows", "scale"] and str(told.requires_python) == ">=3.10"
    assert told.description == "# Größere Zeilen\n" and told.description_content_type == "text/markdown"


PROJECT = """\
[project]
name = "rows"
version = "3.0rc1"
authors = [{ name = "Mary Somerville" }, { email = "office@example.org" }]
license = "MIT"
license-files = ["texts/*"]
readme = { text = "Rows.", content-type = "text/plain" }
dependencies = ["NumPy >= 2", "scipy; python_version > '3.11'"]
optional-dependencies = { plots = ["matplotlib>=3"] }
classifiers = ["Typing :: Typed"]
urls = { Questions = "https://example.org/questions" }
"""


def test_what_a_project_says_comes_first(crate: Path) -> None:
    (crate / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    (crate / "texts").mkdir()
    (crate / "texts" / "MIT.txt").write_text("As is.\n")
    told = Checked.from_email(_metadata.read(find(crate)).text())
    assert (told.name, str(told.version), told.summary) == ("rows", "3.0rc1", "Rows, scaled")
    assert (told.author, told.author_email) == ("Mary Somerville", "office@example.org")
    assert told.license_expression == "MIT" and told.license_files == ["texts/MIT.txt"]
    assert told.description == "Rows." and told.classifiers == ["Typing :: Typed"]
    assert told.project_urls == {"Questions": "https://example.org/questions"}
    needs = [str(need) for need in told.requires_dist or ()]
    assert needs[0].startswith("opsmith")
    assert needs[1:] == ["NumPy>=2", 'scipy; python_version > "3.11"', 'matplotlib>=3; extra == "plots"']


def test_sources_are_packed_where_they_do_by_themselves(crate: Path, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"has no pyproject.toml.*\n  → write one:"):
        sdist(find(crate), tmp_path)
    (crate / "pyproject.toml").write_text('[build-system]\nrequires = ["opsmith"]\n')
    (crate / "LICENSE").write_text("As is.\n")
    (crate / "python").mkdir()
    (crate / "python" / "layers.py").write_text("")
    (crate / "dist").mkdir()
    (crate / "dist" / "row_ops-0.1.0-py3-none-any.whl").write_text("")
    # What Cargo is not to publish is what it has no use for.
    change(crate, 'edition = "2024"', 'edition = "2024"\nexclude = ["python"]')
    made = sdist(find(crate), tmp_path)
    assert made.name == "row_ops-0.2.0b3.tar.gz"
    with tarfile.open(made) as archive:
        names = {name.removeprefix("row_ops-0.2.0b3/") for name in archive.getnames()}
    assert names >= {"Cargo.toml", "LICENSE", "PKG-INFO", "pyproject.toml", "python/layers.py", "src/lib.rs"}
    assert not any(name.startswith("dist/") for name in names)
    first = made.read_bytes()
    assert sdist(find(crate), tmp_path).read_bytes() == first
    opsmith = REPOSITORY / "crates" / "opsmith"
    change(crate, "[workspace]", f'[dependencies]\nopsmith = {{ path = "{opsmith}" }}\n[workspace]')
    with pytest.raises(BuildError, match="which others do not have\n  → give a version as well: opsmith = "):
        sdist(find(crate), tmp_path)
    # With a version Cargo leaves the path out of what it publishes.
    change(crate, "opsmith = { path", 'opsmith = { version = "0.1", path')
    with tarfile.open(sdist(find(crate), tmp_path)) as archive:
        manifest = archive.extractfile("row_ops-0.2.0b3/Cargo.toml")
        assert manifest is not None
        text = manifest.read().decode()
    assert '[dependencies.opsmith]\nversion = "0.1"\n' in text and str(opsmith) not in text
    assert text.endswith("\n[workspace]\n"), "it is built wherever it is unpacked"
    with pytest.raises(BuildError, match=r"is part of the workspace .*\n  → give others wheels"):
        sdist(find(REPOSITORY / "examples" / "distances"), tmp_path)


def test_a_version_of_opsmith_is_the_package_s_own(crate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(crate / "cache"))

    def found(source: str | None) -> Crate:
        return Crate(crate, crate, {"dependencies": [{"name": "opsmith", "source": source}]})

    flag, setting = _carried(found("registry+https://github.com/rust-lang/crates.io-index"))
    assert flag == "--config"
    key, _, path = setting.partition("=")
    assert key == "patch.crates-io.opsmith.path" and (Path(path.strip('"')) / "Cargo.toml").exists()
    assert _carried(found(None)) == []


def test_a_readme_in_another_encoding(crate: Path) -> None:
    (crate / "README.md").write_bytes("Größere Zeilen".encode("latin-1"))
    with pytest.raises(BuildError, match=r"can't decode byte .*\n  → it must be UTF-8"):
        _metadata.read(find(crate))


def test_a_folder_that_cannot_be_written_to_and_a_date_that_is_none(
    crate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (crate / "pyproject.toml").write_text('[build-system]\nrequires = ["opsmith"]\n')
    with pytest.raises(
        BuildError, match=r"row_ops-0.2.0b3.tar.gz cannot be written: .*\n  → choose a folder"
    ):
        sdist(find(crate), crate / "Cargo.toml" / "dist")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "today")
    with pytest.raises(BuildError, match="SOURCE_DATE_EPOCH is 'today'\n  → give it seconds since 1970"):
        sdist(find(crate), crate)


@pytest.mark.parametrize(
    ("libraries", "versions", "platform"),
    [
        (["libc.so.6"], ["GLIBC_2.2.5"], "manylinux_2_17_x86_64"),
        (
            ["libc.so.6", "libm.so.6", "libgcc_s.so.1"],
            ["GLIBC_2.9", "GLIBC_2.28", "GCC_3.0"],
            "manylinux_2_28_x86_64",
        ),
        (["libc.so.6"], ["GLIBC_2.34", "GLIBC_ABI_DT_RELR"], "manylinux_2_36_x86_64"),
        (["libc.so.6"], ["GLIBC_2.34", "GLIBC_PRIVATE"], "linux_x86_64"),
        (["libc.so.6", "libopenblas.so.0"], ["GLIBC_2.17"], "linux_x86_64"),
        (["libc.musl-x86_64.so.1"], [], "linux_x86_64"),
    ],
)
def test_platforms(libraries: list[str], versions: list[str], platform: str) -> None:
    assert Needs("x86_64", tuple(libraries), frozenset(versions)).platform == platform


def test_what_an_older_system_lacks() -> None:
    needs = Needs("x86_64", ("libc.so.6",), frozenset(["GLIBC_2.2.5", "GLIBC_2.28", "GLIBC_2.34", "GCC_3.0"]))
    assert needs.newer_than((2, 28)) == ("GLIBC_2.34",) and not needs.runs_on((2, 28))
    assert needs.runs_on((2, 34))
    assert Needs("x86_64", ("libz.so.1",), frozenset()).newer_than((2, 34)) == ("libz.so.1",)
