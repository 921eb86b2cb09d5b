//! Circles of imports: no two modules of one folder may need each other, by themselves or by way of others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;

/// The circles that there still are: the folder of a crate's sources and the modules in each line.
const KNOWN: &str = "xtask/circles.txt";

/// The path of a module or an item within its crate.
type Name = Vec<String>;

/// Fails for a circle that is not known, and for a known one that is no more.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let text =
        fs::read_to_string(workspace.root.join(KNOWN)).with_context(|| format!("could not read {KNOWN}"))?;
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let known: BTreeSet<String> = lines.map(str::to_owned).collect();
    let mut found = BTreeSet::new();
    let crates = workspace.root.join("crates");
    let mut folders = vec![workspace.root.join("xtask")];
    for entry in fs::read_dir(&crates).with_context(|| format!("could not list {}", crates.display()))? {
        folders.push(entry?.path());
    }
    for folder in folders {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut modules = BTreeMap::new();
        if folder.join("src").is_dir() {
            read(&folder.join("src"), &[], &mut modules)?;
        }
        found.extend(circles(&modules).into_iter().map(|circle| format!("{name}{circle}")));
    }
    let mut faults: Vec<String> = found
        .difference(&known)
        .map(|circle| {
            format!("a circle of imports: {circle}\n  → move what both need into a module below both")
        })
        .collect();
    faults.extend(known.difference(&found).map(|circle| {
        format!("no circle as {KNOWN} has it: {circle}\n  → remove the line, or its modules that are cut off")
    }));
    if faults.is_empty() { Ok(()) } else { bail!("{}", faults.join("\n")) }
}

/// Reads the modules in a folder, but for those of tests: what is in each without comments.
fn read(folder: &Path, within: &[String], modules: &mut BTreeMap<Name, String>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("could not list {}", folder.display()))? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if stem == "tests" || stem.ends_with("_tests") {
            continue;
        }
        let mut name = within.to_vec();
        if path.is_dir() {
            name.push(stem);
            read(&path, &name, modules)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            if !matches!(stem.as_str(), "mod" | "lib" | "main") {
                name.push(stem);
            }
            let text =
                fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
            modules.entry(name).or_default().push_str(&code(&text));
        }
    }
    Ok(())
}

/// A file without comments, and without the tests at its end.
fn code(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let lines = text[..end].lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// The circles of a crate's modules: of each folder where they are, and what is in them.
fn circles(modules: &BTreeMap<Name, String>) -> Vec<String> {
    let given: BTreeMap<&Name, Vec<Name>> =
        modules.iter().map(|(name, text)| (name, exports(name, text))).collect();
    let mut needs: BTreeMap<&[String], BTreeMap<&str, BTreeSet<String>>> = BTreeMap::new();
    for (name, text) in modules {
        for path in paths(name, text) {
            let target = resolve(path, modules, &given);
            let shared = name.iter().zip(&target).take_while(|(a, b)| a == b).count();
            if shared < name.len() && shared < target.len() {
                let of_folder = needs.entry(&name[..shared]).or_default();
                of_folder.entry(&name[shared]).or_default().insert(target[shared].clone());
            }
        }
    }
    let mut found = BTreeSet::new();
    for (folder, needs) in needs {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            needs.keys().map(|&module| (module, reached(module, &needs))).collect();
        for (&module, others) in &reached {
            let back = |other: &&str| reached.get(other).is_some_and(|back| back.contains(module));
            let circle: Vec<&str> = others.iter().copied().filter(back).collect();
            if circle.len() > 1 {
                let folder: String = folder.iter().map(|name| format!("/{name}")).collect();
                found.insert(format!("{folder}: {}", circle.join(" ")));
            }
        }
    }
    found.into_iter().collect()
}

/// The modules that one needs, by way of others too.
fn reached<'a>(module: &str, needs: &'a BTreeMap<&str, BTreeSet<String>>) -> BTreeSet<&'a str> {
    let of = |module: &str| needs.get(module).into_iter().flatten().map(String::as_str);
    let (mut seen, mut open) = (BTreeSet::new(), of(module).collect::<Vec<_>>());
    while let Some(next) = open.pop() {
        if seen.insert(next) {
            open.extend(of(next));
        }
    }
    seen
}

/// The module that a path leads to, by way of what modules export of others.
fn resolve(mut path: Name, modules: &BTreeMap<Name, String>, given: &BTreeMap<&Name, Vec<Name>>) -> Name {
    const MOST_EXPORTS: usize = 8;
    for _ in 0..MOST_EXPORTS {
        let mut module = path.clone();
        while !module.is_empty() && !modules.contains_key(&module) {
            module.pop();
        }
        let item = path.get(module.len());
        let exported = given.get(&module).into_iter().flatten().find(|export| export.last() == item);
        match exported {
            Some(export) if item.is_some() && *export != path => path.clone_from(export),
            _ => return module,
        }
    }
    path
}

/// What a module exports of others.
fn exports(name: &[String], text: &str) -> Vec<Name> {
    let statements = text.split("pub").skip(1).filter_map(|rest| {
        let rest = rest.strip_prefix("(crate)").or_else(|| rest.strip_prefix("(super)")).unwrap_or(rest);
        rest.strip_prefix(" use ")?.split(';').next()
    });
    let mut found = Vec::new();
    for statement in statements {
        let is_absolute = ["crate::", "super::", "self::"].iter().any(|start| statement.starts_with(start));
        let statement = if is_absolute { statement.to_owned() } else { format!("self::{statement}") };
        found.extend(paths(name, &statement));
    }
    found
}

/// The paths from `crate`, `super` and `self` that a module names.
fn paths(name: &[String], text: &str) -> Vec<Name> {
    let mut found = Vec::new();
    for (start, parents) in [("crate::", None), ("super::", Some(1)), ("self::", Some(0))] {
        for (at, _) in text.match_indices(start) {
            if text[..at].ends_with(|before: char| before.is_alphanumeric() || "_:$".contains(before)) {
                continue;
            }
            let mut rest = &text[at + start.len()..];
            let mut kept = parents.map_or(0, |parents| name.len().saturating_sub(parents));
            while let Some(further) = rest.strip_prefix("super::") {
                (rest, kept) = (further, kept.saturating_sub(1));
            }
            tree(&name[..kept], &mut rest, &mut found);
        }
    }
    found
}

/// Reads what follows a `::`: one path, or several in braces.
fn tree(before: &[String], rest: &mut &str, found: &mut Vec<Name>) {
    let mut path = before.to_vec();
    loop {
        *rest = rest.trim_start();
        if let Some(inside) = rest.strip_prefix('{') {
            *rest = inside;
            loop {
                tree(&path, rest, found);
                *rest = rest.trim_start();
                match rest.strip_prefix(',') {
                    Some(next) => *rest = next,
                    None => break,
                }
            }
            *rest = rest.strip_prefix('}').unwrap_or(rest);
            return;
        }
        let end = rest.find(|next: char| !next.is_alphanumeric() && next != '_').unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        *rest = after;
        if !word.is_empty() && word != "self" {
            path.push(word.to_owned());
        }
        match rest.strip_prefix("::") {
            Some(next) if !word.is_empty() => *rest = next,
            _ => break,
        }
    }
    // `as` gives another name, by which others then ask.
    if let Some(renamed) = rest.strip_prefix(" as ") {
        *rest = renamed.trim_start_matches(|next: char| next.is_alphanumeric() || next == '_');
    }
    if !path.is_empty() {
        found.push(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let name = |path: &str| path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        circles(&files.iter().map(|(path, text)| (name(path), code(text))).collect())
    }

    #[test]
    fn modules_that_need_each_other_are_a_circle() {
        let files = [("", "mod a;"), ("a", "use crate::b::B;"), ("b", "use crate::{a::{A, C}, std};")];
        assert_eq!(found(&files), [": a b"]);
        assert_eq!(found(&[("a", "use crate::b::B;"), ("b", "// use crate::a::A;")]), [""; 0]);
        let by_another = [("a", "fn f() -> crate::b::B {}"), ("b", "use super::c;"), ("c", "use super::a;")];
        assert_eq!(found(&by_another), [": a b c"]);
    }

    #[test]
    fn a_child_and_its_parent_are_none_and_siblings_are() {
        assert_eq!(found(&[("a", "use self::b::B;"), ("a/b", "use super::A;")]), [""; 0]);
        let files = [("a", ""), ("a/b", "use super::c::C;"), ("a/c", "use crate::a::b::B;")];
        assert_eq!(found(&files), ["/a: b c"]);
        // A child needs for its folder what it needs outside.
        assert_eq!(found(&[("a/b", "use super::super::d;"), ("d", "use crate::a;"), ("a", "")]), [": a d"]);
    }

    #[test]
    fn what_the_root_exports_is_where_it_is_made() {
        let files = [("", "pub use a::{A, A2 as Other};"), ("a", "use crate::b;"), ("b", "use crate::A;")];
        assert_eq!(found(&files), [": a b"]);
    }

    #[test]
    fn tests_may_need_anything() {
        let test = "#[cfg(test)]\nmod tests {\n use crate::b;\n}";
        assert_eq!(found(&[("a", test), ("b", "use crate::a;")]), [""; 0]);
    }
}
