"""What an author has written in Python beside the ops: the folder `python` of the crate."""

from __future__ import annotations

import ast
import difflib
import keyword
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

from opsmith._native import read_file
from opsmith.build._crate import Crate
from opsmith.jit._errors import BuildError

FOLDER = "python"

INIT = "_init"
"""The module that `python/__init__.py` becomes, which runs when the package is imported."""

_EDITABLE = """\
# Reads the file where it lies, so that a new process has it as it is then.
with open({path!r}, encoding="utf-8") as _file:
    _source = _file.read()
exec(compile(_source, {path!r}, "exec"))
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
    exported = _exported(files["__init__.py"], taken) if "__init__.py" in files else ()
    return Own(folder, files, exported)


def check_imports(own: Own, package: str, ops: Sequence[str]) -> None:
    """Raises `BuildError` where a file imports from the module a name that it does not have."""
    init = own.files.get("__init__.py")
    if init is not None and _bound(_parsed(init)) is None:
        return  # It may give the module any name.
    names = {*ops, *own.exported, *(name.split("/", 1)[0].split(".", 1)[0] for name in own.files)}
    for place, path in own.files.items():
        if not place.endswith(".py"):
            continue
        for line, name in _imported(_parsed(path), package, place.count("/") + 1):
            if name not in names and not name.startswith("_"):
                close = difflib.get_close_matches(name, names, 1)
                others = f"name an op, a module, or what is in `__all__` of {FOLDER}/__init__.py"
                advice = f"did you mean `{close[0]}`?" if close else others
                raise BuildError(
                    f"{path}:{line}: imports `{name}` from `{package}`, which does not have it\n  → {advice}"
                )


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
            f"{path}: a shared library is not Python\n  → leave it out; the wheel has what Cargo builds"
        )


def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(read_file(path), str(path))
    except (SyntaxError, ValueError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        raise BuildError(f"{path}{line}: {said}") from None


def _exported(path: Path, taken: Sequence[str]) -> tuple[str, ...]:
    """The names in `__all__`, which has to be a list that is written out, once, of what the file has."""
    names: tuple[str, ...] | None = None
    tree = _parsed(path)
    for statement in tree.body:
        names = _listed(statement) if names is None else names
    made = [each for each in ast.walk(tree) if _makes_names(each)]
    if len(made) > (0 if names is None else 1):
        line = getattr(made[-1], "lineno", 1)
        raise BuildError(f"{path}:{line}: `__all__` must be a list of names that is written out, once")
    bound = _bound(tree)
    for each in names or ():
        if each in taken:
            raise BuildError(f"{path}: `__all__` has `{each}`, which is an op\n  → choose another name")
        if bound is not None and each not in bound:
            raise BuildError(f"{path}: `__all__` has `{each}`, which the file does not define or import")
    return names or ()


def _imported(tree: ast.Module, package: str, depth: int) -> Iterator[tuple[int, str]]:
    """The names that a file, which lies `depth` packages deep, imports from the module, and their lines. What
    is tried, and may fail, is left out."""
    tries = (node for node in ast.walk(tree) if isinstance(node, ast.Try) and node.handlers)
    tried = {each for node in tries for statement in node.body for each in ast.walk(statement)}
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=module, level=level, names=names):
                if node not in tried and (module, level) in ((package, 0), (None, depth)):
                    yield from ((node.lineno, each.name) for each in names if each.name != "*")


def _bound(tree: ast.Module) -> set[str] | None:
    """The names that a module may have, or more; `None` where it may have any."""
    names = {"__doc__", "__file__", "__name__", "__package__", "__path__", "__spec__", "__loader__"}
    for node in ast.walk(tree):
        match node:
            case ast.alias(name="*") | ast.Attribute(attr="modules" | "__dict__"):
                return None
            case ast.Name(id="exec" | "globals" | "locals" | "setattr" | "vars"):
                return None
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case (
                ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name))
            ):
                names.add(name)
            case ast.alias(name=name, asname=as_name):
                names.add(as_name or name.split(".", 1)[0])
    return None if "__getattr__" in names else names


def _makes_names(node: ast.AST) -> bool:
    """Whether it makes or changes `__all__`."""
    match node:
        case ast.Attribute(value=ast.Name(id="__all__")):
            return True
        case ast.Name(id="__all__", ctx=ast.Store() | ast.Del()):
            return True
        case ast.alias(name=name, asname=as_name):
            return "__all__" in (name, as_name)
    return False


def _listed(statement: ast.stmt) -> tuple[str, ...] | None:
    """The names of `__all__ = [...]` and `__all__: list[str] = [...]`; none of other statements."""
    match statement:
        case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List() | ast.Tuple() as value):
            pass
        case ast.AnnAssign(target=ast.Name(id="__all__"), value=ast.List() | ast.Tuple() as value):
            pass
        case _:
            return None
    names = tuple(
        each.value for each in value.elts if isinstance(each, ast.Constant) and _is_name(each.value)
    )
    return names if len(names) == len(value.elts) else None


def _is_name(name: object) -> TypeGuard[str]:
    return isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)
