"""Wheels of operator crates: the build backend of PEP 517, and what `opsmith wheel` calls.

    [build-system]
    requires = ["opsmith"]
    build-backend = "opsmith.build"

in a `pyproject.toml` beside a crate's `Cargo.toml` lets `pip install .` build and install it. Cargo compiles
the crate; what is said of the package is taken from `Cargo.toml`, and from `[project]` where there is one.
The wheel has one shared library for all versions of Python and all frameworks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opsmith._errors import Error
from opsmith.build import _crate, _package, _sdist
from opsmith.jit import _crates
from opsmith.jit._errors import BuildError

_Settings = Mapping[str, Any] | None
_SETTINGS = {"profile": "release", "compatibility": "manylinux_2_28"}
"""Those that there are, each with an example."""

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]


@contextmanager
def _told() -> Iterator[None]:
    """Ends the program with the message alone, which front ends show: a traceback helps no author."""
    try:
        yield
    except (Error, OSError) as error:
        sys.exit(f"error: {error}")


@_told()
def get_requires_for_build_wheel(config_settings: _Settings = None) -> list[str]:
    """What a build needs besides this package: a reader of TOML, which Python 3.10 lacks, and a linker for
    older systems where `compatibility` names one."""
    needed = [] if sys.version_info >= (3, 11) else ["tomli"]
    return [*needed, "cargo-zigbuild"] if "compatibility" in _checked(config_settings) else needed


def get_requires_for_build_editable(config_settings: _Settings = None) -> list[str]:
    """The same as for a wheel."""
    return get_requires_for_build_wheel(config_settings)


def get_requires_for_build_sdist(config_settings: _Settings = None) -> list[str]:
    """The same as for a wheel."""
    return get_requires_for_build_wheel(config_settings)


@_told()
def build_wheel(
    wheel_directory: str, config_settings: _Settings = None, metadata_directory: str | None = None
) -> str:
    """Build the wheel of the crate in this folder, and give its name.

    The setting `profile` is `dist`, or `release`, which is sooner made and larger: `-C profile=release`.
    `-C compatibility=manylinux_2_28` makes it for systems as old as that.
    """
    settings = _checked(config_settings)
    profile = settings.get("profile", "dist")
    if profile not in _crates.PROFILES:
        raise BuildError(f"there is no profile {profile!r}\n  → it is {' or '.join(_crates.PROFILES)}")
    made = _package.wheel(
        _crate.find(Path.cwd()),
        Path(wheel_directory),
        profile,
        compatibility=settings.get("compatibility"),
    )
    return made.name


@_told()
def build_editable(
    wheel_directory: str, config_settings: _Settings = None, metadata_directory: str | None = None
) -> str:
    """Build a wheel that loads the library from Cargo's target folder, and give its name.

    After `opsmith build --release` a new process has the ops as they are then; ops that are new or renamed
    take another `pip install -e .`.
    """
    _checked(config_settings)
    return _package.wheel(_crate.find(Path.cwd()), Path(wheel_directory), "release", editable=True).name


@_told()
def build_sdist(sdist_directory: str, config_settings: _Settings = None) -> str:
    """Pack the sources of the crate in this folder, and give the archive's name."""
    _checked(config_settings)
    return _sdist.sdist(_crate.find(Path.cwd()), Path(sdist_directory)).name


def _checked(config_settings: _Settings) -> Mapping[str, str]:
    """The settings. Refuses one that there is not, and one with several values."""
    settings = config_settings or {}
    for name, value in settings.items():
        if name not in _SETTINGS or not isinstance(value, str):
            wrong = f"takes one value, not {value!r}" if name in _SETTINGS else "does not exist"
            examples = " and ".join(f"`-C {known}={example}`" for known, example in _SETTINGS.items())
            raise BuildError(f"the setting `{name}` {wrong}\n  → the settings are {examples}")
    return settings
