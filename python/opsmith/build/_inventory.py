"""What a library is made of besides its own crate: a bill of materials, and the licences of others.

Rust links the crates that a crate depends on into its library, so whoever gives the library away gives them
away too. The bill is CycloneDX as JSON (https://cyclonedx.org), which PEP 770 has a place for in wheels.

This module needs nothing but Python: a release of Opsmith calls it before the package is built.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

Cargo = Callable[[list[str]], str]
"""Runs Cargo on the crate with these arguments; what it says."""

LICENCES_NAME = "THIRD-PARTY-LICENSES.txt"

_ALTERNATIVE = re.compile(r"\s+OR\s+|\s*/\s*")
_TEXTS = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)([-_.].*)?", re.IGNORECASE)
_NOTICES = re.compile(r"(COPYRIGHT|NOTICE)([-_.].*)?", re.IGNORECASE)
_REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"

_MIT = """\
Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without
limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the
Software, and to permit persons to whom the Software is furnished to do so, subject to the following
conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions
of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED
TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL
THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF
CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER
DEALINGS IN THE SOFTWARE.
"""


@dataclass(frozen=True)
class Inventory:
    """The crates that a crate's library is made of."""

    own: dict[str, Any]
    """What `cargo metadata` says of the crate itself."""
    linked: tuple[dict[str, Any], ...]
    """The crates that are linked into its library, and Rust's standard library."""
    building: tuple[dict[str, Any], ...]
    """Those that are only run to build it: macros, and what build scripts use."""
    edges: dict[str, list[str]]
    """What each needs, by their references."""
    members: frozenset[str]
    """The crates of the own workspace, whose licence is the crate's own."""

    def bill(self) -> str:
        """The bill of materials. It has no date and no random number: it depends on the crates alone."""
        components = [_component(package, "required") for package in self.linked]
        components += [_component(package, "excluded") for package in self.building]
        known = {component["bom-ref"] for component in components} | {_reference(self.own)}
        dependencies = [
            {"ref": ref, "dependsOn": [each for each in needs if each in known]}
            for ref, needs in sorted(self.edges.items())
            if ref in known
        ]
        bill = {
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {"component": _component(self.own, None)},
            "components": components,
            "dependencies": dependencies,
        }
        return json.dumps(bill, indent=1, ensure_ascii=False) + "\n"

    def licences(self) -> str:
        """The licences of what is linked and is not of the crate's own workspace."""
        by_text: dict[str, list[str]] = {}
        for package in self.linked:
            if package.get("id") in self.members:
                continue
            name = f"{package['name']} {package['version']}".strip()
            for text in _texts(package):
                by_text.setdefault(text, []).append(f"{name} ({package['license'] or 'no licence named'})")
        head = f"What the library of {self.own['name']} has of others, and their licences.\n"
        parts = [
            f"{', '.join(names)}:\n\n{text}"
            for text, names in sorted(by_text.items(), key=lambda item: item[1])
        ]
        return f"\n{'-' * 80}\n\n".join([head, *parts])


def read(
    cargo: Cargo, name: str, target: str, compiler: str, others: Iterable[dict[str, Any]] = ()
) -> Inventory:
    """Asks Cargo about a crate of this workspace, for a kind of machine. `others` are linked too."""
    told = json.loads(cargo(["metadata", "--format-version", "1", "--filter-platform", target]))
    packages = {package["id"]: package for package in told["packages"]}
    members = frozenset(told["workspace_members"])
    (own,) = (packages[each] for each in members if packages[each]["name"] == name)
    by_name = {(package["name"], package["version"]): package for package in told["packages"]}
    linked = _tree(cargo, own["id"], target, "normal,no-proc-macro")
    building = _tree(cargo, own["id"], target, "normal,build") - linked
    crates = [by_name[key] for key in sorted(linked) if by_name[key] is not own]
    edges = {
        _reference(packages[node["id"]]): sorted(
            _reference(packages[each["pkg"]])
            for each in node["deps"]
            if any(kind["kind"] != "dev" for kind in each["dep_kinds"])
        )
        for node in told["resolve"]["nodes"]
    }
    return Inventory(
        own,
        (*crates, _standard_library(compiler), *others),
        tuple(by_name[key] for key in sorted(building)),
        edges,
        members,
    )


def unwinder() -> dict[str, Any]:
    """What zig links in place of the compiler's runtime, libgcc_s: LLVM's unwinder of stacks."""
    return {
        "name": "LLVM's libunwind",
        "version": "",
        "license": "Apache-2.0 WITH LLVM-exception",
        "purl": "pkg:generic/libunwind",
        "repository": "https://github.com/llvm/llvm-project",
        "text": "A part of the LLVM Project, https://llvm.org/LICENSE.txt.\n"
        "An exception in its licence lets compiled code go without the text.\n",
    }


def _tree(cargo: Cargo, package: str, target: str, edges: str) -> set[tuple[str, str]]:
    """Names and versions of what is compiled with the features that the package asks for; `cargo metadata`
    adds those that the rest of a workspace asks for."""
    told = cargo(["tree", "--package", package, "--target", target, "--edges", edges, "--prefix", "none"])
    lines = (line.split() for line in told.splitlines() if line.strip())
    return {(words[0], words[1].removeprefix("v")) for words in lines}


def _standard_library(compiler: str) -> dict[str, Any]:
    return {
        "name": "Rust's standard library",
        "version": compiler,
        "license": "MIT OR Apache-2.0",
        "purl": f"pkg:generic/rust-std{f'@{compiler}' if compiler else ''}",
        "repository": "https://github.com/rust-lang/rust",
        "text": f"Copyright (c) The Rust Project Contributors\n\n{_MIT}",
    }


def _reference(package: dict[str, Any]) -> str:
    """What a package is called everywhere, as https://github.com/package-url has it."""
    if "purl" in package:
        return str(package["purl"])
    url = f"pkg:cargo/{package['name']}@{quote(package['version'], safe='')}"
    source = package["source"]
    if source is None or source == _REGISTRY:
        return url
    kind, _, place = source.partition("+")
    return f"{url}?{'vcs_url' if kind == 'git' else 'repository_url'}={quote(place, safe='')}"


def _component(package: dict[str, Any], scope: str | None) -> dict[str, Any]:
    reference = _reference(package)
    component: dict[str, Any] = {"type": "library", "bom-ref": reference, "name": package["name"]}
    if package["version"]:
        component["version"] = package["version"]
    if scope is not None:
        component["scope"] = scope
    if package["license"]:
        component["licenses"] = [{"expression": " OR ".join(_ALTERNATIVE.split(package["license"]))}]
    component["purl"] = reference
    if package.get("repository"):
        component["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return component


def _texts(package: dict[str, Any]) -> Iterator[str]:
    """The texts that have to go along: those of one licence, where the user may choose among several."""
    if "text" in package:
        yield package["text"]
        return
    folder = Path(package["manifest_path"]).parent
    # As https://reuse.software has it, texts are in a folder.
    places = [path for path in folder.iterdir() if _TEXTS.fullmatch(path.name)] + [*folder.glob("LICENSES/*")]
    found = sorted(path for path in places if path.is_file())
    if own := package["license_file"]:
        found = sorted({*found, folder / own})
    chosen = [text for path in _chosen(package["license"] or "", found) if (text := _text(path))]
    yield from chosen
    if not chosen:
        people = ", ".join(package["authors"]) or f"the authors of {package['name']}"
        mit = "MIT" in _ALTERNATIVE.split(package["license"] or "")
        yield f"Copyright (c) {people}\n\n{_MIT}" if mit else f"Its package has no text. By {people}.\n"


def _text(path: Path) -> str | None:
    """The text of a licence. A link has become a file that has only the path of one that is not there."""
    text = path.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n").strip("\ufeff\n")
    is_path = re.fullmatch(r"[\w./+-]+", text) is not None
    return None if is_path else "\n".join(line.rstrip() for line in text.split("\n")) + "\n"


def _chosen(expression: str, found: list[Path]) -> list[Path]:
    if "MIT" not in _ALTERNATIVE.split(expression):
        return found
    of_mit = [path for path in found if "MIT" in path.name.upper()]
    notices = [path for path in found if _NOTICES.fullmatch(path.name)]
    return [*of_mit, *notices] if of_mit else found


def main() -> None:
    """Writes what a release of Opsmith's own package is made of."""
    parser = argparse.ArgumentParser(description="Tells what a crate's library is made of.")
    parser.add_argument("--cargo", default="cargo", help="the program")
    parser.add_argument("--package", required=True, help="a crate of the workspace in this folder")
    parser.add_argument("--target", required=True, help="the kind of machine")
    parser.add_argument("--compiler", default="", help="the release of Rust, for the bill")
    parser.add_argument("--licences", type=Path, help="where to write the licences")
    parser.add_argument("--bill", type=Path, help="where to write the bill of materials")
    options = parser.parse_args()

    def cargo(arguments: list[str]) -> str:
        done = subprocess.run([options.cargo, *arguments], check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout

    inventory = read(cargo, options.package, options.target, options.compiler, [unwinder()])
    if options.licences is not None:
        options.licences.write_text(inventory.licences(), encoding="utf-8")
    if options.bill is not None:
        options.bill.write_text(inventory.bill(), encoding="utf-8")


if __name__ == "__main__":
    main()
