"""A notebook as a page: its text, its code, and what it was kept with."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def page(path: Path) -> tuple[str, dict[str, bytes]]:
    """The page in Markdown, and its pictures by name."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            for kind, shown in picture(output):
                name = f"{path.stem}-{len(pictures)}.{kind}"
                pictures[name] = shown
                parts.append(f"![What the cell shows]({name})")
            parts += text(output)
    return "\n\n".join(parts) + "\n", pictures


def picture(output: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    data = output.get("data", {})
    if "image/png" in data:
        yield "png", base64.b64decode(data["image/png"])
    elif "image/svg+xml" in data:
        yield "svg", "".join(data["image/svg+xml"]).encode()


def text(output: dict[str, Any]) -> Iterator[str]:
    data = output.get("data", {})
    if output["output_type"] == "stream":
        yield f"```text\n{''.join(output['text']).rstrip()}\n```"
    elif "text/html" in data:
        yield f'<div style="overflow-x:auto">{"".join(data["text/html"])}</div>'
    elif not any(kind.startswith("image/") for kind in data):
        yield f"```text\n{''.join(data['text/plain'])}\n```"
