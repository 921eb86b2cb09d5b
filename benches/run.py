"""Runs the benchmark suites, each in a process of its own, and writes the report."""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import sys
from pathlib import Path

from harness import ROOT, Options, isolated, measure
from report import SuiteReport, facts, tables, write

OUT = ROOT / "docs" / "benchmarks"


def suites() -> list[str]:
    """The names of the suites: the modules `suite_<name>.py` beside this file."""
    return sorted(path.stem.removeprefix("suite_") for path in Path(__file__).parent.glob("suite_*.py"))


def run_suite(name: str, options: Options) -> SuiteReport:
    """Measure one suite in this process."""
    # The programs of the environment, such as ninja, are found by name.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    module = importlib.import_module(f"suite_{name}")
    results = []
    for case in module.cases(options):
        print(f"  {name}: {case.name}", flush=True)
        results.append(measure(case, options))
    return SuiteReport(name, module.TITLE, inspect.cleandoc(module.__doc__ or ""), results)


def main() -> int:
    """Run what the command line asks for; the exit status is 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--libraries", type=Path, required=True, help="the folder of the built libraries")
    parser.add_argument("--quick", action="store_true", help="fewer rounds; writes nothing")
    parser.add_argument("suites", nargs="*", choices=[[], *suites()], help="all of them if none is named")
    arguments = parser.parse_args()
    options = Options(arguments.libraries.resolve(), arguments.quick)
    reports = [isolated(run_suite, name, options) for name in arguments.suites or suites()]
    print(f"\n{facts()}")
    for report in reports:
        print(f"\n{report.title}\n\n{tables(report)}")
    if not arguments.quick and not arguments.suites:
        print(f"\nwrote {write(reports, OUT).relative_to(ROOT)}")
    missed = [
        f"{report.name}: {result.name} ({result.ratio(target):.3f}, target {target.limit})"
        for report in reports
        for result in report.results
        for target in result.targets
        if not result.is_met(target)
    ]
    for line in missed:
        print(f"target missed: {line}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
