//! Where definitions come from: a library, or a file of JSON that `opsmith inspect --json` wrote.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use opsmith_check::simplest;
use opsmith_core::def::find_op;
use opsmith_core::{AttrValue, Code, Error};
use opsmith_runtime::Library;
use serde_json::Value;

use crate::definitions::Definitions;
use crate::itself;

/// A file of definitions has at most as many bytes; that of the standard operators has a hundredth.
const MOST: u64 = 64 << 20;

/// A library's definitions, and the JSON that they were read from.
pub(crate) struct LibraryFile {
    /// The file.
    pub(crate) path: PathBuf,
    /// What the library says of itself.
    pub(crate) json: Value,
    /// The same, read.
    pub(crate) definitions: Definitions,
}

/// Reads a library or a file of definitions, or only the op of a name. A library is loaded into this process, and its ops are explained
/// if that is asked for.
///
/// # Errors
/// What is wrong with the file, or that it has no such op.
pub(crate) fn read(path: &Path, op: Option<&str>, is_explained: bool) -> Result<LibraryFile> {
    if is_json(path)? {
        let mut file = from_text(path, &read_text(path)?)?;
        file.keep_only(op)?;
        return Ok(file);
    }
    let library = Library::open(path).map_err(told)?;
    let mut file = from_text(path, library.description())?;
    file.keep_only(op)?;
    if is_explained {
        explain(&library, &mut file.json)?;
        file = from_json(path, file.json)?;
    }
    Ok(file)
}

impl LibraryFile {
    /// Drops all ops but the one of this name, if there is one.
    fn keep_only(&mut self, name: Option<&str>) -> Result<()> {
        let Some(name) = name else { return Ok(()) };
        let ops = &mut self.definitions.ops;
        let found = find_op(&self.definitions.name, name, ops.iter().map(|op| &op.signature));
        let index = found.map_err(told)?;
        *ops = vec![ops.swap_remove(index)];
        if let Value::Array(list) = &mut self.json["ops"] {
            *list = vec![list.swap_remove(index)];
        }
        Ok(())
    }
}

/// Adds to each op whose kernel is written once what it is made of: `formula`, `cuda_source` and `vectors`; `explained_for` has the
/// attributes without a default, for each of which there is one value. Some ops have too long a formula.
fn explain(library: &Library, json: &mut Value) -> Result<()> {
    for json in json["ops"].as_array_mut().into_iter().flatten().filter(|op| op["explained"] == true) {
        let op = library.op(json["name"].as_str().unwrap_or_default()).map_err(told)?;
        let attrs = op.signature().attrs.iter();
        let given: Vec<(&str, AttrValue)> =
            attrs.filter_map(|attr| Some((attr.name.as_str(), simplest(attr)?))).collect();
        match op.explain(&given) {
            Ok(explanation) => {
                json["formula"] = explanation.formula.into();
                json["cuda_source"] = explanation.cuda_source.into();
                json["vectors"] = explanation.vectors.into();
                let given: Vec<String> =
                    given.iter().map(|(name, value)| format!("{name} = {value}")).collect();
                json["explained_for"] = given.join(", ").into();
            }
            Err(error) if matches!(error.code(), Code::InvalidArgument | Code::ResourceExhausted) => {}
            Err(error) => bail!("{}", error.message()),
        }
    }
    Ok(())
}

/// Reads a library or a file of definitions, without explanations. A library is loaded by another process: one process cannot have two
/// versions of a library.
///
/// # Errors
/// What is wrong with the file.
pub(crate) fn read_apart(path: &Path) -> Result<LibraryFile> {
    if is_json(path)? {
        return from_text(path, &read_text(path)?);
    }
    let mut command = itself::command()?;
    command.args(["inspect", "--definitions", "--"]).arg(path).env("NO_COLOR", "1");
    let output = command.output().with_context(|| {
        format!("cannot start {} to load a library", Path::new(command.get_program()).display())
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        match said.trim().strip_prefix("error: ") {
            Some(error) => bail!("{error}"),
            None => bail!("{}: loading it ended the process: {}", path.display(), output.status),
        }
    }
    from_text(path, &String::from_utf8_lossy(&output.stdout))
}

/// Whether the file is to be read as JSON: it begins like that, or is called that.
fn is_json(path: &Path) -> Result<bool> {
    let (mut file, _) = opsmith_files::open(path).map_err(told)?;
    let mut begin = [0];
    let length = file.read(&mut begin).with_context(|| format!("{}: cannot be read", path.display()))?;
    let is_json = length == 1 && (begin[0] == b'{' || begin[0].is_ascii_whitespace());
    Ok(is_json || path.extension().is_some_and(|extension| extension == "json"))
}

fn read_text(path: &Path) -> Result<String> {
    opsmith_files::read_text(path, MOST).map_err(told)
}

fn told(error: Error) -> anyhow::Error {
    anyhow!("{}", error.message())
}

fn from_text(path: &Path, text: &str) -> Result<LibraryFile> {
    from_json(path, from_json_text(path, text)?)
}

fn from_json_text(path: &Path, text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|error| not_json(path, text, &error))
}

fn from_json(path: &Path, json: Value) -> Result<LibraryFile> {
    let place = path.display();
    let definitions = Definitions::from_json(&json)
        .with_context(|| format!("{place}: is not what `opsmith inspect LIB --json` writes"))?;
    Ok(LibraryFile { path: path.to_owned(), json, definitions })
}

/// The error with the line that it is in, and a caret under the place.
fn not_json(path: &Path, text: &str, error: &serde_json::Error) -> anyhow::Error {
    let (place, line, column) = (path.display(), error.line(), error.column());
    let what = error.to_string();
    let what = what.split(" at line ").next().unwrap_or_default();
    let shown = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    let before: String = shown.chars().take(column.saturating_sub(1)).collect();
    if before.chars().count() > 100 {
        return anyhow!("{place}:{line}:{column}: is not JSON: {what}");
    }
    let shown: String = shown.chars().take(120).collect();
    let caret = " ".repeat(before.chars().count());
    anyhow!("{place}:{line}:{column}: is not JSON: {what}\n    {shown}\n    {caret}^")
}
