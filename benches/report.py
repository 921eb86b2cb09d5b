"""The report: Markdown tables and an SVG chart of the ratios of each suite, with the facts of the machine."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from harness import FRESH, OURS, REUSED, Result, Target

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PACKAGES = ["torch", "numpy", "scipy", "numba", "scikit-learn", "jax", "pykeops"]
OPENING = """\
How fast Opsmith is, measured against what you would otherwise use. To repeat it on a quiet machine, run
`cargo xtask bench`, which writes this page."""
MEMORIES = f"""\
Each suite has a table of what was measured, and a table of ratios: Opsmith's time or memory divided by that
of the best of the named peers. Below 1, Opsmith is better. A target is the ratio that Opsmith aims at.

Some cases appear twice, because new memory is slow. With a *{FRESH}*, the allocator takes the memory of
each output of 64 KB and more from the system and gives it back, so a call also pays for new pages. With
*{REUSED}*, it keeps freed memory, and the same pages are used again. `mallopt` sets this for the whole
process, so it holds for all contenders alike."""


@dataclass
class SuiteReport:
    """A suite's title, explanation and results."""

    name: str
    title: str = ""
    text: str = ""
    results: list[Result] = field(default_factory=list)
    failure: str = ""
    skipped: list[str] = field(default_factory=list)

    def keep(self, path: Path) -> None:
        """Write the report into a file, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(self), indent=1))
        draft.replace(path)

    @classmethod
    def kept(cls, path: Path) -> SuiteReport:
        """The report that a file keeps."""
        report = cls(**json.loads(path.read_text()))
        report.title = report.title or report.name
        report.results = [Result(**result) for result in report.results]  # type: ignore[arg-type]
        for result in report.results:
            result.targets = [Target(**target) for target in result.targets]  # type: ignore[arg-type]
        return report


def write(suites: list[SuiteReport], folder: Path) -> Path:
    """Write `README.md`, `ratios.svg` and one `<suite>.svg` each into `folder`; return the Markdown file."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = ["# Benchmarks", OPENING, facts(), MEMORIES, *missed(suites)]
    overview(suites, folder / "ratios.svg")
    parts.append("![The ratio of every row of this page, from the best to the worst](ratios.svg)")
    for suite in suites:
        parts += [f"## {suite.title}", suite.text, tables(suite)]
        if ratios(suite):
            chart(suite, folder / f"{suite.name}.svg")
            parts.append(f"![{suite.title}: ratios]({suite.name}.svg)")
    path = folder / "README.md"
    path.write_text("\n\n".join(parts) + "\n")
    return path


def missed(suites: list[SuiteReport]) -> list[str]:
    """What is lost, the furthest from its target first."""
    rows = [
        (result.ratio(target) / target.limit, suite, result, target)
        for suite in suites
        for result in suite.results
        for target in result.targets
        if not result.is_met(target)
    ]
    rows.sort(key=lambda row: row[0], reverse=True)
    count = sum(len(result.targets) for suite in suites for result in suite.results)
    lines = [[suite.title, *target_row(result, target)[:4]] for _, suite, result, target in rows]
    heading = f"## Missed targets\n\n{len(rows)} of {count} targets are missed, the furthest first:"
    return (
        [heading, markdown(["suite", "case", "against the best of", "ratio", "target"], lines)]
        if rows
        else []
    )


def ratios(suite: SuiteReport) -> list[tuple[str, float, float]]:
    """Of each target against peers the case, the ratio and the limit."""
    return [
        (result.name, result.ratio(target), target.limit)
        for result in suite.results
        for target in result.targets
        if target.peers
    ]


def facts() -> str:
    """What a reader must know of the machine to judge the figures, as a list."""
    lines = [
        f"- date: {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}",
        f"- processor: {processor()}, {len(os.sched_getaffinity(0))} logical cores",
        f"- system: {platform.system()} {platform.release()}, Python {platform.python_version()}",
        f"- compilers: {first_line('rustc', '--version')}; {first_line('c++', '--version')}",
        f"- packages: {', '.join(filter(None, map(package, PACKAGES)))}",
    ]
    return "\n".join(lines)


def processor() -> str:
    """The processor's name as the kernel gives it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def first_line(*command: str) -> str:
    """The first line that a command prints, or that it is missing."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError):
        return f"no {command[0]}"


def package(name: str) -> str | None:
    """A package and its version, if it is installed."""
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return None


def tables(suite: SuiteReport) -> str:
    """The measured values, if there are any the targets, and why there are no more."""
    failure = [f"**Left out**: {skipped}" for skipped in suite.skipped]
    failure += [f"**Not all of it could be measured**: {suite.failure}"] if suite.failure else []
    if not suite.results:
        return "\n\n".join(failure)
    names = list(dict.fromkeys(name for result in suite.results for name in result.values))
    rows = [
        [result.name, *(amount(result.values.get(name), result.memory) for name in names)]
        for result in suite.results
    ]
    parts = [markdown(["", *names], rows)]
    targets = [target_row(result, target) for result in suite.results for target in result.targets]
    if targets:
        parts.append(markdown(["", f"{OURS} against the best of", "ratio", "target", "met"], targets))
    return "\n\n".join([*parts, *failure])


def target_row(result: Result, target: Target) -> list[str]:
    """One line of the table of targets."""
    met = "yes" if result.is_met(target) else "**no**"
    against, unit = (", ".join(target.peers), "") if target.peers else ("a time", " s")
    return [result.name, against, f"{result.ratio(target):.3f}{unit}", f"≤ {target.limit:.3g}{unit}", met]


def amount(value: float | None, memory: bool) -> str:
    """A time in microseconds or milliseconds, or a size in megabytes; empty if not measured."""
    if value is None:
        return ""
    if memory:
        return f"{value / 1e6:.2f} MB"
    return f"{value * 1e3:.2f} ms" if value >= 0.001 else f"{value * 1e6:.2f} µs"


def markdown(headings: list[str], rows: list[list[str]]) -> str:
    """A Markdown table whose source is aligned too: words left, figures right."""
    widths = [max(3, *map(len, column)) for column in zip(headings, *rows, strict=True)]

    def line(cells: list[str]) -> str:
        aligned = [
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(aligned)} |"

    rule = ["-" * width if index == 0 else "-" * (width - 1) + ":" for index, width in enumerate(widths)]
    return "\n".join([line(headings), line(rule), *map(line, rows)])


def chart(suite: SuiteReport, path: Path) -> None:
    """Bars from 1 to each ratio, to the left where Opsmith is better, and a mark at each target."""
    names, lengths, limits = zip(*ratios(suite), strict=True)
    figure, axes = drawing(suite.name, height=0.9 + 0.24 * len(names))
    places = range(len(names))
    axes.barh(places, [length - 1 for length in lengths], left=1, color=[color(own) for own in lengths])
    axes.plot(limits, places, "|", color="tab:gray", markersize=9, label="target")
    axes.set_yticks(places, names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xscale("log")
    axes.axvline(1, color="tab:gray", linewidth=1)
    axes.set_xlabel("ratio to the best peer; left of 1 is better")
    axes.legend(loc="best")
    figure.savefig(path, metadata={"Date": None})


def overview(suites: list[SuiteReport], path: Path) -> None:
    """The ratios of all suites, sorted."""
    found = sorted(ratio for suite in suites for _, ratio, _ in ratios(suite))
    figure, axes = drawing("ratios", height=3.2)
    axes.bar(range(len(found)), [ratio - 1 for ratio in found], bottom=1, color=[color(own) for own in found])
    axes.set_yscale("log")
    axes.axhline(1, color="tab:gray", linewidth=1)
    axes.set_xticks([])
    axes.set_xlabel(f"{len(found)} ratios; below 1, {OURS} is better")
    figure.savefig(path, metadata={"Date": None})


def color(ratio: float) -> str:
    """Green where Opsmith is better."""
    return "tab:green" if ratio <= 1 else "tab:orange"


def drawing(name: str, height: float) -> tuple[Figure, Axes]:
    """A figure and its axes. The same figures give the same file; text stays text, so that it is small."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.use("svg")

    mpl.rcParams["svg.hashsalt"] = name
    mpl.rcParams["svg.fonttype"] = "none"
    figure = Figure(figsize=(9, height), layout="constrained", facecolor="white")
    return figure, figure.subplots()
