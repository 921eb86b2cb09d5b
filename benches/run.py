"""Runs the benchmark suites, each in a process of its own, and writes the report."""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import sys
import traceback
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from harness import ROOT, SKIPPED, Options, isolated, measured
from report import SuiteReport, facts, tables, write

OUT = ROOT / "docs" / "benchmarks"


def suites() -> list[str]:
    """The names of the suites: the modules `suite_<name>.py` beside this file."""
    return sorted(path.stem.removeprefix("suite_") for path in Path(__file__).parent.glob("suite_*.py"))


def run_suite(name: str, options: Options) -> None:
    """Measure one suite in this process; what is known of it after each case is kept in a file."""
    # The programs of the environment, such as ninja, are found by name.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    report = SuiteReport(name)
    try:
        module = importlib.import_module(f"suite_{name}")
        report.title, report.text = module.TITLE, inspect.cleandoc(module.__doc__ or "")
        for result in measured(module.cases(options), options):
            print(f"  {name}: {result.name}", flush=True)
            report.results.append(result)
            report.skipped = SKIPPED
            report.keep(options.kept(name))
    except Exception as error:
        traceback.print_exc()
        report.failure = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        report.keep(options.kept(name))


def suite(name: str, options: Options) -> SuiteReport:
    """The report of one suite, also when it fails or its process dies: what had been measured is in it."""
    kept = options.kept(name)
    SuiteReport(name).keep(kept)
    try:
        isolated(run_suite, name, options)
    except BrokenProcessPool:
        report = SuiteReport.kept(kept)
        report.failure = "its process died"
        report.keep(kept)
    return SuiteReport.kept(kept)


def main() -> int:
    """Run what the command line asks for; the exit status is 1 when a target is missed or a suite fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--libraries", type=Path, required=True, help="the folder of the built libraries")
    parser.add_argument("--quick", action="store_true", help="fewer rounds; writes nothing")
    parser.add_argument("suites", nargs="*", choices=[[], *suites()], help="all of them if none is named")
    arguments = parser.parse_args()
    options = Options(arguments.libraries.resolve(), arguments.quick)
    reports = [suite(name, options) for name in arguments.suites or suites()]
    print(f"\n{facts()}")
    for report in reports:
        print(f"\n{report.title}\n\n{tables(report)}")
    if not arguments.quick and not arguments.suites:
        print(f"\nwrote {write(reports, OUT).relative_to(ROOT)}")
    print(f"results: {options.kept('*')}")
    unhappy = [line for report in reports for line in complaints(report)]
    for line in unhappy:
        print(line)
    return 1 if unhappy else 0


def complaints(report: SuiteReport) -> list[str]:
    """The targets that a suite misses, and that it failed."""
    lines = [
        f"target missed: {report.name}: {result.name} ({result.ratio(target):.3f}, target {target.limit})"
        for result in report.results
        for target in result.targets
        if not result.is_met(target)
    ]
    if report.failure:
        lines.append(f"failed: {report.name}: {report.failure}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
