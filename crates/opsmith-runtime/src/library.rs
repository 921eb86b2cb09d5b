//! A loaded library: its name, its definitions, its ops.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use opsmith_core::abi::{OpsmithLibrary, OpsmithStr};
use opsmith_core::def::find_op;
use opsmith_core::{Error, Gradient, GradientWiring, Result, Signature, ensure};
use serde_json::Value;

use crate::call::take_error;
use crate::info::OpInfo;
use crate::told::Answers;

/// A library of operators: one that was loaded from a file and stays loaded for good, or one that is part of the program.
/// Cloning gives the same library.
#[derive(Clone)]
pub struct Library(Arc<Loaded>);

struct Loaded {
    path: PathBuf,
    build: Option<String>,
    table: &'static OpsmithLibrary,
    name: String,
    version: String,
    description: String,
    ops: Vec<OpInfo>,
    answers: Answers,
}

impl Library {
    /// The library behind a checked table, and what tells its file from those of other builds.
    pub(crate) fn new(
        path: PathBuf,
        build: Option<String>,
        table: &'static OpsmithLibrary,
    ) -> Result<Library> {
        let read = || {
            // SAFETY: `init` takes nothing, and gives an error that is taken once.
            unsafe { take_error(table, (table.init)()) }?;
            let mut description = OpsmithStr::new("");
            // SAFETY: as above; `describe` writes text that is valid for good.
            unsafe { take_error(table, (table.describe)(&raw mut description)) }?;
            let description = text("description", description)?;
            let ops = read_ops(&description)?;
            Ok((text("name", table.name)?, text("version", table.version)?, description, ops))
        };
        let (name, version, description, ops) =
            read().map_err(|error: Error| error.within(path.display()))?;
        Ok(Library(Arc::new(Loaded {
            path,
            build,
            table,
            name,
            version,
            description,
            ops,
            answers: Answers::default(),
        })))
    }

    /// The file, with symbolic links resolved; where the library is part of the program, words that say so.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// What tells this build of the library from others: size and time of its file when it was opened. The version where it is part of
    /// the program.
    pub fn build(&self) -> &str {
        self.0.build.as_deref().unwrap_or(&self.0.version)
    }

    /// The library's name, the namespace of its ops in every framework.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The library's version, as its author gives it.
    pub fn version(&self) -> &str {
        &self.0.version
    }

    /// The library as JSON: its ops, their arguments, attributes, shapes, gradients and kernels.
    pub fn description(&self) -> &str {
        &self.0.description
    }

    /// How many ops it has.
    pub fn num_ops(&self) -> usize {
        self.0.ops.len()
    }

    /// The op at a position.
    ///
    /// # Errors
    /// `OutOfRange` when there are not as many.
    pub fn op_at(&self, index: usize) -> Result<Op> {
        ensure!(
            index < self.num_ops(),
            OutOfRange,
            "library `{}` has {} ops, there is no op {index}",
            self.name(),
            self.num_ops()
        );
        Ok(Op { library: self.clone(), index })
    }

    /// The op of this name, as [`find_op`] reads it.
    ///
    /// # Errors
    /// `NotFound`, with the names there are.
    pub fn op(&self, name: &str) -> Result<Op> {
        self.op_at(find_op(self.name(), name, self.0.ops.iter().map(|op| &op.signature))?)
    }

    /// Registers the ops with a framework of this process: `"torch"`. Doing it twice is fine.
    ///
    /// # Errors
    /// `Unimplemented` for a framework that the library was not built for, `FailedPrecondition` where the framework is
    /// not in the process, or what the framework said.
    pub fn register_framework(&self, framework: &str) -> Result<()> {
        let table = self.table();
        // SAFETY: the text lives until the call returns; the error is taken once.
        unsafe { take_error(table, (table.register_framework)(OpsmithStr::new(framework))) }
    }

    pub(crate) fn table(&self) -> &'static OpsmithLibrary {
        self.0.table
    }

    pub(crate) fn answers(&self) -> &Answers {
        &self.0.answers
    }

    pub(crate) fn op_info(&self, index: usize) -> &OpInfo {
        &self.0.ops[index]
    }

    /// Whether the two define the same ops in the same way; versions may differ.
    pub(crate) fn same_definitions(&self, other: &Library) -> bool {
        let ops = |library: &Library| {
            serde_json::from_str(library.description()).map(|mut json: Value| json["ops"].take()).ok()
        };
        self.description() == other.description() || ops(self) == ops(other)
    }
}

/// An op of a loaded library.
#[derive(Clone, Debug)]
pub struct Op {
    library: Library,
    index: usize,
}

impl Op {
    /// The library that it is of.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// Its position in the library.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Its definition.
    pub fn signature(&self) -> &Signature {
        &self.info().signature
    }

    /// What it declares of its gradient.
    pub fn declared_gradient(&self) -> &Gradient {
        &self.info().gradient
    }

    /// How its gradient op is wired to it; none where no op computes its gradient.
    pub fn gradient_wiring(&self) -> Option<&GradientWiring> {
        self.info().wiring.as_ref()
    }

    pub(crate) fn info(&self) -> &OpInfo {
        self.library.op_info(self.index)
    }
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Library({} {} from {})", self.name(), self.version(), self.path().display())
    }
}

fn text(what: &str, text: OpsmithStr) -> Result<String> {
    // SAFETY: the table's text, and that of its description, is valid for good.
    let bytes = unsafe { text.as_bytes() };
    let text = std::str::from_utf8(bytes);
    Ok(text.map_err(|_| Error::invalid_argument(format!("its {what} is not UTF-8")))?.to_owned())
}

fn read_ops(description: &str) -> Result<Vec<OpInfo>> {
    let json: Value = serde_json::from_str(description)
        .map_err(|error| Error::invalid_argument(format!("its description is not JSON: {error}")))?;
    let ops =
        json["ops"].as_array().ok_or_else(|| Error::invalid_argument("its description lists no ops"))?;
    ops.iter().map(OpInfo::from_json).collect()
}

/// Reads what a library says of itself, without the library.
#[doc(hidden)]
pub fn check_description(description: &str) -> Result<()> {
    read_ops(description).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_of_free_axes_is_one_for_the_inputs_that_the_description_has() {
        let described = |rule: &str| {
            let argument =
                |name: &str| format!(r#"{{"name": "{name}", "spec": "{name}: float", "doc": ""}}"#);
            let arguments = format!(r#""inputs": [{}], "outputs": [{}]"#, argument("x"), argument("y"));
            format!(
                r#"{{"ops": [{{"name": "A", "doc": "", "stateful": false, {arguments}, "attrs": [], "parallel": "{rule}"}}]}}"#
            )
        };
        assert_eq!(check_description(&described("(..., n) -> (..., n)")), Ok(()));
        let error = check_description(&described("(n), (n) -> (n)")).unwrap_err();
        assert!(error.message().starts_with("A: `parallel`: "), "{error}");
    }
}
