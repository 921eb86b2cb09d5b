"""The values' calls again under each tool of NVIDIA's `compute-sanitizer`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from devices import Job
from results import FAILED, NOT_RUN, PASSED, Results

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
FOUND_SOMETHING = 86
"""The exit status by which the sanitizer says so: none of ours."""
SUMMARY = re.compile(r"(ERROR|RACECHECK) SUMMARY")
NOTHING_RUN = "terminated before first instrumented API call"
"""The sanitizer's words for a program that has not used the card."""
ALL_PASSED = re.compile(r"^\d+ passed, 0 failed", re.MULTILINE)
"""The last line of `run.py`."""
TOOL_SECONDS = 3600
TAIL = 40


def program() -> str | None:
    """Where the sanitizer is."""
    folders = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    beside = os.pathsep.join(str(Path(folder) / "bin") for folder in folders if folder)
    return shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=beside)


def run(job: Job, results: Results) -> None:
    """Run each tool, in processes of their own."""
    sanitizer = program()
    if sanitizer is None:
        message = (
            "compute-sanitizer is not here: it comes with the CUDA toolkit; put it into PATH or set CUDA_HOME"
        )
        results.say("compute-sanitizer", "everything", NOT_RUN, message)
        return
    own = [sys.executable, str(Path(__file__).with_name("run.py")), "--libraries", str(job.folder), "--quick"]
    own += ["--device", "cuda" if job.device.is_card else "cpu", "--section", "values"]
    own += ["--part", str(job.part)]
    # The caching allocator hides the bounds of tensors from it.
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "OPSMITH_CUDA_FLAGS": "-lineinfo"}
    for tool in TOOLS:
        command = [sanitizer, "--tool", tool, "--error-exitcode", str(FOUND_SOMETHING), *own]
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False, timeout=TOOL_SECONDS
            )
        except subprocess.TimeoutExpired:
            results.say("compute-sanitizer", tool, FAILED, f"it did not end within {TOOL_SECONDS} s")
            continue
        lines = (done.stdout + done.stderr).splitlines()
        summary = next((line.strip("= ") for line in reversed(lines) if SUMMARY.search(line)), "")
        if done.returncode == 0 and re.search(r"\b0 errors", summary):
            results.say("compute-sanitizer", tool, PASSED)
            continue
        if NOTHING_RUN in done.stdout + done.stderr and ALL_PASSED.search(done.stdout):
            results.say("compute-sanitizer", tool, NOT_RUN, "no call of this part runs a CUDA kernel")
            continue
        marked = [line for line in lines if line.startswith("=========") or "failed:" in line] or lines
        text = f"exit status {done.returncode}, {summary or 'no summary'}: {' '.join(marked[:TAIL])}"
        results.say("compute-sanitizer", tool, FAILED, text)
