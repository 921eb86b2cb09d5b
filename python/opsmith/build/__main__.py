"""`python -m opsmith.build`: the wheel of a crate of operators; `opsmith wheel` calls it.

The status is 1 when the crate cannot be made a wheel, the message saying why.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from opsmith._errors import Error
from opsmith.build import _crate, _package, _sdist


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m opsmith.build", description="Builds the wheel of a crate of operators."
    )
    parser.add_argument(
        "--manifest-path",
        type=Path,
        default=Path("Cargo.toml"),
        metavar="FILE",
        help="the crate's Cargo.toml",
    )
    parser.add_argument("--out", type=Path, default=Path("dist"), metavar="FOLDER", help="where to put it")
    parser.add_argument("--sdist", action="store_true", help="pack the sources as well")
    parser.add_argument("--release", action="store_true", help="sooner made, and the library is larger")
    parser.add_argument(
        "--compatibility", metavar="TAG", help="the oldest system that the wheel is for: manylinux_2_28"
    )
    parser.add_argument("--json", action="store_true", help="write JSON, for programs")
    options = parser.parse_args(arguments)
    try:
        crate = _crate.find(options.manifest_path.parent)
        made = [_sdist.sdist(crate, options.out)] if options.sdist else []
        profile = "release" if options.release else "dist"
        made.append(_package.wheel(crate, options.out, profile, compatibility=options.compatibility))
        sizes = [path.stat().st_size for path in made]
    except (Error, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.json:
        files = zip(made, sizes, strict=True)
        print(json.dumps([{"path": str(path), "bytes": size} for path, size in files], indent=2))
    else:
        for path, size in zip(made, sizes, strict=True):
            print(f"{path}  {size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
