//! `opsmith new`, `opsmith build` and what `opsmith wheel` refuses, on crates that are really built.
//!
//! They are built into this workspace's own target folder, with its versions of dependencies, so that little is compiled.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{opsmith, stderr, stdout};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

fn workspace() -> PathBuf {
    Path::new(CRATE).join("../..").canonicalize().unwrap()
}

/// A command in `folder` that builds beside us.
fn within<'a>(command: &'a mut Command, folder: &Path) -> &'a mut Command {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    command.current_dir(folder).env("CARGO_TARGET_DIR", target).env("CARGO_NET_OFFLINE", "true")
}

fn cargo(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO"));
    within(command.args(arguments), folder).output().unwrap()
}

fn build(folder: &Path, arguments: &[&str]) -> Output {
    within(opsmith().arg("build").args(arguments), folder).output().unwrap()
}

fn make(folder: &TempDir, name: &str) -> PathBuf {
    make_with(folder, name, &[])
}

fn make_with(folder: &TempDir, name: &str, options: &[&str]) -> PathBuf {
    let output = opsmith().args(["new", name]).args(options).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let made = folder.path().join(name);
    fs::copy(workspace().join("Cargo.lock"), made.join("Cargo.lock")).unwrap();
    made
}

/// A program in the folder that runs the lines.
fn program(folder: &TempDir, name: &str, lines: &str) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, format!("#!/bin/sh\n{lines}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn assert_success(output: &Output) {
    assert!(output.status.success(), "{}{}", stdout(output), stderr(output));
}

#[test]
fn a_new_crate_passes_its_own_tests_and_every_lint() {
    // A path with a space and an umlaut is no trouble.
    let folder = TempDir::with_prefix("neue Öps").unwrap();
    let made = make(&folder, "new_ops");
    assert_success(&cargo(&made, &["fmt", "--check"]));
    assert_success(&cargo(&made, &["clippy", "--quiet", "--all-targets", "--", "-D", "warnings"]));
    let tests = cargo(&made, &["test"]);
    assert_success(&tests);
    assert!(stdout(&tests).contains("3 passed"), "{}", stdout(&tests));

    let output = build(&made, &[]);
    assert_success(&output);
    let said = stdout(&output);
    assert!(said.contains("libnew_ops.so  "), "{said}");
    assert!(said.contains("MB, new_ops 0.1.0\n  scale_rows, scale_rows_grad\n"), "{said}");

    let manifest = made.join("Cargo.toml");
    let output = build(folder.path(), &["--json", "--manifest-path", manifest.to_str().unwrap()]);
    assert_success(&output);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json[0]["ops"], serde_json::json!(["ScaleRows", "ScaleRowsGrad"]));
    let library = Path::new(json[0]["path"].as_str().unwrap());
    assert_eq!(json[0]["bytes"], fs::metadata(library).unwrap().len());
    let page = opsmith().arg("inspect").arg(library).args(["--op", "scale_rows"]).output().unwrap();
    assert!(stdout(&page).contains("ScaleRowsGrad, from x, factor, z_grad, with respect to x, factor"));
    assert_success(&opsmith().arg("check").arg(library).args(["--cases", "5"]).output().unwrap());
}

#[test]
fn the_manifest_is_the_one_that_the_tutorial_shows() {
    let folder = TempDir::new().unwrap();
    let manifest = fs::read_to_string(make(&folder, "distances").join("Cargo.toml")).unwrap();
    let tutorial = fs::read_to_string(workspace().join("docs/first-op.md")).unwrap();
    let shown = tutorial.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let path = workspace().join("crates/opsmith");
    assert_eq!(manifest, shown.replace("../opsmith/crates/opsmith", path.to_str().unwrap()));
}

#[test]
fn the_dependency_is_what_was_asked_for() {
    let folder = TempDir::new().unwrap();
    let with = |name: &str, opsmith_is: &str| {
        opsmith().args(["new", name, "--opsmith", opsmith_is]).current_dir(&folder).output().unwrap()
    };
    let manifest = |name: &str| fs::read_to_string(folder.path().join(name).join("Cargo.toml")).unwrap();
    assert_success(&with("by_version", "0.1"));
    assert!(manifest("by_version").contains("\nopsmith = \"0.1\"\n"));
    for (name, path) in [("by_clone", workspace()), ("by_crate", workspace().join("crates/opsmith"))] {
        assert_success(&with(name, path.to_str().unwrap()));
        let path = workspace().join("crates/opsmith");
        assert!(
            manifest(name).contains(&format!("\nopsmith = {{ path = {path:?} }}\n")),
            "{}",
            manifest(name)
        );
    }
    for wrong in ["nowhere", "/", "1.0 or so"] {
        let output = with("wrong", wrong);
        assert_eq!(output.status.code(), Some(2));
        let expected = format!("`{wrong}` is neither a version nor a folder with the crate `opsmith`");
        assert!(stderr(&output).contains(&expected), "{}", stderr(&output));
        assert!(!folder.path().join("wrong").exists());
    }
}

#[test]
fn nothing_is_made_where_something_is_or_under_a_name_that_cannot_be() {
    let folder = TempDir::new().unwrap();
    let own = folder.path().join("mine");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("notes.txt"), "mine").unwrap();
    let new = |name: &str| opsmith().args(["new", "--", name]).current_dir(&folder).output().unwrap();
    for (name, message) in [
        ("mine", "mine: is there already"),
        ("My-Ops", "`My-Ops` is not snake_case"),
        ("torch", "`torch` means something else"),
        ("", "a value is required for '<NAME>'"),
        ("..", "does not end in a name"),
        ("nowhere/ops", "nowhere/ops: cannot be made: No such file"),
    ] {
        let output = new(name);
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(stderr(&output).contains(message), "{name}: {}", stderr(&output));
    }
    assert_eq!(fs::read_to_string(own.join("notes.txt")).unwrap(), "mine");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn a_crate_under_a_workspace_is_one_of_its_own() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("Cargo.toml"), "[workspace]\nmembers = []\n").unwrap();
    let made = make(&folder, "inner_ops");
    let output = cargo(&made, &["metadata", "--no-deps", "--format-version", "1"]);
    assert_success(&output);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["workspace_root"], made.canonicalize().unwrap().to_str().unwrap());
}

#[test]
fn the_compiler_speaks_of_the_authors_own_lines() {
    let folder = TempDir::new().unwrap();
    let made = make(&folder, "faulty_ops");
    let source = made.join("src/lib.rs");
    let good = fs::read_to_string(&source).unwrap();
    let faults = [
        // What replaces what, where the message points, and what it says.
        ("factor * x);\n    }\n}", "factor * x;\n    }\n}", "src/lib.rs:13", "mismatched closing delimiter"),
        ("(n,p),(n)->(n,p)\"", "(n,p),(n)->(n,q)\"", "src/lib.rs:10", "`q`"),
        ("= factor * x)", "= factor * unknown)", "src/lib.rs:13", "cannot find value `unknown`"),
    ];
    for (was, is, place, message) in faults {
        assert!(good.contains(was), "{was}");
        fs::write(&source, good.replace(was, is)).unwrap();
        let output = build(&made, &[]);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).contains(place), "{place}: {}", stderr(&output));
        assert!(stderr(&output).contains(message), "{message}: {}", stderr(&output));
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn what_is_built_but_no_library_of_ops_says_what_is_missing() {
    let folder = TempDir::new().unwrap();
    let made = make_with(&folder, "empty_ops", &["--empty"]);
    let source = made.join("src/lib.rs");
    let empty = fs::read_to_string(&source).unwrap();

    fs::write(&source, "//! Nothing.\n").unwrap();
    let output = build(&made, &[]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("`empty_ops` was built, but cannot be used: "), "{}", stderr(&output));
    assert!(stderr(&output).contains("\n  → list the ops of the crate once"), "{}", stderr(&output));

    fs::write(&source, empty).unwrap();
    let output = build(&made, &[]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("`empty_ops` was built, but its library has no ops"),
        "{}",
        stderr(&output)
    );

    let manifest = made.join("Cargo.toml");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("[lib]\ncrate-type = [\"cdylib\"]\n", "")).unwrap();
    let output = build(&made, &[]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("Cargo.toml: makes no shared library\n"), "{}", stderr(&output));
    assert!(stderr(&output).contains("crate-type = [\"cdylib\"]"), "{}", stderr(&output));
}

#[test]
fn without_cargo_or_a_crate_there_is_advice() {
    let folder = TempDir::new().unwrap();
    let output = build(folder.path(), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("could not find `Cargo.toml`"), "{}", stderr(&output));
    assert!(stderr(&output).contains("\n  → `opsmith new NAME` makes a crate"), "{}", stderr(&output));

    let output = opsmith().arg("build").env("CARGO", "no-such-cargo").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("there is no `no-such-cargo`\n  → install Rust"), "{}", stderr(&output));
}

#[test]
fn a_wheel_takes_a_crate_and_a_python_with_the_package() {
    let folder = TempDir::new().unwrap();
    let made = make(&folder, "packed_ops");
    assert!(fs::read_to_string(made.join("pyproject.toml")).unwrap().contains("\"opsmith.build\""));
    let other = program(&folder, "python", "echo 9.9.9");
    for (place, python, message) in [
        (folder.path(), "false", "could not find `Cargo.toml`"),
        (
            &made,
            "no-such-python",
            "there is no `no-such-python`\n  → install Python 3.10 or newer, or name it",
        ),
        (
            &made,
            "false",
            "`false` cannot use the Python package `opsmith`: it does not say why\n  → pip install",
        ),
        (&made, other.to_str().unwrap(), "is 9.9.9\n  → have both of one version"),
    ] {
        let output = opsmith().args(["wheel", "--python", python]).current_dir(place).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
        assert!(!made.join("dist").exists());
    }
}

#[test]
fn what_a_build_lacks_is_told_with_the_cure() {
    let folder = TempDir::new().unwrap();
    let place = folder.path().display();
    let script =
        format!("[ $1 = locate-project ] && echo {place}/Cargo.toml && exit\ncat {place}/said >&2\nexit 101");
    let cargo = program(&folder, "cargo", &script);
    let rustc = program(&folder, "rustc", "echo 'rustc 1.80.0 (0123456789 2024-07-21)'");
    let old = format!(
        "`{}` is Rust 1.80.0; it takes 1.90 or newer\n  → run: rustup update stable",
        rustc.display()
    );
    // What Cargo and the compiler say in these cases.
    for (said, told) in [
        (
            "error: linker `cc` not found\n  |\n  = note: No such file or directory (os error 2)",
            "install one: `apt install gcc`",
        ),
        (
            "error: failed to write /x/y.rmeta: No space left on device (os error 28)",
            "set CARGO_TARGET_DIR to a folder that has room",
        ),
        (
            "error: failed to get `ndarray`\n  [56] Failure when receiving data from the peer (CONNECT tunnel failed, response 403)",
            "behind a proxy, set https_proxy",
        ),
        (
            "error: rustc 1.80.0 is not supported by the following package:\n  opsmith@0.1.0 requires rustc 1.90",
            &old,
        ),
        (
            "error: linking with `cc` failed: exit status: 1\n  = note: collect2: fatal error: ld terminated with signal 7 [Bus error]\nerror: could not compile `x`",
            "the disk is full",
        ),
        ("error[E0308]: mismatched types", ""),
        (
            "warning: spurious network error (3 tries remaining): Couldn't connect\nerror[E0308]: mismatched types\nerror: could not compile `x`",
            "",
        ),
        (
            "error: no rules expected `;`\n1 | ensure!(ok, \"failed to fetch it\");\nerror: could not compile `x`",
            "",
        ),
    ] {
        fs::write(folder.path().join("said"), format!("{said}\n")).unwrap();
        let output = opsmith().arg("build").env("CARGO", &cargo).env("RUSTC", &rustc).output().unwrap();
        let shown = stderr(&output);
        assert!(shown.starts_with(said), "{shown}");
        assert!(shown.contains(told), "{said}: {shown}");
        assert_eq!(shown.contains("  → "), !told.is_empty(), "{shown}");
        assert_eq!(output.status.code(), Some(if told.is_empty() { 1 } else { 2 }), "{shown}");
    }
}
