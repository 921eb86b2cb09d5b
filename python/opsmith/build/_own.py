"""What an author has written in Python beside the ops: the folder `python` of the crate."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from opsmith._native import read_file
from opsmith.build._crate import Crate
from opsmith.jit._errors import BuildError

FOLDER = "python"

INIT = "_init"
"""The module that `python/__init__.py` becomes, which runs when the package is imported."""

_EDITABLE = """\
# Reads the file where it lies, so that a new process has it as it is then.
exec(compile(open({path!r}, encoding="utf-8").read(), {path!r}, "exec"))
"""


@dataclass(frozen=True)
class Own:
    """The author's files, by their paths in the module."""

    folder: Path
    files: dict[str, Path] = field(default_factory=dict)
    exported: tuple[str, ...] = ()
    """The names that `__init__.py` gives to the module: those of its `__all__`."""

    @property
    def has_init(self) -> bool:
        """Whether something is to run when the module is imported."""
        return "__init__.py" in self.files


def find(crate: Crate, taken: Sequence[str]) -> Own:
    """The author's Python of a crate, whose module has functions of these names.

    Raises `BuildError` for a file that takes the place of one that is generated or has the name of a
    function, and for what is no Python.
    """
    folder = crate.folder / FOLDER
    paths = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}
    left_out = [path for path in paths if any(_is_left_out(part) for part in path.parts)]
    files = {path.as_posix(): paths[path] for path in paths if path not in left_out}
    for name, path in files.items():
        _check_name(name, path, taken)
        if name.endswith((".py", ".pyi")):
            _parsed(path)
    exported = _exported(files["__init__.py"]) if "__init__.py" in files else ()
    for each in exported:
        if each in taken:
            raise BuildError(
                f"{files['__init__.py']}: `__all__` has `{each}`, which is an op\n  → choose another name"
            )
    return Own(folder, files, exported)


def packed(own: Own, editable: bool) -> dict[str, bytes]:
    """The files as the module has them. Those of an editable wheel stay where they are."""
    init = {}
    if own.has_init:
        path = own.files["__init__.py"]
        init[f"{INIT}.py"] = _EDITABLE.format(path=str(path)).encode() if editable else read_file(path)
    others = (
        {} if editable else {name: read_file(own.files[name]) for name in own.files if name != "__init__.py"}
    )
    return init | others


def imports(own: Own) -> str:
    """The lines of the module, and of its stub, that import what the author gives to it."""
    if own.exported:
        return "".join(f"from .{INIT} import {name} as {name}\n" for name in own.exported)
    return f"from . import {INIT} as {INIT}\n" if own.has_init else ""


def _is_left_out(part: str) -> bool:
    return part == "__pycache__" or part.startswith(".") or part.endswith((".pyc", ".egg-info"))


def _check_name(name: str, path: Path, taken: Sequence[str]) -> None:
    first = name.split("/", 1)[0]
    if name in ("__init__.pyi", "py.typed", f"{INIT}.py", f"{INIT}.pyi"):
        raise BuildError(
            f"{path}: the wheel has a file of this name, which is generated\n  → give it another name"
        )
    stem = first.split(".", 1)[0]
    if stem in taken:
        raise BuildError(
            f"{path}: the module `{stem}` would take the place of the op of that name\n  → give it "
            "another name"
        )
    if first.endswith((".so", ".so.kernels")):
        raise BuildError(
            f"{path}: a shared library is no Python\n  → what Cargo builds is in the wheel anyhow"
        )


def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(read_file(path), str(path))
    except (SyntaxError, ValueError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        raise BuildError(f"{path}{line}: {said}") from None


def _exported(path: Path) -> tuple[str, ...]:
    """The names in `__all__`, which has to be a list that is written out."""
    for statement in _parsed(path).body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            try:
                names = ast.literal_eval(statement.value)  # type: ignore[attr-defined]
                if all(isinstance(name, str) and name.isidentifier() for name in names):
                    return tuple(names)
            except (ValueError, TypeError):
                pass
            raise BuildError(
                f"{path}:{statement.lineno}: `__all__` must be a list of names that is written out"
            )
    return ()
