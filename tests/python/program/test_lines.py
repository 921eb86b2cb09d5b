"""The count of lines in the author's guide is that of the files as they are."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

REPOSITORY = Path(__file__).parents[3]


def counter() -> ModuleType:
    """The module that counts."""
    spec = importlib.util.spec_from_file_location("count", REPOSITORY / "benches" / "lines" / "count.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_guide_has_the_table() -> None:
    guide = (REPOSITORY / "docs" / "author-guide.md").read_text(encoding="utf-8")
    assert counter().table() in guide, "python benches/lines/count.py prints another table"


def test_only_code_counts() -> None:
    count = counter().count
    python = '"""Words.\n\nMore.\n"""\n\n# A comment.\ndef f(x: int,\n      y: int) -> str:\n    """Why."""\n'
    python += '    return """a\n    b"""  # of two lines\n'
    assert count("a.py", python) == 4
    assert count("a.rs", "//! Words.\n\n#[op]\nfn f() {} // why\n    // Alone.\n/// Words.\n") == 2
    assert count("a.toml", "[lib]    # why\n# Alone.\nx = 1\n") == 2
    assert count("Makefile", "a: b\n\tc $<\n\n") == 2
