"""`[project]` of `pyproject.toml`: what each key takes, and that it has that."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

from opsmith._native import read_file
from opsmith.jit._errors import BuildError

NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_VERSION = re.compile(r"(\d+!)?\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[a-z0-9]+(\.[a-z0-9]+)*)?")

# What requirements ask for may be spelled in more ways (PEP 440).
_STAGE = (
    r"(?:[-_.]?(?:alpha|a|beta|b|preview|pre|c|rc)[-_.]?\d*)?"
    r"(?:-\d+|[-_.]?(?:post|rev|r)[-_.]?\d*)?(?:[-_.]?dev[-_.]?\d*)?"
)
_RELEASE = r"v?(?:\d+!)?\d+(?:\.\d+)*"
_LOCAL = r"(?:\+[a-z0-9]+(?:[-_.][a-z0-9]+)*)?"
_ASKED = (
    rf"(?:~=\s*v?(?:\d+!)?\d+(?:\.\d+)+{_STAGE}|[=!]=\s*{_RELEASE}(?:\.\*|{_STAGE}{_LOCAL})"
    rf"|(?:<=|>=|<|>)\s*{_RELEASE}{_STAGE}|===\s*[^\s;,()]+)"
)
_VERSIONS = rf"{_ASKED}(?:\s*,\s*{_ASKED})*"
_SPECIFIERS = re.compile(rf"\s*{_VERSIONS}\s*", re.IGNORECASE)
_REQUIREMENT = re.compile(
    rf"\s*(?P<name>{NAME})\s*(?:\[\s*(?:{NAME}(?:\s*,\s*{NAME})*)?\s*\])?\s*"
    rf"(?:@\s*[^\s;]\S*(?=\s|$)|(?:{_VERSIONS}|\(\s*{_VERSIONS}\s*\))?)\s*(?:;(?P<marker>.*))?",
    re.IGNORECASE,
)
_OPERAND = (
    r"(?:'[^']*'|\"[^\"]*\"|\b(?:python_version|python_full_version|os_name|sys_platform|extra"
    r"|platform_(?:release|system|version|machine|python_implementation)|implementation_(?:name|version))\b)"
)
_COMPARISON = re.compile(rf"{_OPERAND}\s*(?:===|[<>=!~]=|<|>|in\b|not\s+in\b)\s*{_OPERAND}")
# Stands for a condition that has been read; requirements have no such character.
_READ = "\0"
_CONDITION = re.compile(rf"\(\s*{_READ}\s*\)|{_READ}\s*\b(?:and|or)\b\s*{_READ}")


def requirement_name(requirement: str) -> str | None:
    """The package that a requirement asks for; none where it is no requirement (PEP 508)."""
    told = _REQUIREMENT.fullmatch(requirement) if requirement.isprintable() else None
    if told is None or (told["marker"] is not None and not _is_marker(told["marker"])):
        return None
    return told["name"]


def _is_marker(text: str) -> bool:
    """Whether it is a condition on the system that a requirement is for."""
    left, before = _COMPARISON.sub(_READ, text), ""
    while left != before:
        left, before = _CONDITION.sub(_READ, left), left
    return left.strip() == _READ


_MOST = 1000
"""The most characters of a licence or an author."""
_OPERATOR = re.compile(r"\b(AND|OR|WITH)\b", re.IGNORECASE)
_LICENCE = r"(?!(?:AND|OR|WITH)\b)[A-Za-z0-9][A-Za-z0-9.+-]*"
_WITH_EXCEPTION = re.compile(rf"(?<![A-Za-z0-9.+-]){_LICENCE}(?: WITH {_LICENCE})?(?![A-Za-z0-9.+-])")
_LICENCES = re.compile(rf"\( {_READ} \)|{_READ} (?:AND|OR) {_READ}")


def licence(text: str) -> str | None:
    """An expression of SPDX with its operators in capitals; none where it is no such.

    Whether its licences are in SPDX's list is not looked at.
    """
    if len(text) > _MOST:
        return None
    spaced = " ".join(re.sub(r"([()])", r" \1 ", text).split())
    spaced = _OPERATOR.sub(lambda operator: operator[0].upper(), spaced)
    left, before = _WITH_EXCEPTION.sub(_READ, spaced), ""
    while left != before:
        left, before = _LICENCES.sub(_READ, left), left
    return spaced.replace("( ", "(").replace(" )", ")") if left == _READ else None


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_name(value: Any) -> bool:
    """Whether a package may be called so."""
    return isinstance(value, str) and re.fullmatch(NAME, value) is not None


def _is_requirement(value: Any) -> bool:
    return isinstance(value, str) and requirement_name(value) is not None


def _is_pattern(value: Any) -> bool:
    """Whether it is like files in the package's own folder."""
    path = PurePosixPath(value) if isinstance(value, str) and value.isprintable() else PurePosixPath()
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\\" not in str(path)


def _is_person(value: Any) -> bool:
    return _is_table(value) and bool(value) and value.keys() <= {"name", "email"}


def _is_readme(value: Any) -> bool:
    if _is_text(value):
        return True
    keys = {"file", "text", "content-type"}
    return _is_table(value) and value.keys() <= keys and ("file" in value) != ("text" in value)


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_is_text, value.values()))


_Fits = Callable[[Any], bool]
_Wrong = Callable[[Any], list[Any]]


def _one(fits: _Fits) -> _Wrong:
    return lambda value: [] if fits(value) else [value]


def _each(fits: _Fits) -> _Wrong:
    return lambda value: [one for one in value if not fits(one)] if isinstance(value, list) else [value]


def _wrong_extras(value: Any) -> list[Any]:
    if not isinstance(value, Mapping):
        return [value]
    names = [name for name in value if not is_name(name)]
    return names + [wrong for needs in value.values() for wrong in _each(_is_requirement)(needs)]


@dataclass(frozen=True)
class _Key:
    """What a key takes."""

    takes: str
    example: str
    wrong: _Wrong
    """The parts of a value that cannot be."""


_TEXTS = _each(_is_text)
_PEOPLE = "a list of tables with `name`, `email` or both"
_KEYS = {
    "name": _Key("a name of letters, digits, `-`, `_` and `.`", '"row-ops"', _one(is_name)),
    "version": _Key(
        "a version as Python has it",
        '"1.2.3" or "1.2.3rc1", or leave it out: Cargo.toml has one',
        _one(lambda value: _is_text(value) and _VERSION.fullmatch(value) is not None),
    ),
    "description": _Key("a string", '"Operators on rows"', _one(_is_text)),
    "readme": _Key(
        "a file, or a table with `file` or `text`, and `content-type`", '"README.md"', _one(_is_readme)
    ),
    "requires-python": _Key(
        "versions of Python",
        '">=3.10" or ">=3.10,<4"',
        _one(lambda value: _is_text(value) and _SPECIFIERS.fullmatch(value) is not None),
    ),
    "license": _Key(
        "an SPDX expression",
        '"MIT", and license-files = ["LICENSE"]',
        _one(lambda value: _is_text(value) and licence(value) is not None),
    ),
    "license-files": _Key(
        "a list of files, or patterns of them, in the package's folder", '["LICENSE*"]', _each(_is_pattern)
    ),
    "authors": _Key(_PEOPLE, '[{ name = "Ada", email = "ada@example.org" }]', _each(_is_person)),
    "maintainers": _Key(_PEOPLE, '[{ name = "Ada", email = "ada@example.org" }]', _each(_is_person)),
    "keywords": _Key("a list of strings", '["rows"]', _TEXTS),
    "classifiers": _Key(
        "a list of classifiers of PyPI",
        '["Typing :: Typed"]',
        _each(lambda value: _is_text(value) and re.fullmatch(r"\S.*? :: .*\S", value) is not None),
    ),
    "urls": _Key("a table of strings", '{ Homepage = "https://example.org" }', _one(_is_table)),
    "dependencies": _Key("a list of requirements", '["scipy>=1.11"]', _each(_is_requirement)),
    "optional-dependencies": _Key(
        "a table of lists of requirements", '{ plots = ["matplotlib>=3"] }', _wrong_extras
    ),
    "dynamic": _Key("a list of strings", '["version"]', _TEXTS),
}


def read(folder: Path) -> Mapping[str, Any]:
    """`[project]`, nothing where there is none. Raises `BuildError` where a key has what it does not take."""
    file = folder / "pyproject.toml"
    if not file.exists():
        return {}
    tomllib = _toml_reader()
    try:
        project = tomllib.loads(read_file(file).decode()).get("project", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BuildError(f"{file}: {error}\n  → it must be TOML, in UTF-8") from error
    if not isinstance(project, dict):
        raise BuildError(
            f"{file}: `project` is a table, not {project!r}\n  → write [project], and keys below it"
        )
    if unknown := sorted(project.keys() - _KEYS.keys()):
        close = difflib.get_close_matches(unknown[0], _KEYS, 1, cutoff=0.75)
        advice = (
            f"did you mean `{close[0]}`?"
            if close
            else "leave that out; programs are for a package of their own, which depends on this one"
        )
        raise BuildError(
            f"{file}: [project] has `{'`, `'.join(unknown)}`, which a package of operators cannot have\n"
            f"  → {advice}"
        )
    for name, value in project.items():
        key = _KEYS[name]
        if wrong := key.wrong(value):
            raise BuildError(
                f"{file}: `{name}` takes {key.takes}, and has {wrong[0]!r}\n"
                f"  → write one such as {name} = {key.example}"
            )
    return project


def _toml_reader() -> Any:
    """The module that reads TOML. `pip` installs it where Python has none; who calls the program does."""
    try:
        return import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    except ImportError as error:
        raise BuildError("Python 3.10 cannot read pyproject.toml\n  → pip install tomli") from error
