//! The rules of compatibility, each stated by pairs of definitions in `tests/compat`.
//!
//! A file is a sentence, an old and a new library in the definition language, and the changes that are expected, a line
//! each. It lies in the folder of the worst verdict. `UPDATE_EXPECTED=1` writes the lines anew; the folder says whether
//! they are right. That a graph saved with OLD runs with every NEW that is safe is to be tried on these pairs as well.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use opsmith_cli::compat::{Change, Rule, compare};
use opsmith_cli::definitions::Definitions;
use opsmith_core::{Library, OpDef};
use serde_json::{Value, json};

/// A pair as its file has it.
struct Pair {
    path: PathBuf,
    /// Everything before the expected changes.
    statement: String,
    old: Definitions,
    new: Definitions,
    expected: String,
}

fn pairs() -> Vec<Pair> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/compat");
    let verdicts = ["safe", "caution", "breaking"].map(|verdict| folder.join(verdict));
    let files = verdicts.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let mut paths: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(read).collect()
}

fn read(path: PathBuf) -> Pair {
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
fn library(text: &str) -> Result<Definitions, String> {
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
    let mut json = Library::new(name, "1.0", defs).map_err(|error| error.to_string())?.to_json();
    for (op, kernels) in json["ops"].as_array_mut().unwrap().iter_mut().zip(kernels) {
        op["kernels"] = kernels.into();
    }
    Definitions::from_json(&json).map_err(|error| format!("{error:#}"))
}

/// `CPU T=float32,S=int64`.
fn kernel(text: &str) -> Value {
    let (device, types) = text.split_once(' ').unwrap_or((text, ""));
    let types = types.split(',').filter_map(|pair| pair.split_once('='));
    let types: serde_json::Map<_, _> = types.map(|(attr, dtype)| (attr.to_owned(), dtype.into())).collect();
    json!({ "device": device, "types": types })
}

fn text(changes: &[Change]) -> String {
    let lines: String = changes.iter().map(|change| format!("{change}\n")).collect();
    if lines.is_empty() { "no change\n".to_owned() } else { lines }
}

#[test]
fn every_pair_is_judged_as_it_says() {
    let mut wrong = String::new();
    for pair in pairs() {
        let changes = compare(&pair.old, &pair.new);
        let got = text(&changes);
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            fs::write(&pair.path, format!("{}\nexpected\n{got}", pair.statement)).unwrap();
        } else if got != pair.expected {
            wrong += &format!("{}:\nexpected\n{}got\n{got}\n", pair.path.display(), pair.expected);
        }
        let worst = changes.iter().map(Change::verdict).min().map_or("safe", |verdict| verdict.name());
        let folder = pair.path.parent().unwrap().file_name().unwrap().to_str().unwrap();
        if worst != folder {
            wrong += &format!("{}: is {worst}\n{got}\n", pair.path.display());
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_rule_is_stated() {
    let stated: HashSet<Rule> = pairs()
        .iter()
        .flat_map(|pair| compare(&pair.old, &pair.new).into_iter().map(|change| change.rule))
        .collect();
    let missing: Vec<&str> =
        Rule::ALL.iter().filter(|rule| !stated.contains(rule)).map(|rule| rule.id()).collect();
    assert!(missing.is_empty(), "no pair in tests/compat states {}", missing.join(", "));
    assert!(pairs().len() >= 40, "{}", pairs().len());
}

#[test]
fn a_definition_is_compatible_with_itself() {
    for pair in pairs() {
        for side in [&pair.old, &pair.new] {
            assert_eq!(text(&compare(side, side)), "no change\n", "{}", pair.path.display());
        }
    }
}
