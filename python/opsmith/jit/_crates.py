"""The sources of Opsmith's crates, a clone's own in a clone, else those that the package carries; and how
they are compiled."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from opsmith import _native
from opsmith._native import check_own
from opsmith.jit._cache import digest, fingerprint, locked, make_folder, put, touch, workplace, write

# As `opsmith build` and Opsmith's own workspace have them.
PROFILES = {
    "release": (
        "codegen-units=4",
        'lto="off"',
        "build-override.codegen-units=4",
        "build-override.opt-level=3",
        "package.autocfg.opt-level=0",
        "package.dyn-stack-macros.opt-level=0",
        'package.opsmith-core.opt-level="s"',
        'package.opsmith-cuda.opt-level="s"',
        'package.opsmith-files.opt-level="s"',
        'package.opsmith-frameworks.opt-level="s"',
        "package.opsmith-macros.opt-level=0",
        'package.opsmith-threads.opt-level="s"',
        "package.paste.opt-level=0",
        "package.proc-macro2.opt-level=0",
        'package.pulp.opt-level="s"',
        "package.quote.opt-level=0",
        "package.seq-macro.opt-level=0",
        "package.serde_derive.opt-level=0",
        "package.syn.opt-level=0",
        "package.version_check.opt-level=0",
    ),
    "dist": (
        'inherits="release"',
        "codegen-units=1",
        'lto="fat"',
        'strip="symbols"',
        'package.opsmith-cuda.opt-level="z"',
        'package.opsmith-files.opt-level="z"',
        'package.opsmith-frameworks.opt-level="z"',
        'package.opsmith-threads.opt-level="z"',
        'package.rayon-core.opt-level="s"',
        'package.serde_json.opt-level="s"',
    ),
}
"""Settings of Cargo's profiles, for crates that say nothing of them."""

_CLONE = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Crates:
    """A folder with `Cargo.lock` and `crates/opsmith`.

    `features` are those that `opsmith` is built with; `state` changes when they do, or a source does.
    """

    folder: Path
    features: tuple[str, ...]
    state: str
    is_clone: bool

    def touch(self) -> None:
        """Note that they are used."""
        if not self.is_clone:
            touch(self.folder / "used")

    def unpack(self, cache: Path) -> None:
        """See to it that the folder is there."""
        if self.is_clone:
            return
        check_own(self.folder, tree=True)
        self.touch()
        if self.folder.exists():
            return
        name = f"crates-{self.folder.name}"
        with locked(cache, name, lambda: None):
            if self.folder.exists():
                return
            with workplace(cache, name) as made:
                for name, text in _native.crate_sources():
                    path = made / name
                    make_folder(path.parent)
                    write(path, text)
                touch(made / "used")
                put(made, self.folder)


def find(cache: Path) -> Crates:
    """The sources for this package, to be built for the processor that this is."""
    processor = _native.processor_feature()
    features = ("prebuilt", processor) if processor else ("prebuilt",)
    if (_CLONE / "crates" / "opsmith" / "Cargo.toml").exists():
        state = digest([fingerprint(_CLONE / "crates"), str(_CLONE), *features])
        return Crates(_CLONE, features, state, is_clone=True)
    sources = _packaged_state()
    # By its own name, whatever links lead to it: under another one Cargo compiles the crates again.
    folder = (cache / "crates").resolve() / sources
    return Crates(folder, features, digest([sources, *features]), is_clone=False)


@lru_cache
def _packaged_state() -> str:
    return digest(part for file in _native.crate_sources() for part in file)
