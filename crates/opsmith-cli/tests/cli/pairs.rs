//! The pairs of definitions in `tests/compat`.

use std::fs;
use std::path::{Path, PathBuf};

use opsmith_cli::definitions::Definitions;
use opsmith_core::{Library, OpDef};
use serde_json::{Value, json};

/// A pair as its file has it.
pub(crate) struct Pair {
    pub(crate) path: PathBuf,
    /// Everything before the expected changes.
    pub(crate) statement: String,
    pub(crate) old: Side,
    pub(crate) new: Side,
    pub(crate) expected: String,
}

/// One of the two libraries.
pub(crate) struct Side {
    pub(crate) definitions: Definitions,
    /// The same, as an author states them, without kernels.
    pub(crate) statements: Vec<OpDef>,
}

impl Pair {
    /// The folder that it lies in.
    pub(crate) fn verdict(&self) -> &str {
        self.path.parent().unwrap().file_name().unwrap().to_str().unwrap()
    }
}

/// All pairs.
pub(crate) fn pairs() -> Vec<Pair> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/compat");
    let verdicts = ["safe", "caution", "breaking"].map(|verdict| folder.join(verdict));
    let files = verdicts.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let mut paths: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(read).collect()
}

/// Reads the file of a pair.
pub(crate) fn read(path: PathBuf) -> Pair {
    let text = fs::read_to_string(&path).unwrap();
    let cut = |text: &str, at: &str| {
        let (before, after) = text.split_once(at).unwrap_or_else(|| panic!("{}: no {at:?}", path.display()));
        (before.to_owned(), after.to_owned())
    };
    let (statement, expected) = cut(&text, "\nexpected\n");
    let (title, definitions) = cut(&statement, "\nold\n");
    assert!(title.starts_with("# ") && title.trim_end().ends_with('.'), "{}: {title}", path.display());
    let (old, new) = cut(&definitions, "\nnew\n");
    let library = |text: &str| library(text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Pair { old: library(&old), new: library(&new), statement, expected, path }
}

/// Reads a library: `library NAME`, and for each op its name and, indented, what `OpDef` says of it.
fn library(text: &str) -> Result<Side, String> {
    let mut name = "library";
    let mut ops: Vec<(OpDef, Vec<Value>)> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (word, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        match (line.starts_with(' '), ops.pop()) {
            (false, _) if word == "library" => name = rest,
            (false, last) => {
                ops.extend(last);
                ops.push((OpDef::new(word), Vec::new()));
            }
            (true, Some((op, mut kernels))) => {
                let op = match word {
                    "attr" => op.attr(rest),
                    "input" => op.input(rest),
                    "output" => op.output(rest),
                    "optional" => op.optional(rest),
                    "saved" => op.saved(rest),
                    "shape" => op.shape(rest),
                    "parallel" => op.parallel(rest),
                    "gradient" => op.gradient(rest),
                    "stateful" => op.stateful(),
                    "not_differentiable" => op.not_differentiable(),
                    "kernel" => {
                        kernels.push(kernel(rest));
                        op
                    }
                    other => return Err(format!("`{other}` says nothing of an op")),
                };
                ops.push((op, kernels));
            }
            (true, None) => return Err(format!("no op for `{line}`")),
        }
    }
    let (defs, kernels): (Vec<OpDef>, Vec<Vec<Value>>) = ops.into_iter().unzip();
    let mut json = Library::new(name, "1.0", defs.clone()).map_err(|error| error.to_string())?.to_json();
    for (op, kernels) in json["ops"].as_array_mut().unwrap().iter_mut().zip(kernels) {
        op["kernels"] = kernels.into();
    }
    let definitions = Definitions::from_json(&json).map_err(|error| format!("{error:#}"))?;
    Ok(Side { definitions, statements: defs })
}

/// `CPU T=float32,S=int64`.
fn kernel(text: &str) -> Value {
    let (device, types) = text.split_once(' ').unwrap_or((text, ""));
    let types = types.split(',').filter_map(|pair| pair.split_once('='));
    let types: serde_json::Map<_, _> = types.map(|(attr, dtype)| (attr.to_owned(), dtype.into())).collect();
    json!({ "device": device, "types": types })
}
