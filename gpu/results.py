"""What came of a run: rows of verdicts and of times, as JSON between processes and as Markdown for people."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"


@dataclass
class Row:
    """What came of looking at one thing."""

    section: str
    subject: str
    verdict: str
    message: str = ""
    cases: int = 1


@dataclass
class Timing:
    """One line of the table of times."""

    name: str
    seconds: dict[str, float]
    """By contender; `Opsmith` is ours."""
    targets: list[tuple[str, float, float, bool]] = field(default_factory=list)
    """Against whom, ours over theirs, the most that it may be, and whether it is so."""
    share: str = ""
    """How much of what the card can do ours does."""


@dataclass
class Results:
    """All that a section, or a whole run, has to say."""

    rows: list[Row] = field(default_factory=list)
    timings: list[Timing] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    file: Path | None = None
    """Where each row is written at once: what ends the process leaves those before it."""

    def say(self, section: str, subject: str, verdict: str, message: str = "", cases: int = 1) -> None:
        """Add a row, and tell it where it is no success."""
        self.rows.append(Row(section, subject, verdict, message, cases))
        if verdict != PASSED:
            print(f"  {verdict}: {section}: {subject}: {message}", flush=True)
        if self.file:
            self.write(self.file)

    def add(self, other: Results) -> None:
        """Take over what another has to say."""
        self.rows += other.rows
        self.timings += other.timings
        self.facts |= other.facts

    def of(self, verdict: str) -> list[Row]:
        """The rows with this verdict."""
        return [row for row in self.rows if row.verdict == verdict]

    @property
    def missed(self) -> list[str]:
        """The targets that were missed, in words."""
        return [
            f"{timing.name}: {ratio:.3f} of {against}, target {limit}"
            for timing in self.timings
            for against, ratio, limit, met in timing.targets
            if not met
        ]

    def write(self, path: Path) -> None:
        """As JSON."""
        found = {name: value for name, value in asdict(self).items() if name != "file"}
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(found, indent=1) + "\n")
        beside.replace(path)

    @staticmethod
    def read(path: Path) -> Results:
        """From JSON."""
        data = json.loads(path.read_text())
        return Results(
            [Row(**row) for row in data["rows"]],
            [
                Timing(**timing | {"targets": list(map(tuple, timing["targets"]))})
                for timing in data["timings"]
            ],
            data["facts"],
        )


def markdown(results: Results) -> str:
    """A page to be put into the documentation."""
    facts = [f"- {name}: {value}" for name, value in results.facts.items()]
    parts = ["## What a run on a card gave", "\n".join(facts), table(*_sections(results))]
    for title, verdict in (("What failed", FAILED), ("What was not run", NOT_RUN)):
        found = [[row.section, row.subject, _cell(row.message)] for row in results.of(verdict)]
        if found:
            parts += [f"### {title}", table(["section", "what", "why"], found)]
    if results.timings:
        parts += ["### Times", *_times(results.timings)]
    return "\n\n".join(parts) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")[:400]


def _sections(results: Results) -> tuple[list[str], list[list[str]]]:
    rows = []
    for section in dict.fromkeys(row.section for row in results.rows):
        own = [row for row in results.rows if row.section == section]
        counts = [sum(row.verdict == verdict for row in own) for verdict in (PASSED, FAILED, NOT_RUN)]
        calls = sum(row.cases for row in own if row.verdict == PASSED)
        rows.append([section, *map(str, counts), str(calls)])
    return ["section", PASSED, FAILED, NOT_RUN, "calls that passed"], rows


def _times(timings: list[Timing]) -> list[str]:
    names = list(dict.fromkeys(name for timing in timings for name in timing.seconds))
    rows = [
        [timing.name, *(amount(timing.seconds.get(name)) for name in names), timing.share]
        for timing in timings
    ]
    parts = [table(["", *names, "Opsmith's share of the limit"], rows)]
    targets = [
        [timing.name, against, f"{ratio:.3f}", f"≤ {limit}", "yes" if met else "**no**"]
        for timing in timings
        for against, ratio, limit, met in timing.targets
    ]
    if targets:
        parts.append(table(["", "Opsmith against", "ratio", "target", "met"], targets))
    return parts


def amount(seconds: float | None) -> str:
    """A time in a fitting unit; empty if not measured."""
    if seconds is None:
        return ""
    return f"{seconds * 1e3:.3f} ms" if seconds >= 0.001 else f"{seconds * 1e6:.2f} µs"


def table(headings: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [headings, ["---"] + ["---:" if len(headings) > 3 else "---"] * (len(headings) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
