"""`python -m opsmith.stubs LIB [-o FILE]`: writes the type stub of a library beside it."""

from __future__ import annotations

import argparse
from pathlib import Path

from opsmith._library import load
from opsmith._stubs import stubs


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m opsmith.stubs", description="Writes the type stub of a library."
    )
    parser.add_argument("library", type=Path, help="the shared library")
    parser.add_argument(
        "-o", "--output", type=Path, help="the stub's path; by default <library name>.pyi beside it"
    )
    options = parser.parse_args(arguments)
    library = load(options.library)
    output = options.output or options.library.parent / f"{library.__name__}.pyi"
    output.write_text(stubs(library), encoding="utf-8")
    print(output)


if __name__ == "__main__":
    main()
