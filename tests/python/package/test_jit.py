"""Just-in-time builds: what sources may be, what comes of them, and what is missing on a machine."""

from __future__ import annotations

import itertools
import pickle
import re
import shutil
from pathlib import Path

import numpy as np
import opsmith
import pytest
from conftest import (
    CACHE,
    ROOT,
    SOURCE,
    added,
    child,
    failure,
    link_dependencies,
    source,
)
from opsmith import jit
from opsmith.jit import _build, _toolchain

pytestmark = pytest.mark.usefixtures("cache")


def test_a_source_says_nothing_but_its_ops(name: str) -> None:
    library = jit.load_inline(
        name,
        """
        /// The sigmoid linear unit.
        #[pointwise]
        fn swish<S: Scalar>(x: S) -> S {
            x * x.sigmoid()
        }

        /// The norm of each row.
        #[reduce]
        fn norm<R: Rows>(x: R::Each) -> R::One {
            (x * x).sum().sqrt()
        }
        """,
    )
    assert isinstance(library, opsmith.Library)
    assert (library.__name__, library.swish.__name__) == (name, "swish")
    x = np.linspace(-2, 2, 6).reshape(2, 3)
    np.testing.assert_allclose(library.swish(x), x / (1 + np.exp(-x)), rtol=1e-14)
    np.testing.assert_allclose(library.norm(x), np.linalg.norm(x, axis=1), rtol=1e-14)
    assert library.swish_grad(np.ones(1), np.ones(1)).shape == (1,)


def test_the_program_in_the_guide_says_what_it_gives() -> None:
    program = (ROOT / "docs" / "jit.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    *head, last = program.strip().splitlines()
    call, shown = last.split("    # ")
    assert child("\n".join([*head, f"print(repr({call}))"])).stdout.strip() == shown


def test_nothing_is_built_again_while_nothing_has_changed(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    library = jit.load_inline(name, source(1))
    assert jit.load_inline(name, source(1), verbose=True) is library
    assert "unchanged" in capfd.readouterr().err
    file = Path(library.__file__)
    built = file.stat().st_mtime_ns
    done = child(f"jit.load_inline({name!r}, source(1), verbose=True)")
    assert (done.returncode, file.stat().st_mtime_ns) == (0, built)
    assert "unchanged" in done.stderr
    assert "compiling" not in done.stderr


def test_verbose_tells_each_step_and_the_warnings(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    jit.load_inline(name, source(2) + "fn nobody_calls_it() {}\n", verbose=True)
    said = capfd.readouterr().err
    for step in [
        "compiling with rustc",
        "--crate-type cdylib",
        "never used",
        "compiled in",
        "built",
        "loaded as",
    ]:
        assert step in said
    jit.load_inline(name, source(3) + "fn nobody_calls_it() {}\n")
    assert capfd.readouterr().err == ""


def test_a_changed_source_is_a_new_library_beside_the_old(name: str) -> None:
    """As in a notebook whose cell is run again; the definitions are the same."""
    first, second = jit.load_inline(name, source(1)), jit.load_inline(name, source(2))
    assert (added(first), added(second)) == (1, 2)
    assert first.__name__ == name
    assert re.fullmatch(name + "_[0-9a-f]{8}", second.__name__)
    assert jit.load_inline(name, source(1)) is first
    assert jit.load_inline(name, source(2)) is second


def test_files_are_modules_and_may_include_others(name: str, tmp_path: Path) -> None:
    (tmp_path / "ops.rs").write_text(
        """
        use crate::helpers::VALUE;

        /// Adds.
        #[op(shape = "(n)->(n)")]
        fn shifted(x: ArrayView1<f64>, mut y: ArrayViewMut1<f64>) {
            let more: f64 = include_str!("more.txt").trim().parse().unwrap();
            azip!((y in &mut y, &x in &x) *y = x + VALUE + more);
        }
        """
    )
    (tmp_path / "helpers.rs").write_text("pub(crate) const VALUE: f64 = 1.0;")
    (tmp_path / "more.txt").write_text("0.5\n")
    files = [str(tmp_path / "ops.rs"), str(tmp_path / "helpers.rs")]
    assert added(jit.load(name, files)) == 1.5
    command = f"from numpy import zeros; print(jit.load({name!r}, {files}).shifted(zeros(1)))"
    (tmp_path / "more.txt").write_text("0.25")
    assert child(command).stdout == "[1.25]\n"
    (tmp_path / "helpers.rs").write_text("pub(crate) const VALUE: f64 = 2.0;")
    assert child(command).stdout == "[2.25]\n"


# Its kernel for the CPU adds 0, that for a card doubles; `FILE` is where the latter is.
ON_CARDS = """
use opsmith::cuda::{CudaCall, DeviceView, DeviceViewMut, Index};

#[op(shape = "(n)->(n)", strided, cuda = "FILE")]
fn shifted(x: ArrayView1<f64>, mut y: ArrayViewMut1<f64>) {
    y.assign(&x);
}

fn shifted_cuda(call: &CudaCall, x: DeviceView<f64>, y: DeviceViewMut<f64>) -> Result<()> {
    let index = Index::of(&[&x, &y]);
    let kernel = call.kernel(format!("doubled<{}>", index.name()));
    // SAFETY: the kernel takes these two.
    unsafe { kernel.for_each(y.num_elements()).flat(&x, index).flat(&y, index).launch() }
}
"""
KERNEL = """#include "opsmith.cuh"
template <typename Index>
using To = opsmith::FlatAccessor<double, Index>;
template <typename Index>
__global__ void doubled(opsmith::FlatAccessor<const double, Index> x, To<Index> y) {
    OPSMITH_GRID_LOOP(Index, i, y.count()) y[i] = 2 * x[i];
}
"""


def test_cuda_sources_are_carried_along(name: str) -> None:
    text = source(0).replace("+ 0.0", "+ crate::CUDA_SOURCES.concat().len() as f64")
    assert added(jit.load_inline(name, text, "__global__ void f() {}")) == len("__global__ void f() {}")
    assert added(jit.load_inline(name, text, "// changed")) == len("// changed")


def test_an_op_finds_its_kernel_in_the_strings_beside_it(name: str) -> None:
    """The CPU's goes on as ever, and the library has the source and the file that messages are to name."""
    second = ON_CARDS.replace("shifted", "moved").replace("FILE", f"{name}_2.cu")
    rust = [ON_CARDS.replace("FILE", f"{name}.cu"), second]
    library = jit.load_inline(name, rust, [KERNEL, KERNEL + "// the second"])
    assert added(library) == 0 and library.moved(np.ones(1))[0] == 1
    content = Path(library.__file__).read_bytes()
    assert KERNEL.encode() in content and b"// the second" in content
    folder = next(CACHE.glob(f"sources/*/{name}_2.cu")).parent
    assert (folder / f"{name}.cu").read_text() == KERNEL
    assert bytes(folder / f"{name}.rs") in content
    changed = jit.load_inline(name, rust, [KERNEL.replace("2 * x", "3 * x"), KERNEL])
    assert changed is not library and b"3 * x" in Path(changed.__file__).read_bytes()
    assert jit.load_inline(name, rust, [KERNEL, KERNEL + "// the second"]) is library


@pytest.mark.parametrize("listed", [True, False])
def test_a_changed_kernel_is_a_new_library(name: str, tmp_path: Path, listed: bool) -> None:
    """Also where the file is not given but found by the op that names it, beside its own."""
    ops, kernel = tmp_path / "ops.rs", tmp_path / "kernels.cu"
    ops.write_text(ON_CARDS.replace("FILE", "kernels.cu"))
    kernel.write_text(KERNEL)
    files = [ops, kernel] if listed else [ops]
    first = jit.load(name, files)
    assert jit.load(name, files) is first
    assert bytes(ops) in Path(first.__file__).read_bytes()
    kernel.write_text(KERNEL.replace("2 * x", "3 * x"))
    second = jit.load(name, files)
    assert second is not first and second.__name__ != first.__name__
    assert b"3 * x" in Path(second.__file__).read_bytes()
    assert added(first) == added(second) == 0
    kernel.write_text(KERNEL)
    assert jit.load(name, files) is first


@pytest.mark.parametrize("listed", [True, False])
def test_a_kernel_saved_while_it_is_compiled_is_compiled_again(
    name: str, tmp_path: Path, listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ops, kernel = tmp_path / "ops.rs", tmp_path / "kernels.cu"
    ops.write_text(ON_CARDS.replace("FILE", "kernels.cu"))
    kernel.write_text(KERNEL)
    files = [ops, kernel] if listed else [ops]
    later = [KERNEL.replace("2 * x", f"{factor} * x") for factor in (3, 4)]
    saved = iter(later)

    def compile_and_save(*arguments: object) -> None:
        ours(*arguments)  # type: ignore[arg-type]
        if (text := next(saved, None)) is not None:
            kernel.write_text(text)

    ours = _build._compile
    monkeypatch.setattr(_build, "_compile", compile_and_save)
    last = jit.load(name, files)
    assert b"4 * x" in Path(last.__file__).read_bytes()
    assert jit.load(name, files) is last
    # Nothing is filed under a text that it was not compiled from.
    for text in (KERNEL, later[0]):
        kernel.write_text(text)
        library = jit.load(name, files)
        assert library is not last and text.encode() in Path(library.__file__).read_bytes()
    # Nor is there an end without one: somebody writes it all the time.
    saved = (f"{KERNEL}// {number}" for number in itertools.count())
    kernel.write_text(KERNEL + "// new")
    with pytest.raises(jit.BuildError, match=r"kernels\.cu was changed while it was compiled\n  → try again"):
        jit.load(name, files)


def test_a_second_version_has_the_same_name_tomorrow(name: str, tmp_path: Path) -> None:
    """Whether or not it has been built before; a third one that differs only in what it includes, another."""
    ops, more = tmp_path / "ops.rs", tmp_path / "more.txt"
    ops.write_text(source(0).replace("+ 0.0", '+ include_str!("more.txt").parse::<f64>().unwrap()'))
    code = f"jit.load_inline({name!r}, source(1))\n"
    for value in ["2", "3"]:
        code += f"open({str(more)!r}, 'w').write({value!r})\n"
        code += f"print(jit.load({name!r}, {str(ops)!r}).__name__)\n"
    today, tomorrow = child(code), child(code)
    assert today.returncode == 0 and today.stdout == tomorrow.stdout, today.stderr
    second, third = today.stdout.split()
    assert re.fullmatch(name + "_[0-9a-f]{8}", second) and re.fullmatch(name + "_[0-9a-f]{8}", third)
    assert second != third


def test_a_kernel_that_is_elsewhere_is_told_where(name: str, tmp_path: Path) -> None:
    (tmp_path / "rust").mkdir()
    ops, kernel = tmp_path / "rust" / "ops.rs", tmp_path / "kernels.cu"
    ops.write_text(ON_CARDS.replace("FILE", "kernels.cu"))
    kernel.write_text(KERNEL)
    with pytest.raises(
        jit.BuildError, match=r'(?s)ops\.rs:4.*→ `cuda` is a path .*given are "\.\./kernels\.cu"'
    ):
        jit.load(name, [ops, kernel])
    ops.write_text(ON_CARDS.replace("FILE", "../kernels.cu"))
    assert added(jit.load(name, [ops, kernel])) == 0
    with pytest.raises(
        jit.BuildError, match="→ put the file beside that in Rust, or give it as `cuda_source`"
    ):
        jit.load_inline(name, ops.read_text())


def test_crates_can_be_added(name: str) -> None:
    """`itoa` is one that Opsmith itself needs, so no network is needed."""
    text = source(0).replace("+ 0.0", "+ itoa::Buffer::new().format(1234).len() as f64")
    requirements: list[str | dict[str, object]] = ["1", {"version": "1", "default-features": False}]
    for requirement in requirements:
        assert added(jit.load_inline(name, text, dependencies={"itoa": requirement})) == 4
    renamed = text.replace("itoa::", "digits::")
    wanted = {"digits": {"package": "itoa", "version": "1"}}
    assert added(jit.load_inline(name, renamed, dependencies=wanted)) == 4
    with pytest.raises(jit.BuildError, match="itoa"):
        jit.load_inline(name, text)


def test_a_crate_in_a_folder_is_compiled_again_when_it_changes(name: str, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "Cargo.toml").write_text('[package]\nname = "own"\nversion = "1.0.0"\nedition = "2024"\n')
    text = source(0).replace("+ 0.0", "+ own::VALUE")
    for value in [1.0, 2.0]:
        (tmp_path / "src" / "lib.rs").write_text(f"pub const VALUE: f64 = {value!r};")
        assert added(jit.load_inline(name, text, dependencies={"own": {"path": str(tmp_path)}})) == value


def test_flags_are_the_compilers(name: str) -> None:
    text = source(0).replace("+ 0.0", '+ if cfg!(feature = "seven") { 7.0 } else { 0.0 }')
    assert added(jit.load_inline(name, text)) == 0
    assert added(jit.load_inline(name, text, flags=['--cfg=feature="seven"'])) == 7
    with pytest.raises(opsmith.InvalidArgumentError, match="list of strings"):
        jit.load_inline(name, text, flags="-O")


@pytest.mark.parametrize("mistake", ["syntax", "type"])
def test_errors_have_the_authors_file_and_lines(name: str, mistake: str, tmp_path: Path) -> None:
    folder = tmp_path / "mit Leerzeichen und Größe"
    folder.mkdir()
    file = folder / "my ops.rs"
    broken = {"syntax": "+ 1.0 2.0", "type": '+ "text"'}[mistake]
    file.write_text(source(1).replace("+ 1.0", broken))
    with pytest.raises(jit.BuildError) as caught:
        jit.load(name, file)
    assert f"{file}:5:" in str(caught.value)
    with pytest.raises(jit.BuildError) as caught:
        jit.load_inline(name, file.read_text())
    assert re.search(rf"/{name}\.rs:5:\d+", str(caught.value))
    file.write_text(source(1))
    assert added(jit.load(name, file)) == 1


def test_a_source_without_ops_is_told_what_makes_one(name: str) -> None:
    with pytest.raises(jit.BuildError, match=r"there is no op in .*: write #\[op"):
        jit.load_inline(name, "fn shifted() {}")
    with pytest.raises(opsmith.InvalidArgumentError, match="at least one string"):
        jit.load_inline(name, [])
    with pytest.raises(opsmith.InvalidArgumentError, match="at least one file"):
        jit.load(name, [])


def test_an_op_that_others_cannot_see_is_told_to_be_public(name: str) -> None:
    with pytest.raises(
        jit.BuildError, match="the op `inner::shifted` is private in its module: make it `pub`"
    ):
        jit.load_inline(name, "mod inner {" + source(1) + "}")


def test_an_op_name_that_is_taken(name: str, tmp_path: Path) -> None:
    with pytest.raises(jit.BuildError, match="`shifted` is defined multiple times"):
        jit.load_inline(name, source(1) + source(2))
    with pytest.raises(opsmith.AlreadyExistsError, match="give one of the two another name"):
        jit.load_inline(name, [source(1), source(2)])
    assert added(jit.load_inline(name, source(1))) == 1


def test_a_name_that_a_library_from_elsewhere_has(name: str, tmp_path: Path) -> None:
    other = tmp_path / "libother.so"
    shutil.copyfile(jit.load_inline(name, source(1)).__file__, other)
    done = child(f"import opsmith; opsmith.load({str(other)!r}); jit.load_inline({name!r}, source(2))")
    assert f"AlreadyExistsError: the name `{name}` is taken" in done.stderr
    assert "→ choose another name" in done.stderr


def test_a_pickled_function_is_found_in_the_cache(name: str, tmp_path: Path) -> None:
    library = jit.load_inline(name, source(1))
    data = pickle.dumps(library.shifted)
    load = f"import numpy as np, pickle\nf = pickle.loads({data!r})\n"
    # The same source is the library that is there, another one a library beside it.
    code = load + f"again = jit.load_inline({name!r}, source(1))\n"
    code += f"other = jit.load_inline({name!r}, source(2))\n"
    code += "print(f is again.shifted, f(np.zeros(1)), other.shifted(np.zeros(1)), other.__name__)"
    done = child(code)
    assert re.fullmatch(rf"True \[1\.\] \[2\.\] {name}_[0-9a-f]{{8}}\n", done.stdout), done.stderr
    # Where another one has the name, it is not taken for it.
    done = child(f"jit.load_inline({name!r}, source(2))\n{load}")
    assert "AlreadyExistsError: cannot unpickle" in done.stderr, done.stderr
    assert f"this process has `{name}` 0.0.0" in done.stderr
    # On another machine, or when the cache has been emptied.
    shutil.rmtree(Path(library.__file__).parent)
    done = child(load)
    assert f"NotFoundError: cannot unpickle what is of the library `{name}` 0.0.0" in done.stderr
    assert "was built just in time" in done.stderr


@pytest.mark.parametrize("bad", ["My-Ops", "2d", "größe", "a/b", "", "torch", "lambda", 3])
def test_a_bad_name_is_told_a_good_one(bad: str) -> None:
    with pytest.raises(opsmith.InvalidArgumentError, match=r"→ (`[a-z_]+` would do|choose)"):
        jit.load_inline(bad, source(1))


def test_sources_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    with pytest.raises(opsmith.NotFoundError, match=r"no source file .*nothing\.rs"):
        jit.load(name, tmp_path / "nothing.rs")
    with pytest.raises(opsmith.InvalidArgumentError, match="is a directory"):
        jit.load(name, tmp_path)
    (tmp_path / "latin.rs").write_bytes(b"// gr\xf6sse")
    with pytest.raises(opsmith.InvalidArgumentError, match="not UTF-8"):
        jit.load(name, tmp_path / "latin.rs")
    with pytest.raises(opsmith.InvalidArgumentError, match="a string, got bytes"):
        jit.load_inline(name, [b""])  # type: ignore[list-item]


@pytest.mark.parametrize(
    "wanted", [{"a b": "1"}, {"opsmith": "1"}, {"rand": 1}, {"own": {"path": "/nowhere"}}]
)
def test_dependencies_that_cannot_be(name: str, wanted: dict[str, str]) -> None:
    with pytest.raises(opsmith.InvalidArgumentError, match=r"dependencies: .*give|dependencies: .*such as"):
        jit.load_inline(name, source(1), dependencies=wanted)


def test_a_path_with_spaces_and_more_than_ascii(name: str, tmp_path: Path, dependencies: Path) -> None:
    cache = tmp_path / "mit Leerzeichen und Größe"
    cache.mkdir()
    # The dependencies are those of the other cache: only what is made for this library has the path.
    link_dependencies(cache)
    code = f"from numpy import zeros; print(jit.load_inline({name!r}, source(4)).shifted(zeros(1)))"
    done = child(code, OPSMITH_CACHE_DIR=str(cache))
    assert done.stdout == "[4.]\n", done.stderr


def test_no_compiler(name: str, tmp_path: Path) -> None:
    said = failure(
        f"jit.load_inline({name!r}, source(1))", PATH=str(tmp_path), HOME=str(tmp_path), CARGO_HOME=""
    )
    assert "there is no `rustc`" in said
    assert "https://sh.rustup.rs" in said
    assert "there is no `nothing`" in failure(f"jit.load_inline({name!r}, source(1))", CARGO="nothing")


def test_an_old_compiler(name: str, tmp_path: Path) -> None:
    old = tmp_path / "rustc"
    old.write_text("#!/bin/sh\necho 'rustc 1.70.0'; echo 'release: 1.70.0'\n")
    old.chmod(0o755)
    said = failure(f"jit.load_inline({name!r}, source(1))", RUSTC=str(old))
    assert "Rust 1.70; it takes 1.90 or newer" in said
    assert "rustup update" in said


def test_another_compiler_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rustc = tmp_path / "rustc"
    monkeypatch.setenv("RUSTC", str(rustc))
    for release in ["1.98.0", "1.98.0", "1.99.10"]:
        rustc.write_text(f"#!/bin/sh\necho 'release: {release}'\n")
        rustc.chmod(0o755)
        assert _toolchain.find(tmp_path).version == f"release: {release}\n"


def test_no_linker(name: str, tmp_path: Path) -> None:
    rustc, cargo = shutil.which("rustc"), shutil.which("cargo")
    assert rustc and cargo
    environment = {"RUSTC": rustc, "CARGO": cargo, "PATH": str(tmp_path)}
    said = failure(f"jit.load_inline({name!r}, source(5))", **environment)
    assert "there is no linker" in said
    assert "install" in said


def test_no_network(name: str, tmp_path: Path) -> None:
    """A crate that is in no cache, and a proxy that is not there."""
    environment = {"CARGO_HOME": str(tmp_path), "CARGO_NET_RETRY": "0"}
    environment |= dict.fromkeys(["https_proxy", "HTTPS_PROXY", "CARGO_HTTP_PROXY"], "http://127.0.0.1:9")
    programs = {"RUSTC": shutil.which("rustc") or "", "CARGO": shutil.which("cargo") or ""}
    code = f"jit.load_inline({name!r}, source(1), dependencies={{'fastrand': '2'}})"
    said = failure(code, **environment, **programs)
    assert "crates.io cannot be reached" in said
    assert "build once with a network" in said


def test_nothing_is_written_to_where_the_compiler_is_started(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is the root of the file system, where only root may write and builds would meet. A linker that
    fails leaves what
    it was given."""
    monkeypatch.setattr(_toolchain, "start_folder", lambda: str(tmp_path))
    with pytest.raises(jit.BuildError, match="linking with `/bin/false` failed"):
        jit.load_inline(name, source(20), flags=["-Clinker=/bin/false"])
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk(name: str) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (BYTES, BYTES))\n"
    code = f"jit.load_inline({name!r}, source(6))"
    for size in ["100", "100_000"]:
        said = failure(limit.replace("BYTES", size) + code)
        assert "the disk is full" in said
        assert "OPSMITH_CACHE_DIR" in said
    assert added(jit.load_inline(name, source(6))) == 6


def test_a_crate_s_own_root_is_a_source(name: str, tmp_path: Path) -> None:
    """As `opsmith new` makes it, with modules; saved again, it is another library in the same process."""
    (tmp_path / "parts.rs").write_text("/// What is added.\npub const VALUE: f64 = 2.0;\n")
    root = tmp_path / "lib.rs"
    text = f"""//! Operators.
#![deny(missing_docs)]

use opsmith::prelude::*;

mod parts;

{SOURCE.replace("VALUE", "parts::VALUE")}
opsmith::library! {{ name = "elsewhere", ops = [shifted] }}
"""
    root.write_text(text)
    library = jit.load(name, root)
    assert (library.__name__, library.__version__, added(library)) == (name, "0.0.0", 2)
    root.write_text(text.replace("x + parts::VALUE", "x - parts::VALUE"))
    other = jit.load(name, root)
    assert other.__name__.startswith(f"{name}_") and added(other) == -2
    with pytest.raises(opsmith.InvalidArgumentError, match=r"a crate's root.* the only source"):
        jit.load(name, [root, tmp_path / "parts.rs"])
