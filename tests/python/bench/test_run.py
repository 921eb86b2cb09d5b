"""The runner of the benchmarks: every suite runs, what was measured is kept, and failures are shown."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]

SUITE = """
import os
from harness import OURS, Case, Target

TITLE = "Suite {name}"


def cases(options):
    contenders = {{OURS: lambda: 2.0, "peer": lambda: 1.0}}
    yield Case("first", contenders, [Target(1.5, ("peer",))], rounds=1)
    {then}
    yield Case("second", contenders, rounds=1)
"""


def test_a_suite_that_fails_or_dies_takes_nothing_along(tmp_path: Path) -> None:
    benches = tmp_path / "benches"
    benches.mkdir()
    for name in ["run.py", "harness.py", "report.py"]:
        shutil.copy(REPOSITORY / "benches" / name, benches)
    (tmp_path / "demo").symlink_to(REPOSITORY / "demo")
    ends = {"a": "raise OSError('no peer\\nhere')", "b": "os._exit(3)", "c": "pass"}
    for name, then in ends.items():
        (benches / f"suite_{name}.py").write_text(SUITE.format(name=name, then=then))
    libraries = tmp_path / "target" / "release"
    libraries.mkdir(parents=True)
    command = [sys.executable, str(benches / "run.py"), "--quick", "--libraries", str(libraries)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr
    assert "raise OSError" in done.stderr, "the failing suite's own words"
    assert done.stdout.splitlines()[-5:] == [
        "target missed: a: first (2.000, target 1.5)",
        "failed: a: OSError: no peer",
        "target missed: b: first (2.000, target 1.5)",
        "failed: b: its process died",
        "target missed: c: first (2.000, target 1.5)",
    ]
    measured = {name: json.loads((tmp_path / f"target/bench/{name}.json").read_text()) for name in ends}
    names = {name: [result["name"] for result in suite["results"]] for name, suite in measured.items()}
    assert names == {"a": ["first"], "b": ["first"], "c": ["first", "second"]}
    assert "Suite b" in done.stdout and "**Not all of it could be measured**: its process died" in done.stdout
