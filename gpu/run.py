"""Everything that needs a card, in one go: values, gradients, streams, misuse, graphs, the sanitizer, times.

    python gpu/run.py                   # on a machine with a card
    python gpu/run.py --device cpu      # a dry run on the processor, which shows nothing of a card

It needs PyTorch for CUDA with NumPy, and uses JAX, and ONNX Runtime with `onnx`, where they are installed. It
compiles nothing but kernels: `cargo xtask gpu --prepare FOLDER` has put the libraries and the package beside
it. Each section has a process of its own, so that one which ends its process, or breaks the card's context,
leaves the others. With --jobs, several run at once, those with many ops in parts; the times are taken alone,
in the end. The exit status is 0 where all that ran passed and met its targets, 1 where something failed, 2
where there is no card or something else is missing. What was not run is listed, and why.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import devices
from results import FAILED, NOT_RUN, Results, markdown

HERE = Path(__file__).resolve().parent
SECTIONS = {
    "values": "values",
    "streams": "streams",
    "misuse": "misuse",
    "compiled": "torch.compile",
    "with_jax": "JAX",
    "with_onnx": "ONNX Runtime",
    "engine": "engine",
    "sanitizer": "compute-sanitizer",
    "speed": "times",
}
"""The modules of the sections, and what their rows call them."""
ALONE = "speed"
"""The section beside which nothing else runs."""
PARTED = ("values", "with_jax", "with_onnx", "sanitizer")
"""Those whose ops are shared out among processes."""
NO_CARD = 2
ENDED = "ended"
"""The fact by which a process says that nothing of its section is left."""
SECTION_SECONDS = 3600


def at_least_one(text: str) -> int:
    """A number of processes."""
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu is a dry run")
    parser.add_argument("--quick", action="store_true", help="fewer calls and rounds")
    parser.add_argument(
        "--only", action="append", choices=list(SECTIONS), help="this section; may be repeated"
    )
    parser.add_argument("--jobs", type=at_least_one, default=1, help="how many processes at once")
    parser.add_argument(
        "--seconds", type=float, default=SECTION_SECONDS, help="the most that a process may take"
    )
    parser.add_argument(
        "--libraries", type=Path, default=HERE.parent / "libraries", help="the built libraries"
    )
    parser.add_argument("--out", type=Path, default=Path.cwd(), help="where gpu.md and gpu.json are written")
    parser.add_argument("--section", choices=list(SECTIONS), help=argparse.SUPPRESS)
    parser.add_argument("--part", type=devices.Part.of, default=devices.Part(), help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Run what is asked for; the exit status."""
    options = arguments()
    package = HERE.parent / "package"
    if package.is_dir():
        sys.path.insert(0, str(package))
    if options.section:
        return one_section(options)
    problem = missing(options)
    if problem:
        print(f"error: {problem}", file=sys.stderr)
        return NO_CARD
    results = Results(facts=facts(options))
    options.out.mkdir(parents=True, exist_ok=True)
    for found in every_section(options):
        results.add(found)
        # What ends the run leaves what there is by then.
        results.write(options.out / "gpu.json")
    titles = list(SECTIONS.values())
    results.rows.sort(key=lambda row: titles.index(row.section) if row.section in titles else len(titles))
    return conclude(results, options)


def every_section(options: argparse.Namespace) -> Iterator[Results]:
    """What the sections that are asked for give, as they end; the times are taken in the end."""
    wanted: list[str] = options.only or list(SECTIONS)
    tasks = [
        (name, devices.Part(index, count))
        for name in wanted
        if name != ALONE
        for count in [options.jobs if name in PARTED else 1]
        for index in range(count)
    ]
    with tempfile.TemporaryDirectory() as cache, ThreadPoolExecutor(options.jobs) as pool:
        running = [pool.submit(in_a_process, name, part, options, cache) for name, part in tasks]
        for done in as_completed(running):
            yield done.result()
        if ALONE in wanted:
            yield in_a_process(ALONE, devices.Part(), options, cache)


def missing(options: argparse.Namespace) -> str | None:
    """What stands in the way of the run, and what to do about it."""
    if options.device == "cuda" and (problem := devices.look()):
        return (
            f"{problem}\n  → run it on a machine with a card: `cargo xtask gpu --prepare FOLDER` makes a "
            "folder to take there; or try the steps on the processor by --device cpu"
        )
    for module, package in (("torch", "PyTorch"), ("numpy", "NumPy")):
        try:
            importlib.import_module(module)
        except ImportError as error:
            return f"{package} is not here ({error})\n  → pip install {module}, or use a Python that has it"
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        return (
            f"PyTorch {torch.__version__} cannot use the card: it is built for CUDA {torch.version.cuda}\n"
            "  → install a build for CUDA that the driver serves"
        )
    prepared = "`cargo xtask gpu --prepare FOLDER` makes a folder with all of it"
    if not sorted(options.libraries.glob("lib*.so")):
        return f"there are no libraries in {options.libraries}\n  → {prepared}; or name them by --libraries"
    try:
        import opsmith  # noqa: F401
    except ImportError as error:
        return f"the package opsmith is not here ({error})\n  → {prepared}; or install its wheel"
    return None


def facts(options: argparse.Namespace) -> dict[str, Any]:
    """What a reader must know of the machine and of what was run."""
    import numpy
    import torch

    found: dict[str, Any] = {"date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}"}
    manifest = HERE.parent / "manifest.json"
    if manifest.exists():
        found |= json.loads(manifest.read_text())
    if options.device == "cuda":
        cards = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        found["cards"] = ", ".join(
            f"{x.name} (sm_{x.major}{x.minor}, {x.multi_processor_count} multiprocessors, "
            f"{x.total_memory >> 30} GiB)"
            for x in cards
        )
        found["driver"] = driver()
    else:
        found["cards"] = "none: **a dry run on the processor, which shows nothing of a card**"
    found["packages"] = f"torch {torch.__version__}, CUDA {torch.version.cuda}, numpy {numpy.__version__}"
    found["system"] = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return found


def driver() -> str:
    """The driver's version, and the clocks, as `nvidia-smi` tells them."""
    query = ["nvidia-smi", "--query-gpu=driver_version,clocks.max.sm,power.limit", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "not told: nvidia-smi is not here"


def one_section(options: argparse.Namespace) -> int:
    """A section in this process: its results go to the file that `--json` names."""
    results = Results(file=options.json)
    device = devices.Card() if options.device == "cuda" else devices.Processor()
    module = importlib.import_module(options.section)
    job = devices.Job(device, options.libraries.resolve(), options.quick, options.part)
    module.run(job, results)
    if options.json:
        results.facts[ENDED] = True
        results.write(options.json)
    return 1 if results.of(FAILED) else 0


def in_a_process(name: str, part: devices.Part, options: argparse.Namespace, cache: str) -> Results:
    """A section, or a part of one, in a process of its own; one that does not come to its end has failed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.json"
        command = [sys.executable, str(HERE / "run.py"), "--section", name, "--json", str(file)]
        command += ["--device", options.device, "--libraries", str(options.libraries.resolve())]
        command += ["--part", str(part), *(["--quick"] if options.quick else [])]
        # The cache of compiled kernels is the run's own: whether the compiler works here is looked at too.
        environment = os.environ | {"OPSMITH_CACHE_DIR": cache}
        print(f"{SECTIONS[name]}{part.title}:", flush=True)
        try:
            done = subprocess.run(command, env=environment, check=False, timeout=options.seconds)
            status, problem = done.returncode, f"its process ended with exit status {done.returncode}"
        except subprocess.TimeoutExpired:
            status, problem = None, f"its process did not end within {options.seconds} s"
        results = Results.read(file) if file.exists() else Results()
        if not results.facts.pop(ENDED, False) or status not in (0, 1):
            results.say(SECTIONS[name], f"the rest{part.title}", FAILED, problem)
        return results


def conclude(results: Results, options: argparse.Namespace) -> int:
    """Write the reports, sum up, and give the exit status."""
    options.out.mkdir(parents=True, exist_ok=True)
    results.write(options.out / "gpu.json")
    (options.out / "gpu.md").write_text(markdown(results))
    failed, skipped = results.of(FAILED), results.of(NOT_RUN)
    print(f"\n{markdown(results)}")
    for line in results.missed:
        print(f"target missed: {line}")
    passed = len(results.rows) - len(failed) - len(skipped)
    print(
        f"{passed} passed, {len(failed)} failed, {len(skipped)} not run, {len(results.missed)} targets missed"
    )
    print(f"wrote {options.out / 'gpu.md'} and gpu.json; put the former into docs/cuda.md")
    return 1 if failed or results.missed else 0


if __name__ == "__main__":
    sys.exit(main())
