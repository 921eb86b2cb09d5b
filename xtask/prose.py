"""Finds long sentences, doubled words, clichés, and words that the glossary has others for, in the guides.

Code, tables and addresses are left out. Each finding is told with its file and line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from proselint.checks import __register__
from proselint.config import DEFAULT, Config
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

ROOT = Path(__file__).parents[1]
MOST_WORDS = 35
"""In one sentence."""

OTHER_WORDS = {
    r"(?<!NVIDIA )(?<!AMD )(?<!Intel )\bGPUs?\b(?! (?:device|kernel|and TPU))": "card",
    r"\b[Gg]raphics cards?\b": "card",
    r"\b(?:[Hh]ost|[Ss]upported) frameworks?\b": "framework",
    r"(?<!build )\b[Bb]ack-?ends?\b": "framework, engine or device",
    r"\b[Pp]lug-?ins?\b": "library",
    r"\b(?:CPU|[Mm]ain|[Ss]ystem) memory\b": "host memory",
    r"\bPytorch\b": "PyTorch",
    r"\bTensorflow\b": "TensorFlow",
    r"\bNumpy\b": "NumPy",
    r"\bCuda\b": "CUDA",
    r"\bOnnx\b": "ONNX",
    r"\bOpSmith\b": "Opsmith",
    r"\b[Ii]n order to\b": "to",
    r"\b[Uu]tili[sz]e[sd]?\b": "use",
    r"\b[Ll]everag\w+\b": "use",
    r"\b(?:[Oo]bviously|[Oo]f course|[Nn]eedless to say|[Pp]lease note)\b": "nothing",
    r"\b[Ii]t should be noted\b": "nothing",
}
"""Wrong words, and what to write: the glossary of `docs/architecture.md`, names, phrases that say nothing."""

UNREAD = re.compile(
    r"^(?: *)```.*?^ *```|<!--.*?-->|^ *\|.*?$|`[^`\n]+`|\]\([^)]*\)|<[a-z/][^>]*>|^ {4,}\S.*?$",
    re.MULTILINE | re.DOTALL,
)
CHECKS = {"misc.preferred_forms": False, **dict.fromkeys(DEFAULT["checks"], True)}
CHECKS |= dict.fromkeys(
    ("dates_times", "lexical_illusions", "restricted", "typography", "weasel_words"), False
)
"""Of proselint's: without those that take a title and the words after it, or a subtraction, for mistakes."""

Finding = tuple[int, str]
"""Where it is, and what is wrong."""


def main() -> None:
    pages = [
        ROOT / "README.md",
        *(path for path in ROOT.glob("docs/**/*.md") if path.parent.name != "benchmarks"),
    ]
    failed = 0
    for page in sorted(pages):
        for line, message in findings(page.read_text(encoding="utf-8")):
            print(f"{page.relative_to(ROOT)}:{line}: {message}")
            failed += 1
    if failed:
        sys.exit(f"{failed} findings in the prose")


def findings(text: str) -> list[Finding]:
    """What is wrong in a page, each with its line."""
    prose = read(text)
    found = sorted([*long_sentences(prose), *other_words(prose), *proselint(prose)])
    return [(prose.count("\n", 0, at) + 1, message) for at, message in found]


def read(text: str) -> str:
    """The text with all that is no prose replaced by signs that are no words, line for line."""
    return UNREAD.sub(lambda found: re.sub(r"[^\n]", " " if found[0][0] in "|]<" else "¤", found[0]), text)


def long_sentences(prose: str) -> Iterator[Finding]:
    start = 0
    # A sentence ends with its mark, a paragraph, an item of a list, a heading.
    for end in re.finditer(r"[.!?][)”\"*]*(?=\s)|\n(?=\s*\n|\s*(?:[-*]|\d+\.) |#|¤+\n)|\Z", prose):
        sentence = prose[start : end.end()]
        words = re.findall(r"\S*[\w¤]\S*", sentence)
        if len(words) > MOST_WORDS:
            first = start + len(sentence) - len(sentence.lstrip())
            yield first, f"a sentence of {len(words)} words, at most {MOST_WORDS}: {' '.join(words[:6])} …"
        start = end.end()


def other_words(prose: str) -> Iterator[Finding]:
    for found in re.finditer(r"\b(\w+)(?: +| *\n *)\1\b", prose):
        yield found.start(), f"`{found[1]}` twice"
    for pattern, instead in OTHER_WORDS.items():
        for found in re.finditer(pattern, prose):
            yield found.start(), f"`{found[0]}`: write {instead}"


def proselint(prose: str) -> Iterator[Finding]:
    if not CheckRegistry().checks:
        CheckRegistry().register_many(__register__)
    config: Config = {"max_errors": 10_000, "checks": CHECKS}
    for result in LintFile("prose", prose).lint(config):
        # The linter puts a line before the text, and takes `for free-threaded` for two words.
        start, end = (at - 1 for at in result.check_result.span)
        if "-" not in prose[end - 1 : end + 1]:
            yield start, f"{result.check_result.message} ({result.check_result.check_path})"


if __name__ == "__main__":
    main()
