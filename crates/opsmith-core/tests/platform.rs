//! Elsewhere nothing is built, and one sentence says why.

use std::path::Path;
use std::process::Command;

/// Only the compiler itself is at hand for other systems, so this is compiled without a standard library.
const CRATE: &str = r#"
#![feature(no_core, rustc_attrs)]
#![allow(internal_features, unused_macros)]
#![no_core]
#![crate_type = "lib"]
#[rustc_builtin_macro]
macro_rules! compile_error { ($message:expr) => {}; }
#[path = "PLATFORM"]
mod platform;
"#;

/// What the compiler says where it compiles for `target`; empty where it is content.
fn compiled_for(target: &str) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(target);
    std::fs::create_dir_all(&folder).unwrap();
    let source = folder.join("lib.rs");
    let platform = concat!(env!("CARGO_MANIFEST_DIR"), "/src/platform.rs");
    std::fs::write(&source, CRATE.replace("PLATFORM", platform)).unwrap();
    let mut command = Command::new(option_env!("RUSTC").unwrap_or("rustc"));
    command.args(["--target", target, "--emit", "metadata", "--out-dir"]).arg(&folder).arg(&source);
    let output = command.env("RUSTC_BOOTSTRAP", "1").output().unwrap();
    assert_eq!(output.status.success(), output.stderr.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn what_it_is_built_for_is_told_to_those_elsewhere() {
    assert_eq!(compiled_for("x86_64-unknown-linux-gnu"), "");
    for target in [
        "aarch64-apple-darwin",
        "aarch64-unknown-linux-gnu",
        "x86_64-pc-windows-msvc",
        "x86_64-unknown-linux-musl",
    ] {
        let said = compiled_for(target);
        assert!(
            said.starts_with("error: Opsmith runs on Linux on x86-64 with the GNU C library, and"),
            "{target}: {said}"
        );
        assert!(said.contains("on Windows use WSL 2"), "{target}: {said}");
    }
}
