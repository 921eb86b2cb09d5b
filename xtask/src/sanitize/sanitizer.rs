//! The compiler's sanitizers: the options that build with them, and their runtimes, of which a process has to have one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};

use crate::run;
use crate::workspace::Workspace;

/// The one target that is checked.
pub(crate) const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The macros of `thread.c`, and how the mangled name ends of the function of the standard library that each stands for.
const WRAPPED: [(&str, &str); 8] = [
    ("MUTEX_LOCK", "5mutex5futexNtB2_5Mutex14lock_contended"),
    ("READ", "6rwlock5futexNtB2_6RwLock14read_contended"),
    ("WRITE", "6rwlock5futexNtB2_6RwLock15write_contended"),
    ("CONDVAR_WAIT", "7condvar5futexNtB2_7Condvar4wait"),
    ("CONDVAR_WAIT_TIMEOUT", "7condvar5futexNtB2_7Condvar12wait_timeout"),
    ("BARRIER_WAIT", "7barrierNtB5_7Barrier4wait"),
    ("SCOPE_END", "9ScopeData29decrement_num_running_threads"),
    ("ONCE_CALL", "4once5futexNtB5_4Once4call"),
];

/// A sanitizer that is set up.
pub(crate) struct Sanitizer {
    /// The compiler's options.
    pub(crate) options: Vec<String>,
    /// The shared object with its runtime, for programs that are not built with it.
    pub(crate) preloaded: PathBuf,
}

impl Sanitizer {
    /// AddressSanitizer. Its runtime comes with the compiler as an archive for programs; a shared object is made of that, which
    /// programs of Rust use too: the libraries that they open ask for it.
    pub(crate) fn address(workspace: &Workspace, folder: &Path) -> Result<Self> {
        let archive = sysroot(workspace)?.join("librustc-stable_rt.asan.a");
        let (copy, object) = (folder.join("asan.a"), folder.join("libopsmith_asan.so"));
        fs::create_dir_all(folder).with_context(|| format!("could not make {}", folder.display()))?;
        // These are for programs: a shared object sets itself up when it is first called.
        let mut objcopy = Command::new("objcopy");
        objcopy.args(["--remove-section", ".preinit_array", "--remove-section", ".rela.preinit_array"]);
        run::quietly("Taking the runtime of AddressSanitizer", objcopy.arg(&archive).arg(&copy))?;
        let mut link = Command::new("cc");
        link.args(["-shared", "-o"]).arg(&object).arg("-Wl,--whole-archive").arg(&copy);
        link.args(["-Wl,--no-whole-archive", "-lpthread", "-ldl", "-lrt", "-lm"]);
        run::quietly("Linking it", &mut link)?;
        // The runtime comes before all other libraries, so that it has its way with what it watches.
        let options = [
            "-Zsanitizer=address".to_owned(),
            "-Zexternal-clangrt".to_owned(),
            format!("-Zpre-link-args={}", object.display()),
            format!("-Clink-arg=-Wl,-rpath,{}", folder.display()),
        ];
        let sanitizer = Self { options: options.to_vec(), preloaded: object };
        sanitizer.try_out(workspace, folder, &["use_after_free"], &["nothing"])?;
        Ok(sanitizer)
    }

    /// ThreadSanitizer. Its archive cannot be made a shared object, so a Python gets that of the C compiler.
    pub(crate) fn thread(workspace: &Workspace, folder: &Path) -> Result<Self> {
        let names = names(&sysroot(workspace)?)?;
        let object = folder.join("thread.o");
        fs::create_dir_all(folder).with_context(|| format!("could not make {}", folder.display()))?;
        let mut compile = Command::new("cc");
        compile.args(["-O1", "-fPIC", "-c", "-o"]).arg(&object).arg(data(workspace).join("thread.c"));
        // Else generic functions would be taken from the standard library where that has them: not watched.
        let generics = "-Zshare-generics=no";
        let mut options = ["-Zsanitizer=thread", "-Cunsafe-allow-abi-mismatch=sanitizer", generics]
            .map(str::to_owned)
            .to_vec();
        options.push(format!("-Clink-arg={}", object.display()));
        // Libraries that a program opens use its runtime.
        options.push("-Clink-arg=-Wl,--export-dynamic-symbol=__tsan_*".to_owned());
        for (macro_name, end) in WRAPPED {
            let name = names.iter().find(|name| name.ends_with(end)).with_context(|| {
                format!("the standard library has no function ...{end} any more\n  → adapt xtask/sanitize/thread.c")
            })?;
            compile.arg(format!("-D{macro_name}={name}"));
            options.push(format!("-Clink-arg=-Wl,--wrap={name}"));
        }
        for bits in [32, 64] {
            options.push(format!("-Clink-arg=-Wl,--wrap=__tsan_atomic{bits}_fetch_sub"));
        }
        run::quietly("Compiling what ThreadSanitizer is told", &mut compile)?;
        let sanitizer = Self { options, preloaded: "libtsan.so.2".into() };
        let fine = ["mutex", "rwlock", "once", "scope", "mpsc", "arc", "condvar", "barrier"];
        sanitizer.try_out(workspace, folder, &["race"], &fine)?;
        Ok(sanitizer)
    }

    /// Compiles `probe.rs`, whose parts either have a fault, which has to be found, or are fine.
    fn try_out(&self, workspace: &Workspace, folder: &Path, faults: &[&str], fine: &[&str]) -> Result<()> {
        let probe = folder.join("probe");
        let mut rustc = Command::new("rustc");
        rustc.args(["--edition=2024", "-O", "--target", TARGET]).args(&self.options);
        rustc.arg("-o").arg(&probe).arg(data(workspace).join("probe.rs")).env("RUSTC_BOOTSTRAP", "1");
        run::quietly("Trying the sanitizer out", rustc.current_dir(&workspace.root))?;
        for part in faults.iter().chain(fine) {
            let output = Command::new(&probe).arg(part).output().context("could not run the probe")?;
            let (found, expected) = (!output.status.success(), faults.contains(part));
            ensure!(
                found == expected,
                "the sanitizer does not fit this release of Rust: it {} in `{part}` of xtask/sanitize/probe.rs\n{}",
                if found { "finds a fault" } else { "finds no fault" },
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(())
    }
}

/// Where suppressions and programs of the checks are.
pub(crate) fn data(workspace: &Workspace) -> PathBuf {
    workspace.root.join("xtask/sanitize")
}

/// The folder with the programs of the compiler.
pub(crate) fn compilers(workspace: &Workspace) -> Result<PathBuf> {
    let mut rustc = Command::new("rustc");
    let output = succeed(rustc.args(["--print", "sysroot"]).current_dir(&workspace.root))?;
    Ok(Path::new(String::from_utf8_lossy(&output.stdout).trim()).join("bin"))
}

/// The folder with the compiler's libraries for the target.
fn sysroot(workspace: &Workspace) -> Result<PathBuf> {
    Ok(compilers(workspace)?.with_file_name("lib").join("rustlib").join(TARGET).join("lib"))
}

/// The names of the standard library's functions that others may link to.
fn names(libraries: &Path) -> Result<Vec<String>> {
    let files = fs::read_dir(libraries).with_context(|| format!("could not list {}", libraries.display()))?;
    let is_std = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libstd-") && name.ends_with(".rlib")
    };
    let std = files.flatten().map(|file| file.path()).find(is_std);
    let std = std.with_context(|| format!("there is no libstd in {}", libraries.display()))?;
    let output = succeed(Command::new("readelf").arg("-sW").arg(std))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let global = text.lines().filter(|line| line.contains(" GLOBAL "));
    Ok(global.filter_map(|line| line.split_whitespace().last().map(str::to_owned)).collect())
}

fn succeed(command: &mut Command) -> Result<Output> {
    let output = command.output().with_context(|| format!("could not start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(output)
}
