//! The programs of `c`, compiled against `include/opsmith.h` and run on this library: calls, shapes and errors in C.
//!
//! What one should print is beside it; `UPDATE_EXPECTED=1` writes that file anew.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

fn include() -> PathBuf {
    Path::new(CRATE).join("../../include")
}

/// The library: Cargo puts it beside the programs of the tests, since they depend on it.
fn library() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name(format!("{DLL_PREFIX}zero_out{DLL_SUFFIX}"))
}

/// Runs a compiler, or says visibly that there is none.
fn compile(compiler: &str, arguments: &[&str], source: &Path) -> Option<Output> {
    let mut command = Command::new(compiler);
    command.args(arguments).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    match command.arg("-I").arg(include()).arg(source).args(["-ldl"]).output() {
        Ok(output) => Some(output),
        Err(error) => {
            // Not `eprintln!`, whose text the test harness hides.
            let message =
                format!("SKIPPED: {} is not compiled: no `{compiler}`: {error}\n", source.display());
            std::io::stderr().write_all(message.as_bytes()).expect("standard error is open");
            None
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Compiles a program of `c/` and runs it on the library: what it should print is beside it. Gives the program.
fn prints_what_is_expected(name: &str) -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let source = Path::new(CRATE).join(format!("c/{name}.c"));
    let options = ["-std=c99", "-o", program.to_str().unwrap()];
    let compiled = compile("cc", &options, &source)?;
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));

    let run = Command::new(&program).arg(library()).output().unwrap();
    assert!(run.status.success(), "{}\n{}{}", run.status, text(&run.stdout), text(&run.stderr));
    let expected = source.with_extension("out");
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::write(&expected, &run.stdout).unwrap();
    }
    assert_eq!(text(&run.stdout), std::fs::read_to_string(expected).unwrap());
    Some(program)
}

#[test]
fn a_c_program_calls_ops_infers_shapes_and_gets_errors() {
    let Some(program) = prints_what_is_expected("call_op") else { return };
    let refused = Command::new(&program).arg(Path::new(CRATE).join("c/call_op.c")).output().unwrap();
    assert!(!refused.status.success());
    assert!(text(&refused.stderr).contains("cannot open"), "{}", text(&refused.stderr));
}

#[test]
fn a_c_program_calls_ops_on_tensors_of_dlpack() {
    let _ = prints_what_is_expected("call_dlpack");
}

#[test]
fn the_header_is_good_cpp_too() {
    let header = include().join("opsmith.h");
    let Some(checked) = compile("c++", &["-std=c++11", "-fsyntax-only", "-x", "c++"], &header) else {
        return;
    };
    assert!(checked.status.success(), "{}", text(&checked.stderr));
}

/// DLPack's header before ours: some of its structures have no tag, and none may be defined twice.
#[test]
fn the_header_takes_dlpacks_own_structures() {
    const PROGRAM: &str = "#include <stdint.h>\n#define DLPACK_DLPACK_H_\n\
        typedef struct { void *data; int32_t ndim; } DLTensor;\n\
        typedef struct DLManagedTensorVersioned { DLTensor dl_tensor; } DLManagedTensorVersioned;\n\
        #include \"opsmith.h\"\n\
        int first(const OpsmithDLPackCall *call) { const DLTensor *t = call->tensors[0]; return t->ndim; }\n\
        int made(OpsmithDLPackCall *call) { return call->made[0]->dl_tensor.ndim; }\n";
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("own_dlpack.c");
    std::fs::write(&source, PROGRAM).unwrap();
    let Some(checked) = compile("cc", &["-std=c99", "-fsyntax-only"], &source) else { return };
    assert!(checked.status.success(), "{}", text(&checked.stderr));
}
