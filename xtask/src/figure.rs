//! `cargo xtask figure`: the crates and what depends on what, drawn from their manifests into docs/architecture.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;

use anyhow::{Context, Result, ensure};

use crate::workspace::Workspace;

const PAGE: &str = "docs/architecture.md";
/// What stands before and behind the figure.
const MARKS: [&str; 2] = ["<!-- `cargo xtask figure` draws this -->\n", "<!-- as far as here -->\n"];

/// Each crate with those that it depends on.
type Crates = BTreeMap<String, BTreeSet<String>>;

/// Draws the figure, or with `check` fails if the page has another one.
pub(crate) fn figure(workspace: &Workspace, check: bool) -> Result<()> {
    let path = workspace.root.join(PAGE);
    let page = fs::read_to_string(&path).with_context(|| format!("could not read {PAGE}"))?;
    let (before, rest) =
        page.split_once(MARKS[0]).with_context(|| format!("{PAGE} has no line {:?}", MARKS[0]))?;
    let (_, behind) =
        rest.split_once(MARKS[1]).with_context(|| format!("{PAGE} has no line {:?}", MARKS[1]))?;
    let figure = drawn(&workspace.crates);
    let new = [before, MARKS[0], &figure, MARKS[1], behind].concat();
    if check {
        ensure!(
            new == page,
            "{PAGE}: the figure of the crates is not that of their manifests\n  → cargo xtask figure"
        );
        return Ok(());
    }
    fs::write(&path, new).with_context(|| format!("could not write {PAGE}"))
}

/// The figure as Mermaid has it, from those on which nothing depends downwards. What a crate reaches by another one has no arrow of its own.
fn drawn(crates: &Crates) -> String {
    let mut text = String::from("```mermaid\nflowchart TD\n");
    for (name, uses) in crates {
        let further: BTreeSet<&String> = uses.iter().flat_map(|own| reached(crates, own)).collect();
        let direct: Vec<&str> =
            uses.iter().filter(|own| !further.contains(own)).map(String::as_str).collect();
        let line = match direct.is_empty() {
            true => writeln!(text, "    {name}"),
            false => writeln!(text, "    {name} --> {}", direct.join(" & ")),
        };
        line.expect("a text takes all");
    }
    text.push_str("```\n");
    text
}

/// All that a crate depends on.
fn reached<'a>(crates: &'a Crates, name: &str) -> BTreeSet<&'a String> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&String> = crates.get(name).into_iter().flatten().collect();
    while let Some(own) = next.pop() {
        if found.insert(own) {
            next.extend(crates.get(own).into_iter().flatten());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reached_by_another_has_no_arrow() {
        let crates = [("a", vec!["b", "c"]), ("b", vec!["c"]), ("c", vec![])];
        let crates: Crates = crates
            .map(|(name, uses)| (name.to_owned(), uses.into_iter().map(str::to_owned).collect()))
            .into();
        assert_eq!(drawn(&crates), "```mermaid\nflowchart TD\n    a --> b\n    b --> c\n    c\n```\n");
    }
}
