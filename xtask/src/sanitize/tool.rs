//! How each check builds and watches: the compiler's options, the sanitizer's runtime, the settings of a run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::sanitize::Check;
use crate::sanitize::reports::Reports;
use crate::sanitize::sanitizer::{Sanitizer, TARGET, compilers, data};
use crate::workspace::{Workspace, copy_folder};
use crate::{VENV, run};

/// The folder with the compiler of CUDA, among what a Python has installed.
const NVRTC: &str = "site-packages/nvidia/cu13/lib";

/// A check that is set up.
pub(crate) struct Tool<'a> {
    /// Which it is.
    pub(crate) check: Check,
    /// The repository.
    pub(crate) workspace: &'a Workspace,
    /// The repository with what this check builds, in the profile for development, which checks arithmetic too.
    pub(crate) built: Workspace,
    /// Where what it makes lies.
    pub(crate) folder: PathBuf,
    sanitizer: Option<Sanitizer>,
}

impl<'a> Tool<'a> {
    /// Makes what the check needs besides the tests.
    pub(crate) fn new(workspace: &'a Workspace, check: Check) -> Result<Self> {
        if !cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) {
            bail!("the checks are made for {TARGET} only");
        }
        let folder = workspace.target.join("sanitize").join(check.name());
        let sanitizer = match check {
            Check::Address => Some(Sanitizer::address(workspace, &folder)?),
            Check::Thread => Some(Sanitizer::thread(workspace, &folder)?),
            Check::Overflow | Check::Valgrind => None,
        };
        let target = if sanitizer.is_some() { folder.join(TARGET) } else { workspace.target.clone() };
        let built = Workspace { target, profile: "debug", ..workspace.clone() };
        Ok(Self { check, workspace, built, folder, sanitizer })
    }

    /// A Cargo command that builds for the check.
    ///
    /// The options are Cargo's configuration and no variables: what tests start would inherit those, and build without a target,
    /// where they were meant for macros too.
    pub(crate) fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = self.workspace.cargo(arguments);
        let Some(sanitizer) = &self.sanitizer else { return command };
        let target = self.built.target.parent().unwrap_or(&self.built.target);
        command.args(["--target", TARGET, "--target-dir"]).arg(target);
        for kind in ["rustflags", "rustdocflags"] {
            command.arg("--config").arg(format!("target.{TARGET}.{kind}={:?}", sanitizer.options));
        }
        for other in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTDOCFLAGS", "CARGO_ENCODED_RUSTDOCFLAGS"] {
            command.env_remove(other);
        }
        // Tests that look at the compiler's messages get those of a stable one.
        command.arg("--config").arg(format!("target.{TARGET}.runner=['env', '-u', 'RUSTC_BOOTSTRAP']"));
        // Whatever is named is built with the features of the whole: nothing is built twice.
        command.args(["-Zfeature-unification", "--config", "resolver.feature-unification='workspace'"]);
        command.env("RUSTC_BOOTSTRAP", "1");
        command
    }

    /// Has a command's processes report into the folder.
    pub(crate) fn watch(&self, command: &mut Command, reports: &Reports) {
        self.set_options(command, reports, true);
    }

    /// The same for a Python, which is not built with the sanitizer: its runtime is loaded first.
    pub(crate) fn watch_python(&self, command: &mut Command, reports: &Reports, package: &Path) {
        command.env("PYTHONPATH", package);
        // What Python leaves behind at its end is not looked at.
        self.set_options(command, reports, false);
        if let Some(sanitizer) = &self.sanitizer {
            // The runtime looks for what throws exceptions when it is loaded.
            command.env("LD_PRELOAD", format!("{} libstdc++.so.6", sanitizer.preloaded.display()));
            // Neither the compiler nor Cargo can have the runtime: they have an allocator of their own.
            let path = std::env::var_os("PATH").unwrap_or_default();
            let folders = std::iter::once(self.folder.join("bin")).chain(std::env::split_paths(&path));
            if let Ok(path) = std::env::join_paths(folders) {
                command.env("PATH", path).env_remove("CARGO").env_remove("RUSTC");
            }
            // Else Python cuts its objects out of large blocks, whose bounds nobody sees.
            command.env("PYTHONMALLOC", "malloc");
        }
    }

    fn set_options(&self, command: &mut Command, reports: &Reports, leaks: bool) {
        let log = format!("log_path={}", reports.0.join("report").display());
        let data = data(self.workspace);
        if self.check != Check::Overflow {
            // Tests of random cases and of many numbers do fewer of them.
            command.env("PROPTEST_CASES", "16").env("OPSMITH_POINTS", "0.01");
        }
        if self.sanitizer.is_some() {
            // The runtimes stand in front of `dlopen`, which then does not know where the compiler of CUDA has its parts.
            let pythons = fs::read_dir(self.workspace.root.join(VENV).join("lib")).into_iter().flatten();
            let folders = pythons.flatten().map(|python| python.path().join(NVRTC));
            command.envs(folders.filter(|path| path.is_dir()).map(|path| ("LD_LIBRARY_PATH", path)));
        }
        match self.check {
            Check::Address => {
                // Memory that is not there is an error, as without the sanitizer, and does not end the process.
                let options = format!("{log}:detect_leaks={}:allocator_may_return_null=1", u8::from(leaks));
                command.env("ASAN_OPTIONS", options);
            }
            Check::Thread => {
                let suppressions = data.join("thread.txt");
                let options = format!(
                    "{log}:suppressions={}:history_size=4:die_after_fork=0:allocator_may_return_null=1",
                    suppressions.display()
                );
                command.env("TSAN_OPTIONS", options);
            }
            Check::Overflow => {}
            Check::Valgrind => {
                let log = reports.0.join("report.%p");
                let suppressions = data.join("valgrind.supp");
                let runner = format!(
                    "valgrind --error-exitcode=1 --log-file={} --suppressions={}",
                    log.display(),
                    suppressions.display()
                );
                command.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", runner);
            }
        }
    }

    /// Builds the libraries of ops and Python's package, whose folder it returns.
    pub(crate) fn build_for_python(&self) -> Result<PathBuf> {
        let mut command = self.cargo(&["build", "--lib", "--package", "opsmith-python"]);
        for library in &self.workspace.libraries {
            command.args(["--package", &library.package]);
        }
        run::quietly(&format!("Building the libraries for {}", self.check.name()), &mut command)?;
        let folder = self.folder.join("python");
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("could not clear {}", folder.display()))?;
        }
        self.wrap_compiler()?;
        let package = folder.join("opsmith");
        copy_folder(&self.workspace.root.join("python/opsmith"), &package)?;
        let module = self.built.library_folder().join("lib_native.so");
        fs::copy(&module, package.join("_native.abi3.so"))
            .with_context(|| format!("could not copy {}", module.display()))?;
        Ok(folder)
    }

    /// Programs in front of Cargo and the compiler, that start them without the runtime.
    fn wrap_compiler(&self) -> Result<()> {
        let bin = self.folder.join("bin");
        fs::create_dir_all(&bin).with_context(|| format!("could not make {}", bin.display()))?;
        for name in ["cargo", "rustc"] {
            let real = compilers(self.workspace)?.join(name);
            let file = bin.join(name);
            fs::write(&file, format!("#!/bin/sh\nunset LD_PRELOAD\nexec '{}' \"$@\"\n", real.display()))
                .and_then(|()| fs::set_permissions(&file, fs::Permissions::from_mode(0o755)))
                .with_context(|| format!("could not write {}", file.display()))?;
        }
        Ok(())
    }
}
