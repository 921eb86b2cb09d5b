//! What `cargo xtask header` runs: `xtask-header <repository> [--check]`.
//!
//! A program of its own, since `cargo xtask demo` would else begin by compiling a parser of Rust that it does not need.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};

/// The module that the header is generated from, and how.
const MODULE: &str = "crates/opsmith-core/src/abi";
const CONFIG: &str = "xtask/header/cbindgen.toml";
const HEADER: &str = "include/opsmith.h";
/// The version of the ABI, and what its declarations hash to.
const VERSION: &str = "xtask/abi.txt";

/// What of the module is DLPack's own: whoever has included its header has it already.
const DLPACK: [&str; 15] = [
    "DLPACK_MAJOR_VERSION",
    "DLPACK_MINOR_VERSION",
    "DLPACK_FLAG_BITMASK_READ_ONLY",
    "kDLCPU",
    "kDLInt",
    "kDLUInt",
    "kDLFloat",
    "kDLBfloat",
    "kDLComplex",
    "kDLBool",
    "DLDevice",
    "DLDataType",
    "DLTensor",
    "DLPackVersion",
    "DLManagedTensorVersioned",
];

/// Writes `include/opsmith.h` and `xtask/abi.txt`, or with `--check` fails if a file is not what would be written.
///
/// In both cases fails if declarations have changed since the version of the ABI was last raised: a library and a program of
/// different drafts of one version would read each other's structures wrongly.
fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let root = PathBuf::from(arguments.next().context("no repository was named")?);
    let check = arguments.next().is_some_and(|option| option == "--check");
    let module = root.join(MODULE);
    let mut config = cbindgen::Config::from_file(root.join(CONFIG)).map_err(|error| anyhow!(error))?;
    let dlpack = dlpack(&module, &config)?;
    let head = config.after_includes.take().unwrap_or_default();
    config.after_includes = Some(format!("{head}\n\n{dlpack}"));
    config.export.exclude.extend(DLPACK.map(str::to_owned));
    let bindings = cbindgen::Builder::new()
        .with_src(module.join("mod.rs"))
        .with_src(module.join("dlpack.rs"))
        .with_src(module.join("program.rs"))
        .with_src(module.join("shapes.rs"))
        .with_config(config)
        .generate()
        .with_context(|| format!("could not generate a header from {MODULE}"))?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    let text = without_tags(&String::from_utf8(text).context("the header is not text")?)?;
    let version = version(&text)?;
    let present = fs::read_to_string(root.join(VERSION)).unwrap_or_default();
    if present != version && present.split(' ').next() == version.split(' ').next() {
        bail!(
            "the declarations of {MODULE} have changed, and the version of the ABI has not\n  → raise \
             OPSMITH_ABI_VERSION, then run `cargo xtask header` and commit the result"
        );
    }
    write(&root, HEADER, &text, check)?;
    write(&root, VERSION, &version, check)
}

/// Writes a file that has other content, or with `check` fails for it.
fn write(root: &Path, name: &str, text: &str, check: bool) -> Result<()> {
    let path = root.join(name);
    if fs::read(&path).is_ok_and(|present| present == text.as_bytes()) {
        println!("✓ {name} is up to date");
    } else if check {
        bail!("{name} is not what {MODULE} generates\n  → run `cargo xtask header` and commit the result");
    } else {
        fs::create_dir_all(path.parent().context("the file lies in a folder")?)?;
        fs::write(&path, text).with_context(|| format!("could not write {name}"))?;
        println!("✓ wrote {name}");
    }
    Ok(())
}

/// The header's version of the ABI, and a hash (FNV-1a, 64 bits) of everything else in it but comments and spaces.
fn version(header: &str) -> Result<String> {
    const DEFINE: &str = "#define OPSMITH_ABI_VERSION ";
    let code: String =
        header.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code)).collect();
    let version =
        code.lines().find_map(|line| line.strip_prefix(DEFINE)).context("the header has no version")?;
    let lines = code.lines().filter(|line| !line.starts_with(DEFINE));
    let hash = lines
        .flat_map(str::split_whitespace)
        .flat_map(str::bytes)
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    Ok(format!("{version} {hash:016x}\n"))
}

/// What DLPack's header has too, left out where that has been included.
fn dlpack(module: &Path, config: &cbindgen::Config) -> Result<String> {
    let mut config = config.clone();
    (config.header, config.include_guard, config.autogen_warning) = (None, None, None);
    (config.after_includes, config.cpp_compat) = (None, false);
    config.sys_includes.clear();
    config.export.include = DLPACK.map(str::to_owned).into();
    config.export.exclude = vec!["OpsmithDLPackCall".to_owned()];
    let bindings = cbindgen::Builder::new()
        .with_src(module.join("dlpack.rs"))
        .with_config(config)
        .generate()
        .with_context(|| format!("could not generate DLPack's part of the header from {MODULE}"))?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    let text = String::from_utf8(text).context("the header is not text")?;
    let head = "/* DLPack's own structures, unless its header has been included before. */\n#ifndef DLPACK_DLPACK_H_";
    Ok(format!("{head}\n\n{}\n\n{END}", text.trim()))
}

const END: &str = "#endif /* DLPACK_DLPACK_H_ */";

/// The header, in which what comes after DLPack's part names its structures without `struct`: in DLPack's header some have no tag.
fn without_tags(text: &str) -> Result<String> {
    let (before, after) = text.split_once(END).context("DLPack's part has an end")?;
    let after = DLPACK
        .iter()
        .fold(after.to_owned(), |text, name| text.replace(&format!("struct {name} "), &format!("{name} ")));
    Ok(format!("{before}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn declarations_change_the_hash_and_comments_do_not() {
        let header = "/* a */\n#define OPSMITH_ABI_VERSION 3\nstruct A { int a; };\n";
        let first = version(header).unwrap();
        assert!(first.starts_with("3 "), "{first}");
        assert_eq!(
            version(&header.replace("/* a */", "/* b\n * c */").replace("{ int", "{\n  int")).unwrap(),
            first
        );
        assert_eq!(version(&header.replace('3', "4")).unwrap(), first.replacen('3', "4", 1));
        assert_ne!(version(&header.replace("int", "long")).unwrap(), first);
        assert!(version("struct A;").is_err());
    }
}
