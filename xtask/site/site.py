"""Makes the site in the folder that is given: the pages of `docs`, the README as front page, the files
of the repository that they lead to, and the references of Python and Rust.

Links and anchors that lead nowhere are errors.
"""

from __future__ import annotations

import html
import os
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import notebook
import reference

ROOT = Path(__file__).parents[2]
CONFIG = Path(__file__).parent / "mkdocs.yml"
TOUR = "examples/tour.ipynb"
MOVED = {"README.md": "index.md", TOUR: "tour.md"}
CODE = re.compile(r"(^ *```.*?^ *```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^( *```\w+)\b[^`\n]*$", re.MULTILINE)
"""The beginning of a block of code, with what rustdoc reads behind the language."""
LINK = re.compile(r'(?:(?<=\]\()|(?<= src="))(?![a-z]+:|/|#)([^)#"\s]+)')
AS_IT_IS = (".md", ".svg", ".png", ".html")
"""What is part of the site unchanged; other files become pages of text."""

TEXT = """<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<title>{name}</title><pre>{text}</pre>
"""


def main(site: Path) -> None:
    sources = site.with_name(f"{site.name}-sources")
    for folder in (site, sources):
        if folder.exists():
            shutil.rmtree(folder)
    write_sources(sources / "docs")
    shutil.copy(CONFIG, sources)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=sources, check=False)
    if done.returncode == 0:
        shutil.move(sources / "site", site)
    sys.exit(done.returncode)


def write_sources(out: Path) -> None:
    docs = [path for path in sorted(ROOT.glob("docs/**/*")) if path.is_file()]
    queue = ["README.md", "CHANGELOG.md", *(str(path.relative_to(ROOT)) for path in docs)]
    pages = {f"reference/{module}.md": reference.page(module) for module in reference.MODULES}
    pages["reference/rust.md"] = rust()
    pages[site_uri(TOUR)], pictures = notebook.page(ROOT / TOUR)
    out.mkdir(parents=True)
    for name, shown in pictures.items():
        (out / name).write_bytes(shown)
    for path in queue:
        if path == TOUR:
            continue
        source, uri = ROOT / path, site_uri(path)
        if uri.endswith(".md"):
            text = source.read_text(encoding="utf-8")
            queue += sorted(set(targets(path, text)).difference(queue))
            pages[uri] = moved(path, text)
        elif path.endswith(AS_IT_IS):
            (out / uri).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, out / uri)
        else:
            is_folder = source.is_dir()
            text = "\n".join(sorted(os.listdir(source))) if is_folder else source.read_text(encoding="utf-8")
            pages[uri] = TEXT.format(name=html.escape(path), text=html.escape(text))
    compare_navigation(set(pages))
    for uri, text in pages.items():
        (out / uri).parent.mkdir(parents=True, exist_ok=True)
        (out / uri).write_text(text, encoding="utf-8")


def compare_navigation(pages: set[str]) -> None:
    """Every page of `docs` is in the navigation, and nothing else."""
    navigation = CONFIG.read_text(encoding="utf-8").partition("\nnav:\n")[2]
    named = set(re.findall(r"(\S+\.md)$", navigation, re.MULTILINE))
    own = {uri for uri in pages if uri.endswith(".md") and not uri.startswith("source/")}
    for wrong, uris in {
        "not in its navigation": own - named,
        "in its navigation and nowhere else": named - pages,
    }.items():
        if uris:
            sys.exit(f"{CONFIG}: {', '.join(sorted(uris))}: {wrong}")


def targets(path: str, markdown: str) -> Iterator[str]:
    """The files of the repository that a page leads to."""
    for text in CODE.split(markdown)[::2]:
        yield from (target(path, link[1]) for link in LINK.finditer(text))


def target(path: str, link: str) -> str:
    """The file that a link means; of a folder its README, else its sources, else itself."""
    found = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
    for name in (found, f"{found}/README.md", f"{found}/src/lib.rs"):
        if (ROOT / name).is_file():
            return name
    if (ROOT / found).is_dir():
        return found
    sys.exit(f"{path}: the link to {link} leads nowhere")


def moved(path: str, markdown: str) -> str:
    """A page whose links lead to where the files are in the site."""
    here = posixpath.dirname(site_uri(path)) or "."

    def link(found: re.Match[str]) -> str:
        return posixpath.relpath(site_uri(target(path, found[1])), here)

    parts = CODE.split(markdown)
    parts[::2] = [LINK.sub(link, text) for text in parts[::2]]
    return FENCE.sub(r"\1", "".join(parts))


def site_uri(path: str) -> str:
    """Where a file of the repository is in the site."""
    if path in MOVED:
        return MOVED[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path}" if path.endswith(AS_IT_IS) else f"source/{path}.html"


def rust() -> str:
    """The list of the crates, whose documentation `cargo xtask docs` puts beside the pages."""
    rows = []
    for manifest in sorted(ROOT.glob("crates/*/Cargo.toml")):
        text = manifest.read_text(encoding="utf-8")
        if "publish = false" in text or not (manifest.parent / "src/lib.rs").exists():
            continue
        name, about = re.findall(r'^(?:name|description) = "(.*)"$', text, re.MULTILINE)[:2]
        rows.append(f'| <a href="../rust/{name.replace("-", "_")}/index.html">{name}</a> | {about} |')
    head = "# Rust\n\nWho writes ops needs `opsmith` alone.\n\n| crate | what it is |\n|---|---|\n"
    return head + "\n".join(rows) + "\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
