"""The first programs of pages run as they are written, where an author's libraries are built."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
LIBRARIES = Path(os.environ.get("OPSMITH_LIB_DIR", REPOSITORY / "target" / "release"))


def first_block(page: str, language: str) -> str:
    """The first block of code of a page in this language."""
    text = (REPOSITORY / "docs" / page).read_text(encoding="utf-8")
    return text.split(f"```{language}\n")[1].split("```")[0]


def run(command: list[str], folder: Path) -> str:
    """What a command prints in a folder that has the libraries where pages name them."""
    (folder / "target").mkdir()
    (folder / "target" / "release").symlink_to(LIBRARIES)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_how_it_works_shows_a_formula_and_sources(tmp_path: Path) -> None:
    formula, vectors, *source = run(
        [sys.executable, "-c", first_block("how-it-works.md", "python")], tmp_path
    ).splitlines()
    assert formula == "y = x * normal_cdf(x)"
    assert "float32" in vectors
    assert any("__global__" in line for line in source)


def test_a_function_answers_in_the_kind_that_it_is_given(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = first_block("frameworks.md", "python")
    shown = re.findall(r"^print\(.*\)    # (.*)$", program, re.MULTILINE)
    assert len(shown) == 2
    assert run([sys.executable, "-c", program], tmp_path).splitlines() == shown


def test_a_function_works_in_jax_as_the_page_says(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    text = (REPOSITORY / "docs" / "frameworks.md").read_text(encoding="utf-8").split("\n## JAX\n")[1]
    program = text.split("```python\n")[1].split("```")[0]
    shown = re.findall(r"^print\(.*\)    # (.*)$", program, re.MULTILINE)
    assert len(shown) == 2
    assert run([sys.executable, "-c", program], tmp_path).splitlines() == shown


def test_models_are_served_as_the_page_says(tmp_path: Path) -> None:
    for package in ("torch", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    text = (REPOSITORY / "docs" / "serving.md").read_text(encoding="utf-8").split("## AOTInductor")[0]
    program = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    (shown,) = re.findall(r"^print\(.*\)    # (.*)$", program, re.MULTILINE)
    assert run([sys.executable, "-c", program], tmp_path).splitlines()[-1] == shown
    assert (tmp_path / "model.onnx").is_file() and (tmp_path / "model.graph").is_file()


def test_the_c_program_describes_a_library(tmp_path: Path) -> None:
    source, program = tmp_path / "describe.c", tmp_path / "describe"
    source.write_text(first_block("abi.md", "c"), encoding="utf-8")
    header = REPOSITORY / "include"
    strict = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    compiler = ["cc", *strict, "-I", str(header), str(source), "-ldl", "-o", str(program)]
    subprocess.run(compiler, check=True, timeout=120)
    described = json.loads(run([str(program)], tmp_path))
    assert described["name"] == "distances"
    assert "PairwiseManhattanDistance" in [op["name"] for op in described["ops"]]
