"""The programs of `docs/scaling.md` for Dask, xarray, Ray Data and Spark run as they are written."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import library_path

GUIDE = Path(__file__).parents[3] / "docs" / "scaling.md"


@pytest.mark.parametrize(
    ("section", "package"),
    [("", "dask"), ("Dask", "dask"), ("xarray", "xarray"), ("Ray Data", "ray"), ("Spark", "pyspark")],
)
def test_the_program_in_the_guide(section: str, package: str, tmp_path: Path) -> None:
    """Each line that it shows is what is printed."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: it is too large to be among the tests' requirements")
    if package == "pyspark" and shutil.which("java") is None:
        pytest.skip("Spark needs Java, which is not installed")
    guide = GUIDE.read_text(encoding="utf-8")
    text = guide.split(f"\n### {section}\n")[1] if section else guide
    program = text.split("```python\n")[1].split("```")[0]
    folder = tmp_path / "target" / "release"
    folder.mkdir(parents=True)
    for name in ("distances", "reductions"):
        (folder / f"lib{name}.so").symlink_to(library_path(name))
    variables = os.environ | {"PYSPARK_PYTHON": sys.executable, "OPSMITH_NUM_THREADS": "1"}
    # Spark reads a function's source.
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "program.py"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=tmp_path, env=variables, check=False
    )
    assert done.returncode == 0, done.stderr
    shown = re.findall(r"^print\(.*\)    # (.*)$", program, re.MULTILINE)
    assert shown and done.stdout.splitlines()[-len(shown) :] == shown, done.stdout
