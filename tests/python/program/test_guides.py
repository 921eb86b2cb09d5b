"""The guides are followed word for word: commands, programs, changes of files, and what is printed."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
PROGRAM = Path(os.environ.get("OPSMITH_PROGRAM", REPOSITORY / "target" / "debug" / "opsmith"))
LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", REPOSITORY / "target" / "release"))


def text_of(page: str) -> str:
    """A page, by its path in the repository."""
    return (REPOSITORY / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[tuple[str, str]]:
    """The blocks of code of a page of `docs`, each with its language."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", text_of(f"docs/{page}"), re.MULTILINE | re.DOTALL)


def steps(page: str) -> list[tuple[str, str, str]]:
    """The blocks of a page: the file that the words before it name last, the language and the code."""
    named = r"(?:`([\w./]+)`:\n\n)?^```(\w+)\n(.*?)^```$"
    return re.findall(named, text_of(page), re.MULTILINE | re.DOTALL)


def write(folder: Path, name: str, code: str) -> None:
    """Write a file that a page tells to write."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code, encoding="utf-8")


def run(command: str, folder: Path, *, errors: bool = True) -> str:
    """What the command prints, with `errors` those too.

    It builds beside the repository, so that little is compiled.
    """
    path = os.pathsep.join([str(PROGRAM.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    variables = {
        "PATH": path,
        "CARGO_NET_OFFLINE": "true",
        "OPSMITH_CACHE_DIR": str(LIBRARIES.parent / "tests" / "jit"),
        "KEOPS_CACHE_FOLDER": str(LIBRARIES.parent / "tests" / "keops"),
        "TORCH_EXTENSIONS_DIR": str(LIBRARIES.parent / "tests" / "torch_extensions"),
    }
    # What is built lies where the page says, wherever the one who runs the tests keeps such things.
    inherited = {name: value for name, value in os.environ.items() if name != "CARGO_TARGET_DIR"}
    done = subprocess.run(
        ["sh", "-c", f"exec 2>&1\n{command}" if errors else command],
        cwd=folder,
        env=inherited | variables,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def assert_shown(shown: list[str], printed: str) -> None:
    """Each line that the page shows was printed, in that order; sizes and times may be others."""
    lines = iter(printed.splitlines())
    for line in shown:
        pattern = re.sub(r"\d+\\\.\d+(?=\\ MB|s\b)", ".*", re.escape(line.rstrip()))
        assert any(re.fullmatch(pattern, other.rstrip()) for other in lines), f"{line}\n---\n{printed}"


def follow(console: str, folder: Path) -> Path:
    """Run the commands of a block and compare; gives the folder they end in."""
    for part in console.removeprefix("$ ").split("\n$ "):
        command, *shown = part.rstrip("\n").split("\n")
        if command.startswith("cd "):
            folder = folder / command.removeprefix("cd ")
        else:
            assert_shown(shown, run(command, folder))
    return folder


def build_beside_the_repository(crate: Path) -> None:
    """Let a crate use what the tests have compiled, and the same versions of all it depends on."""
    shutil.copy(REPOSITORY / "Cargo.lock", crate)
    (crate / "target").symlink_to(PROGRAM.parents[1])


def change(crate: Path, shown: str, op: str, *added: str) -> None:
    """What the tutorial does with a new crate, whose source has what it shows: add an op and its tests."""
    source, tests = crate / "src" / "lib.rs", crate / "src" / "tests.rs"
    before = source.read_text(encoding="utf-8")
    assert shown in before
    changed, count = re.subn(r"^opsmith::library!.*\n", lambda _: op, before, flags=re.MULTILINE)
    assert count == 1
    source.write_text(changed, encoding="utf-8")
    tests.write_text("\n".join([tests.read_text(encoding="utf-8"), *added]), encoding="utf-8")


@pytest.fixture
def without_its_library() -> Iterator[None]:
    """The guide's library has the name of an example's, which Cargo makes again when its file is gone."""
    yield
    for folder in (PROGRAM.parent, PROGRAM.parent / "deps"):
        (folder / "libdistances.so").unlink(missing_ok=True)


@pytest.mark.usefixtures("without_its_library")
def test_the_first_op_is_made_as_the_guide_says(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    # A build for debugging shares what it depends on with the other tests.
    replaced = {
        "build --release\n": "build\n",
        "target/release": "target/debug",
        '"../opsmith/': f'"{REPOSITORY}/',
    }
    page = steps("docs/first-op.md")
    rust = [code for name, language, code in page if language == "rust" and not name]
    folder = tmp_path
    for name, language, code in page:
        for text, ours in replaced.items():
            code = code.replace(text, ours)
        if name:
            write(tmp_path if "/" in name else folder, name, code)
        if name.endswith("Cargo.toml"):
            build_beside_the_repository((tmp_path / name).parent)
        elif language == "console":
            folder = follow(code, folder).resolve()
            if "opsmith new" in code:
                build_beside_the_repository(folder)
                change(folder, *rust)
    assert folder == (tmp_path / "distances").resolve()


@pytest.mark.parametrize("origin", ["cpp-extensions", "tensorflow", "triton", "keops", "jax"])
def test_theirs_and_ours_print_what_the_page_says(origin: str, tmp_path: Path) -> None:
    page = REPOSITORY / "docs" / f"from-{origin}.md"
    linked = re.findall(r"\]\((\.\./examples/[^)]+\.rs)\)", page.read_text(encoding="utf-8"))
    sources = [(page.parent / source).read_text(encoding="utf-8") for source in linked]
    for name, language, code in steps(f"docs/from-{origin}.md"):
        if language == "console":
            follow(code, tmp_path)
        elif name:
            write(tmp_path, name, code)
        else:
            assert any(code in source for source in sources), f"no file is named for, or has\n{code}"


def test_the_programs_of_the_readme_run(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    for name, _, code in steps("README.md"):
        if name:
            write(tmp_path, name, code)
    assert run("python distances.py", tmp_path).splitlines()[-3:] == [
        "(3, 5)",
        "torch.Size([3, 4])",
        "(3, 4)",
    ]


def programs(page: str) -> list[tuple[str, str | None]]:
    """The programs in Python of a page, each with the text that the page shows right after it."""
    parts = [*blocks(page), ("", "")]
    return [
        (code, shown if kind == "text" else None)
        for (language, code), (kind, shown) in itertools.pairwise(parts)
        if language == "python"
    ]


@pytest.mark.parametrize("number", range(len(programs("author-guide.md"))))
def test_the_programs_of_the_authors_guide_print_what_it_shows(number: int, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    program, shown = programs("author-guide.md")[number]
    for name in ["distances", "zero_out"]:
        shutil.copy(LIBRARIES / f"lib{name}.so", tmp_path)
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    printed = run("python program.py", tmp_path, errors=False)
    assert shown is None or printed.split() == shown.split()


@pytest.mark.parametrize("page", ["gelu", "kernels", "lltm", "masks", "median_pool"])
def test_the_programs_of_an_operators_page_print_what_it_shows(page: str, tmp_path: Path) -> None:
    for framework in ["torch", "jax", "tensorflow"]:
        pytest.importorskip(framework)
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "release").symlink_to(LIBRARIES)
    for number, (program, shown) in enumerate(programs(f"operators/{page}.md")):
        # The page of LLTM has its cells from modules beside the library's sources.
        head = f"import sys\nsys.path.insert(0, {str(REPOSITORY / 'examples' / page)!r})\n"
        (tmp_path / f"{number}.py").write_text(head + program, encoding="utf-8")
        printed = run(f"python {number}.py", tmp_path, errors=False)
        assert shown is None or printed.split() == shown.split()


def test_the_cuda_guide_shows_the_example_as_it_is() -> None:
    page = (REPOSITORY / "docs" / "cuda.md").read_text(encoding="utf-8")
    folder = REPOSITORY / "examples" / "example" / "src"
    (kernel,) = re.findall(r"^```cuda\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert kernel == (folder / "example.cu").read_text(encoding="utf-8")
    (launch,) = re.findall(r"^fn example_cuda.*?^}$", page, re.MULTILINE | re.DOTALL)
    source = (folder / "lib.rs").read_text(encoding="utf-8")
    comments = re.compile(r"^ *//.*\n", re.MULTILINE)
    assert comments.sub("", launch) in comments.sub("", source)
