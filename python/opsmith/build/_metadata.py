"""What a package says of itself: from `Cargo.toml`, and from `[project]` of `pyproject.toml` where it is."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from opsmith._native import read_file
from opsmith.build import _project
from opsmith.build._crate import Crate
from opsmith.jit._errors import BuildError

_PYTHON = ">=3.10"
_NUMPY = "numpy>=1.26"
_LICENCES = ("LICEN[CS]E*", "COPYING*", "NOTICE*", "AUTHORS*")
_CARGO_VERSION = re.compile(
    r"(?P<release>\d+\.\d+\.\d+)(-(?P<stage>alpha|beta|rc|dev)(\.?(?P<number>\d+))?)?(\+(?P<local>[0-9A-Za-z.-]+))?"
)
_STAGES = {"alpha": "a", "beta": "b", "rc": "rc", "dev": ".dev"}
_TAKEN = {
    *("jax", "jaxlib", "keras", "numpy", "opsmith", "pytorch", "tensorflow", "tensorflow-cpu"),
    *("tensorflow-gpu", "tf-nightly", "torch"),
}
_PERSON = re.compile(r"[^<>]*[^<>\s][^<>]*|[^<>]*<[^<>\s]+@[^<>\s]+>\s*")
_README_TYPES = {".md": "text/markdown", ".rst": "text/x-rst"}


@dataclass
class Metadata:
    """What installers and indexes are told."""

    name: str
    version: str
    fields: list[tuple[str, str]] = field(default_factory=list)
    """The other fields, in the order that they are written in."""
    licences: dict[str, Path] = field(default_factory=dict)
    """The texts of licences, by their names in the package."""
    readme: str = ""

    @property
    def stem(self) -> str:
        """How the names of its archives and of its `.dist-info` begin."""
        return f"{normalised(self.name).replace('-', '_')}-{self.version}"

    @property
    def summary(self) -> str:
        """What the package is, in one line; nothing where nobody says it."""
        return " ".join(dict(self.fields).get("Summary", "").split())

    def text(self) -> str:
        """The file `METADATA`, or `PKG-INFO`."""
        head = [("Metadata-Version", "2.4"), ("Name", self.name), ("Version", self.version), *self.fields]
        lines = [f"{name}: {' '.join(value.split())}\n" for name, value in head]
        return "".join(lines) + (f"\n{self.readme}" if self.readme else "")


def normalised(name: str) -> str:
    """A package's name as names are compared."""
    return re.sub("[-_.]+", "-", name).lower()


def read(crate: Crate) -> Metadata:
    """What `Cargo.toml` and `pyproject.toml` say. Raises `BuildError` where that cannot be a package."""
    project = _project.read(crate.folder)
    package = crate.package
    own = project.get("version")
    made = Metadata(
        name=_checked(project.get("name", crate.name)),
        version=own if own is not None else python_version(package["version"]),
    )
    add = made.fields.append
    if summary := project.get("description", package["description"]):
        add(("Summary", summary))
    if "authors" in project or "maintainers" in project:
        made.fields += _people(project.get("authors", ()), "Author")
        made.fields += _people(project.get("maintainers", ()), "Maintainer")
    else:
        made.fields += _people(map(_person, package["authors"]), "Author")
    if keywords := project.get("keywords", package["keywords"]):
        add(("Keywords", ",".join(keywords)))
    made.fields += [("Project-URL", f"{label}, {url}") for label, url in _urls(project, package).items()]
    _add_licence(made, crate, project)
    made.fields += [("Classifier", classifier) for classifier in project.get("classifiers", ())]
    add(("Requires-Python", project.get("requires-python", _PYTHON)))
    made.fields += [("Requires-Dist", need) for need in _needs(project)]
    for extra, requirements in project.get("optional-dependencies", {}).items():
        add(("Provides-Extra", extra))
        made.fields += [("Requires-Dist", _for_extra(need, extra)) for need in requirements]
    _add_readme(made, crate, project)
    return made


def _checked(name: str) -> str:
    """The package's name. Installing one of a taken name would remove what everybody means by it."""
    advice = '  → choose another name: name = "..." under [project] in pyproject.toml'
    if not _project.is_name(name):
        raise BuildError(f"a package cannot be called {name!r}, as the crate is\n{advice}")
    if normalised(name) in _TAKEN:
        raise BuildError(f"a package `{name}` would replace the one of that name\n{advice}")
    return name


def python_version(version: str) -> str:
    """A version of Cargo as Python has it: `0.1.0-beta.2` is `0.1.0b2`."""
    told = _CARGO_VERSION.fullmatch(version)
    if told is None:
        raise BuildError(
            f"version {version!r} has no counterpart in Python\n"
            "  → write in Cargo.toml one such as 1.2.3, 1.2.3-alpha.1, -beta.1, -rc.1 or -dev.1"
        )
    stage = f"{_STAGES[told['stage']]}{int(told['number'] or 0)}" if told["stage"] else ""
    local = f"+{told['local'].replace('-', '.').lower()}" if told["local"] else ""
    return f"{told['release']}{stage}{local}"


def _needs(project: Mapping[str, Any]) -> list[str]:
    """The package itself needs this one, at least as new as what its library was built with, and NumPy."""
    try:
        opsmith = f"opsmith>={version('opsmith')}"
    except PackageNotFoundError:  # run from its sources
        opsmith = "opsmith"
    own = list(project.get("dependencies", ()))
    named = {normalised(_project.requirement_name(need) or "") for need in own}
    needed = {"opsmith": opsmith, "numpy": _NUMPY}
    return [*(need for name, need in needed.items() if name not in named), *own]


def _for_extra(need: str, extra: str) -> str:
    requirement, _, marker = (part.strip() for part in need.partition(";"))
    wanted = f"extra == '{extra}'"
    return f"{requirement} ; ({marker}) and {wanted}" if marker else f"{requirement} ; {wanted}"


def _person(text: str) -> dict[str, str]:
    """`Name <address>`, as Cargo has it."""
    if not (len(text) <= 1000 and text.isprintable() and _PERSON.fullmatch(text)):
        raise BuildError(
            f"Cargo.toml: {text!r} is no author\n  → write `Name <name@example.org>`, or a name alone"
        )
    name, _, address = text.partition("<")
    return {"name": name.strip(), "email": address.strip(" >")}


def _people(people: Iterable[Mapping[str, str]], role: str) -> list[tuple[str, str]]:
    fields = []
    for person in people:
        name, address = person.get("name", ""), person.get("email", "")
        if address:
            fields.append((f"{role}-email", f"{name} <{address}>" if name else address))
        elif name:
            fields.append((role, name))
    # Each field may be there once.
    return [
        (key, ", ".join(value for other, value in fields if other == key))
        for key in dict.fromkeys(dict(fields))
    ]


def _urls(project: Mapping[str, Any], package: Mapping[str, Any]) -> dict[str, str]:
    ours = {label: package[label.lower()] for label in ("Homepage", "Repository", "Documentation")}
    named: dict[str, str] = project.get("urls", {label: url for label, url in ours.items() if url})
    return named


def _add_licence(made: Metadata, crate: Crate, project: Mapping[str, Any]) -> None:
    expression = project.get("license")
    if expression is None and crate.package["license"]:
        # Cargo takes the slash of old, too.
        expression = re.sub(r"\s*/\s*", " OR ", crate.package["license"])
        if _project.licence(expression) is None:
            raise BuildError(
                f"Cargo.toml: `license` is {crate.package['license']!r}, which is no SPDX expression\n"
                '  → write one such as "MIT" or "MIT OR Apache-2.0", or name the text by `license-file`'
            )
    if expression:
        made.fields.append(("License-Expression", _project.licence(expression) or expression))
    made.licences = _licence_files(crate, project)
    made.fields += [("License-File", name) for name in made.licences]


def _licence_files(crate: Crate, project: Mapping[str, Any]) -> dict[str, Path]:
    """Those that are named, or else those that are called so, of the crate or else of its workspace."""
    if (named := project.get("license-files")) is not None:
        found = _matching(crate.folder, named)
        if not found and named:
            raise BuildError(f"pyproject.toml: no file matches {named}\n  → correct `license-files`")
        return found
    if own := crate.package["license_file"]:
        file = crate.folder / own
        if not file.is_file():
            raise BuildError(f"{file}: there is no such file\n  → correct `license-file` in Cargo.toml")
        return {file.name: file}
    return _matching(crate.folder, _LICENCES) or _matching(crate.workspace, _LICENCES)


def _matching(folder: Path, patterns: Iterable[str]) -> dict[str, Path]:
    try:
        found = sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})
    except ValueError as error:
        raise BuildError(f"pyproject.toml: {error}\n  → correct `license-files`") from error
    return {path.relative_to(folder).as_posix(): path for path in found}


def _add_readme(made: Metadata, crate: Crate, project: Mapping[str, Any]) -> None:
    told = project.get("readme", crate.package["readme"])
    if not told:
        return
    table = told if isinstance(told, Mapping) else {"file": told}
    kind = table.get("content-type")
    if "text" in table:
        made.readme = table["text"]
    else:
        file = crate.folder / table["file"]
        # Not `Path.is_file`, which fails for names that are too long.
        if not os.path.isfile(file):
            raise BuildError(f"{file}: there is no such file\n  → correct `readme`")
        try:
            made.readme = read_file(file).decode().replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            raise BuildError(f"{file}: {error}\n  → it must be UTF-8") from error
        kind = kind or _README_TYPES.get(file.suffix.lower(), "text/plain")
    made.fields.append(("Description-Content-Type", kind or "text/plain"))
