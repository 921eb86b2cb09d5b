//! How often each crate says `unsafe`, against a ceiling for each.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;

/// The ceilings: a crate and a number in each line.
const CEILINGS: &str = "xtask/unsafe.txt";

/// Fails if a crate says it more often than its ceiling allows.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let text = fs::read_to_string(workspace.root.join(CEILINGS))
        .with_context(|| format!("could not read {CEILINGS}"))?;
    let mut ceilings = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let parts =
            line.split_once(' ').and_then(|(name, rest)| Some((name, rest.trim().parse::<usize>().ok()?)));
        let (name, ceiling) = parts.with_context(|| format!("{CEILINGS}: no crate and number: {line}"))?;
        ceilings.insert(name.to_owned(), ceiling);
    }
    let mut faults = Vec::new();
    for folder in workspace.crate_folders()? {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (found, ceiling) = (in_folder(&folder.join("src"))?, ceilings.get(&name).copied().unwrap_or(0));
        if found > ceiling {
            faults.push(format!(
                "{name} says `unsafe` {found} times in its sources, and {ceiling} are allowed"
            ));
        }
    }
    if faults.is_empty() {
        return Ok(());
    }
    faults.sort();
    bail!(
        "{}\n  → do it without, or state the new number and why in the commit, in {CEILINGS}",
        faults.join("\n")
    )
}

fn in_folder(folder: &Path) -> Result<usize> {
    let mut sum = 0;
    for entry in fs::read_dir(folder).with_context(|| format!("could not list {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            sum += in_folder(&path)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text =
                fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
            sum += in_text(&text);
        }
    }
    Ok(sum)
}

/// How often it is said outside of comments: blocks, functions, traits, attributes, and what macros write.
fn in_text(text: &str) -> usize {
    let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    code.flat_map(|line| line.split(move |letter| !is_word(letter))).filter(|word| *word == "unsafe").count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_counted_outside_of_comments_and_other_words() {
        let text =
            "unsafe impl Send for A {}\n// unsafe\nlet a = unsafe { *b }; // unsafe\n#[unsafe(no_mangle)]\n";
        assert_eq!(in_text(text), 3);
        assert_eq!(in_text("unsafe_op_in_unsafe_fn not_unsafe"), 0);
    }

    #[test]
    fn no_crate_is_above_its_ceiling() {
        check(&Workspace::find("release").unwrap()).unwrap();
    }
}
