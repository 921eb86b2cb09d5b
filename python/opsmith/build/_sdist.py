"""The archive of a crate's sources, which `pip` builds on the machine that it installs on."""

from __future__ import annotations

from pathlib import Path

from opsmith._native import read_file
from opsmith.build import _archive, _crate, _metadata, _own
from opsmith.build._crate import Crate
from opsmith.jit._errors import BuildError


def sdist(crate: Crate, folder: Path) -> Path:
    """Packs the crate's sources, in `folder`; the archive's path. Raises `BuildError` where they would not
    do without what lies around them."""
    if not (crate.folder / "pyproject.toml").exists():
        raise BuildError(
            f"{crate.folder}: has no pyproject.toml, without which nobody could build the sources\n"
            '  → write one:\n\n        [build-system]\n        requires = ["opsmith"]\n'
            '        build-backend = "opsmith.build"'
        )
    if not crate.workspace.samefile(crate.folder):
        raise BuildError(
            f"`{crate.name}` is part of the workspace {crate.workspace}, and cannot be built without it\n"
            "  → give others wheels, or make it a crate by itself"
        )
    elsewhere = [
        each
        for each in crate.package["dependencies"]
        if each.get("path") is not None and crate.folder.resolve() not in Path(each["path"]).resolve().parents
    ]
    for each in elsewhere:
        if each["req"] == "*":
            raise BuildError(
                f"`{crate.name}` depends on {each['path']}, which others do not have\n"
                f'  → give a version as well: {each["name"]} = {{ version = "...", path = "..." }}; that of '
                "`opsmith` is brought by the Python package of that version"
            )
    metadata = _metadata.read(crate)
    # Packages that were made before lie in a folder that Cargo leaves out only where Git does.
    listed = (path for path in _crate.files(crate) if not path.name.endswith((".whl", ".tar.gz")))
    paths = {*listed, Path("pyproject.toml")}
    files = {path.as_posix(): read_file(crate.folder / path) for path in paths}
    if elsewhere:
        files["Cargo.toml"] = _crate.published_manifest(crate)
    files |= {name: read_file(path) for name, path in metadata.licences.items()}
    # Whatever Cargo is told to publish.
    written = _own.find(crate, ()).files
    files |= {f"{_own.FOLDER}/{name}": read_file(path) for name, path in written.items()}
    return _archive.write_sdist(folder, metadata, files)
