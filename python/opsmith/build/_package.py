"""The package: a module with the library's functions, the library, and the wheel that they are in."""

from __future__ import annotations

import sys
from importlib.metadata import packages_distributions
from pathlib import Path

from opsmith import _wrappers
from opsmith._errors import Error
from opsmith._library import Library, definition_of, load
from opsmith._native import read_file
from opsmith._stubs import stub_of
from opsmith.build import _archive, _crate, _elf, _metadata, _own
from opsmith.build._crate import Crate
from opsmith.build._inventory import LICENCES_NAME
from opsmith.build._metadata import Metadata, normalised
from opsmith.jit._errors import BuildError

_TAKEN = sys.stdlib_module_names | {"jax", "numpy", "opsmith", "tensorflow", "torch"}
_ADVICE = "list the ops of the crate once, at its root: opsmith::library! { ops = [...] }"

_MODULE = """\
from pathlib import Path as _Path

from opsmith import load as _load

_library = _load({file})

__doc__ = {doc}
__version__ = _library.__version__
# Without the ops that are only the gradients of others.
__all__ = [
{public}
]

{functions}

# They are this module's, so `pickle` finds them here.
for _function in ({names},):
    _function.__module__, _function.__qualname__ = __name__, _function.__name__
{own}"""

_OWN = """
# What the author has written in Python.
{path}{imports}__all__ += {exported!r}
"""


def wheel(
    crate: Crate,
    folder: Path,
    profile: str = "dist",
    editable: bool = False,
    compatibility: str | None = None,
) -> Path:
    """Builds the crate's library in a profile of Cargo's, and its wheel, in `folder`; the wheel's path.

    An editable one loads the library from where Cargo puts it. With `compatibility`, such as
    `manylinux_2_28`, the wheel is for systems as old as that, whatever this one is.
    """
    oldest = None if compatibility is None else _elf.oldest_system(compatibility)
    metadata = _metadata.read(crate)
    # Errors that do not depend on the ops are reported before Cargo compiles, which takes minutes.
    _own.find(crate, ())
    file = _crate.build(crate, profile, oldest)
    library = _loaded(crate, file)
    _check_name(library.__name__, metadata)
    needs = _elf.needs(file)
    platform = f"linux_{needs.machine}" if editable else needs.platform
    if oldest is not None and not needs.runs_on(oldest):
        raise BuildError(
            f"the library needs {', '.join(needs.newer_than(oldest))}, which not every system of "
            f"{compatibility} has\n  → leave `compatibility` out, and `auditwheel repair` the wheel"
        )
    if needs.elsewhere and not editable:
        print(
            f"opsmith: the library needs {', '.join(needs.elsewhere)}, which other systems may lack: the "
            f"wheel is for {platform}, and indexes refuse it\n  → `auditwheel repair` puts libraries into it",
            file=sys.stderr,
        )
    files = _files(crate, library, file, profile, editable, metadata.summary)
    about = {} if editable else _about(crate, metadata, oldest)
    return _archive.write_wheel(folder, metadata, f"py3-none-{platform}", files, about)


def _about(crate: Crate, metadata: Metadata, oldest: tuple[int, int] | None) -> dict[str, bytes]:
    """What is told of the crates that are linked into the library: their licences, and a list."""
    inventory = _crate.inventory(crate, oldest)
    about = {f"sboms/{normalised(metadata.name)}.cdx.json": inventory.bill().encode()}
    # The author may have written it.
    if LICENCES_NAME not in metadata.licences:
        metadata.fields.append(("License-File", LICENCES_NAME))
        about[f"licenses/{LICENCES_NAME}"] = inventory.licences().encode()
    return about


def _loaded(crate: Crate, file: Path) -> Library:
    try:
        library = load(file)
    except Error as error:
        advice = f"\n  → {_ADVICE}" if "opsmith_library_v1" in str(error) else ""
        raise BuildError(f"`{crate.name}` was built, but cannot be used: {error}{advice}") from error
    if not definition_of(library).ops:
        raise BuildError(f"`{crate.name}` was built, but its library has no ops\n  → {_ADVICE}")
    return library


def _check_name(name: str, metadata: Metadata) -> None:
    """Refuses a module that would hide another, or be hidden by it."""
    advice = 'choose another name: opsmith::library! { name = "...", ops = [...] }'
    if name in _TAKEN:
        raise BuildError(f"`import {name}` means something else in Python\n  → {advice}")
    owners = packages_distributions().get(name, [])
    if others := sorted({owner for owner in owners if normalised(owner) != normalised(metadata.name)}):
        raise BuildError(f"the module `{name}` is installed already, by {', '.join(others)}\n  → {advice}")


def _files(
    crate: Crate, library: Library, built: Path, profile: str, editable: bool, summary: str = ""
) -> dict[str, bytes]:
    """The module's files, whose docstring begins with the summary. With `editable`, the library and the
    author's are not among them."""
    name = library.__name__
    ops = definition_of(library).ops
    gradients = {op.gradient.op for op in ops if op.gradient is not None}
    names = [_wrappers.function_name(op) for op in ops]
    public = [_wrappers.function_name(op) for op in ops if op.name not in gradients]
    own = _own.find(crate, names)
    _own.check_imports(own, name, names)
    path = f"__path__.append({str(own.folder)!r})\n" if editable else ""
    beside = f'_Path(__file__).with_name("lib{name}.so")'
    head = f"{summary}\n\n" if summary else ""
    module = _MODULE.format(
        doc=f"{head!r} + _library.__doc__" if head else "_library.__doc__",
        file=f"_Path({str(built)!r})" if editable else beside,
        public="\n".join(f'    "{each}",' for each in public),
        names=", ".join(names),
        functions="\n".join(f"{each} = _library.{each}" for each in names),
        own=_OWN.format(path=path, imports=_own.imports(own), exported=list(own.exported))
        if own.files
        else "",
    )
    exported = f"__all__ = {[*public, *own.exported]!r}\n"
    stub = f"{stub_of(library, head)}\n{_own.imports(own)}__version__: str\n{exported}"
    files = {"__init__.py": module.encode(), "__init__.pyi": stub.encode(), "py.typed": b""}
    files |= _own.packed(own, editable)
    if not editable:
        files[f"lib{name}.so"] = read_file(built)
        files |= {
            f"lib{name}.so.kernels/{file}": data for file, data in _cuda_kernels(built, profile).items()
        }
    return {f"{name}/{file}": data for file, data in files.items()}


def _cuda_kernels(built: Path, profile: str) -> dict[str, bytes]:
    """The CUDA kernels that were compiled ahead of time, from the folder beside the library."""
    folder = built.with_name(f"{built.name}.kernels")
    kernels = {path.name: read_file(path) for path in sorted(folder.glob("*")) if path.is_file()}
    if kernels and folder.stat().st_mtime < built.stat().st_mtime:
        print(
            f"opsmith: {folder} is older than the library; kernels whose source has changed are compiled at "
            f"their first use\n  → `opsmith build --{profile} --cuda-kernels` compiles them now",
            file=sys.stderr,
        )
    return kernels
