//! `cargo xtask matrix`: one build of the libraries and of the wheel under several releases of the frameworks.
//!
//! Each release is a part that can be run by itself; what passed with the same files is not run again.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::stamp::{hash_bytes, hash_file};
use crate::venv::{Venv, pythons};
use crate::workspace::Workspace;
use crate::{VENV, build, test};

/// The list of releases.
const LIST: &str = "requirements/matrix.txt";
/// What the suites need besides the framework.
const TOOLS: [&str; 4] = ["hypothesis", "ml-dtypes", "pytest", "scipy"];
/// What a Python tells of its row.
const VERSIONS: &str = "import datetime, numpy, platform; \
    print(numpy.__version__, platform.python_version(), datetime.date.today(), sep='\\t')";
const HEADINGS: [&str; 6] = ["release", "suite", "NumPy", "Python", "result", "day"];

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The releases, as requirements/matrix.txt calls them, or frameworks with all of theirs; all if none is named
    releases: Vec<String>,
    /// Run only these suites, folders of tests/python
    #[arg(long, value_name = "SUITE")]
    only: Vec<String>,
    /// Keep the environments, which have up to 7 GB each, in .venv-matrix
    #[arg(long)]
    keep: bool,
}

/// A release of a framework, and what is installed with it.
struct Release<'a> {
    name: &'a str,
    /// The version of Python, `3.14t` of a free-threaded one.
    python: &'a str,
    pinned: Vec<&'a str>,
}

impl Release<'_> {
    fn framework(&self) -> &str {
        self.name.split('-').next().unwrap_or_default()
    }

    /// Whether this is its name, or its framework's.
    fn is(&self, name: &str) -> bool {
        [self.name, self.framework()].contains(&name)
    }
}

/// Builds once, then runs the frameworks' suites in each environment and shows that no file changed meanwhile.
pub(crate) fn matrix(workspace: &Workspace, options: &Options) -> Result<()> {
    let text =
        fs::read_to_string(workspace.root.join(LIST)).with_context(|| format!("could not read {LIST}"))?;
    let releases = parse(&text)?;
    let known = |name: &String| releases.iter().any(|release| release.is(name));
    if let Some(unknown) = options.releases.iter().find(|name| !known(name)) {
        bail!("there is no release `{unknown}`\n  → {LIST} lists them");
    }
    let venv = Venv::open(workspace, VENV)?;
    venv.install_lock(workspace, "test")?;
    build::libraries(workspace, None)?;
    build::programs(workspace)?;
    let wheel = build::wheel(workspace, &venv)?;
    let before = hashes(workspace, &wheel)?;
    let part = Part {
        workspace,
        options,
        tools: &venv,
        wheel: &wheel,
        built: hash_bytes(format!("{before:?}").as_bytes()),
    };
    let chosen = |release: &&Release<'_>| {
        options.releases.is_empty() || options.releases.iter().any(|name| release.is(name))
    };
    let mut failed = Vec::new();
    for release in releases.iter().filter(chosen) {
        part.run(release, &mut failed)?;
    }
    part.show(&releases)?;
    before.iter().for_each(|(file, hash)| println!("{hash}  {file}"));
    ensure!(hashes(workspace, &wheel)? == before, "a library was rebuilt while the suites ran");
    if failed.is_empty() {
        return Ok(());
    }
    bail!("failed: {}", failed.join(", "))
}

/// The lines of the list: a name, a version of Python 3, and what is pinned.
fn parse(text: &str) -> Result<Vec<Release<'_>>> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let parsed = lines.map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        let python = words.next()?;
        python.strip_prefix("3.")?.trim_end_matches('t').parse::<u32>().ok()?;
        let pinned: Vec<&str> = words.collect();
        (!pinned.is_empty()).then_some(Release { name, python, pinned })
    });
    let releases: Option<Vec<Release<'_>>> = parsed.collect();
    releases.with_context(|| format!("a line of {LIST} is not `NAME 3.MINOR PACKAGE==VERSION …`"))
}

/// What all releases have in common.
struct Part<'a> {
    workspace: &'a Workspace,
    options: &'a Options,
    /// The environment of the tests, which has what builds wheels.
    tools: &'a Venv,
    wheel: &'a Path,
    /// The hash of all that is tested.
    built: String,
}

impl Part<'_> {
    /// Runs the suites of a release that have not passed yet with the same files.
    fn run(&self, release: &Release<'_>, failed: &mut Vec<String>) -> Result<()> {
        let only = &self.options.only;
        let mut suites = test::suites(self.workspace)?;
        suites.retain(|suite| suite.split('_').next() == Some(release.framework()));
        suites.retain(|suite| only.is_empty() || only.contains(suite));
        suites.retain(|suite| self.passed(release, suite).is_none());
        if suites.is_empty() {
            return Ok(());
        }
        let Some(python) = pythons().into_iter().find(|python| python.version == release.python) else {
            failed.push(format!("{} (Python {} is not here)", release.name, release.python));
            return Ok(());
        };
        let folder = format!(".venv-matrix/{}", release.name);
        let venv = Venv::made_with(self.workspace, &folder, || Ok(python.path.display().to_string()))?;
        let packages: Vec<&str> = TOOLS.iter().chain(&release.pinned).copied().collect();
        venv.install(self.workspace, release.name, &packages)?;
        let wheel = match python.is_free_threaded() {
            true => build::free_threaded_wheel(self.workspace, self.tools, &venv)?,
            false => self.wheel.to_owned(),
        };
        venv.install_wheel(self.workspace, &wheel, hash_file(&wheel)?)?;
        for suite in suites {
            let outcome = test::python(self.workspace, &venv, &suite, None)?;
            let last = outcome.summary.iter().rfind(|line| line.starts_with('='));
            let result = last.map_or("no summary", |line| line.trim_matches(['=', ' ']));
            if let Some(reason) = &outcome.failure {
                failed.push(format!("{} {suite} ({reason}: {result})", release.name));
                continue;
            }
            let told = ask(self.workspace, &venv, VERSIONS)?;
            let (versions, day) = told.rsplit_once('\t').unwrap_or_default();
            let row = [release.name, &suite, versions, result, day].join("\t");
            let file = self.workspace.target.join("matrix").join(format!("{} {suite}", release.name));
            fs::create_dir_all(self.workspace.target.join("matrix"))?;
            fs::write(&file, format!("{}\n{row}\n", self.built))?;
        }
        if !self.options.keep {
            let folder = self.workspace.root.join(&folder);
            fs::remove_dir_all(&folder).with_context(|| format!("could not remove {}", folder.display()))?;
        }
        Ok(())
    }

    /// The row of a suite that has passed with these files.
    fn passed(&self, release: &Release<'_>, suite: &str) -> Option<String> {
        let file = self.workspace.target.join("matrix").join(format!("{} {suite}", release.name));
        let text = fs::read_to_string(file).ok()?;
        let (built, row) = text.trim_end().split_once('\n')?;
        (built == self.built).then(|| row.to_owned())
    }

    /// Prints the table of all that has passed with these files, as docs/releases.md has it.
    fn show(&self, releases: &[Release<'_>]) -> Result<()> {
        println!("\n| {} |\n|{}", HEADINGS.join(" | "), "---|".repeat(HEADINGS.len()));
        for release in releases {
            for suite in test::suites(self.workspace)? {
                if let Some(row) = self.passed(release, &suite) {
                    println!("| {} |", row.replace('\t', " | "));
                }
            }
        }
        println!();
        Ok(())
    }
}

fn ask(workspace: &Workspace, venv: &Venv, script: &str) -> Result<String> {
    let output = venv.program(workspace, "python").args(["-c", script]).output()?;
    if !output.status.success() {
        bail!("{script:?} failed:\n{}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The operator libraries and the wheel, each with the hash of its content.
fn hashes(workspace: &Workspace, wheel: &Path) -> Result<Vec<(String, String)>> {
    let folder = workspace.library_folder();
    let libraries = workspace.libraries.iter().map(|library| folder.join(&library.file));
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    libraries.chain([wheel.to_owned()]).map(|path| Ok((name(&path), hash_file(&path)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_releases() {
        let releases =
            parse("# a\n\njax-0.5 3.11 jax==0.5.3 absl-py\nnumpy-2.0  3.10 numpy==2.0.2\n").unwrap();
        assert_eq!(releases[0].pinned, ["jax==0.5.3", "absl-py"]);
        assert_eq!(
            (releases[1].name, releases[1].python, releases[1].framework()),
            ("numpy-2.0", "3.10", "numpy")
        );
        assert!(releases[0].is("jax") && releases[0].is("jax-0.5") && !releases[0].is("numpy"));
        for bad in ["jax-0.5", "jax-0.5 3.11", "jax-0.5 2.7 jax", "jax-0.5 3.x jax", "jax-0.5 3.t jax"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
