"""Counts the lines that an author writes for one op, with its gradient, on the CPU, in several ways.

Blank lines, comments and documentation are left out; everything else counts, the files that build it too.
The files for Opsmith are blocks of code in the README and in `docs/first-op.md`, which tests compile; the
others lie beside it.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

HERE = Path(__file__).parent
README = HERE.parents[1] / "README.md"
TUTORIAL = HERE.parents[1] / "docs" / "first-op.md"

# What begins a line that is a comment, by the suffix of the file.
COMMENTS = {".rs": "//", ".cpp": "//", ".cc": "//", ".toml": "#", "": "#"}
# What is no source is made of one: caches, libraries.
SUFFIXES = {*COMMENTS, ".py"}
# Tokens of Python that make no line of code.
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}

Files = dict[str, str]


def block_of(page: Path, language: str, part: str) -> str:
    """The block of code in a page that has `part` in it."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    (block,) = [block for block in blocks if part in block]
    return block


def folder(name: str) -> Files:
    """The sources in a folder beside this file."""
    paths = sorted(path for path in (HERE / name).rglob("*") if path.is_file() and path.suffix in SUFFIXES)
    return {str(path.relative_to(HERE / name)): path.read_text("utf-8") for path in paths}


def ways() -> dict[str, tuple[str, Files]]:
    """For each way where the op then runs, and the files that are written."""
    manifest = block_of(TUTORIAL, "toml", 'crate-type = ["cdylib"]')
    everywhere = "PyTorch, TensorFlow, JAX, NumPy, Rust, C"
    one_body = {"Cargo.toml": manifest, "src/lib.rs": block_of(README, "rust", "#[pairwise]")}
    by_hand = {"Cargo.toml": manifest, "src/lib.rs": block_of(TUTORIAL, "rust", "fn manhattan_grad")}
    return {
        "Opsmith, one body": (everywhere, one_body),
        "Opsmith, by hand": (everywhere, by_hand),
        "C++ with `TORCH_LIBRARY`": ("PyTorch", folder("torch")),
        "C++ with `REGISTER_OP`": ("TensorFlow", folder("tensorflow")),
    }


def count(name: str, text: str) -> int:
    """The lines of code in a file."""
    suffix = Path(name).suffix
    if suffix == ".py":
        return len(python_lines(text))
    lines = [line.strip() for line in text.splitlines()]
    return sum(bool(line) and not line.startswith(COMMENTS[suffix]) for line in lines)


def python_lines(text: str) -> set[int]:
    """The numbers of the lines with code, docstrings left out."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        may_have_one = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if may_have_one and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            lines.difference_update(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    return lines


def table() -> str:
    """The counts as a Markdown table."""
    rows = ["| way | lines | of them | runs in |", "|---|---:|---|---|"]
    for way, (where, files) in ways().items():
        counts = {name: count(name, text) for name, text in files.items()}
        parts = ", ".join(f"`{name}` {lines}" for name, lines in counts.items())
        rows.append(f"| {way} | {sum(counts.values())} | {parts} | {where} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())
