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

/// Which modules of a folder each one needs, and what imports say so.
type Needs<'a> = BTreeMap<&'a str, BTreeMap<String, BTreeSet<String>>>;

/// Fails for a circle that is not known, and for a known one that is no more.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let text =
        fs::read_to_string(workspace.root.join(KNOWN)).with_context(|| format!("could not read {KNOWN}"))?;
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let known: BTreeSet<String> = lines.map(str::to_owned).collect();
    let (mut found, mut globs) = (BTreeMap::new(), Vec::new());
    let mut folders = workspace.crate_folders()?;
    folders.push(workspace.root.join("xtask"));
    for folder in folders {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut modules = BTreeMap::new();
        if folder.join("src").is_dir() {
            read(&folder.join("src"), &[], &mut modules)?;
        }
        globs.extend(modules.iter().filter(|(module, text)| has_glob(module, text, &modules)).map(|(module, _)| {
            let module = module.join("::");
            format!("{name}: {module} imports by glob of its own crate\n  → name what it needs, so that circles can be seen")
        }));
        found.extend(circles(&modules).into_iter().map(|(circle, why)| (format!("{name}{circle}"), why)));
    }
    let mut faults = globs;
    faults.extend(found.iter().filter(|(circle, _)| !known.contains(*circle)).map(|(circle, why)| {
        format!("a circle of imports: {circle}\n  → move what both need into a module below both\n{why}")
    }));
    faults.extend(known.iter().filter(|circle| !found.contains_key(*circle)).map(|circle| {
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

/// Whether a module imports all of another one of its crate. All variants of an enum it may.
fn has_glob(name: &[String], text: &str, modules: &BTreeMap<Name, String>) -> bool {
    let globs = exports(name, text).into_iter().filter(|path| path.last().is_some_and(|last| last == "*"));
    globs.map(|path| path[..path.len() - 1].to_vec()).any(|path| modules.contains_key(&path))
}

/// The circles of a crate's modules: of each folder where they are, and what is in them; and what imports make them.
fn circles(modules: &BTreeMap<Name, String>) -> Vec<(String, String)> {
    let given: BTreeMap<&Name, Vec<Name>> =
        modules.iter().map(|(name, text)| (name, exports(name, text))).collect();
    let mut needs: BTreeMap<&[String], Needs> = BTreeMap::new();
    for (name, text) in modules {
        for path in paths(name, text) {
            let target = resolve(path.clone(), modules, &given);
            let shared = name.iter().zip(&target).take_while(|(a, b)| a == b).count();
            if shared < name.len() && shared < target.len() {
                let of_folder = needs.entry(&name[..shared]).or_default();
                let whys =
                    of_folder.entry(&name[shared]).or_default().entry(target[shared].clone()).or_default();
                whys.insert(format!("{} → {}", name.join("::"), path.join("::")));
            }
        }
    }
    let mut found = BTreeMap::new();
    for (folder, needs) in needs {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            needs.keys().map(|&module| (module, reached(module, &needs))).collect();
        for (&module, others) in &reached {
            let back = |other: &&str| reached.get(other).is_some_and(|back| back.contains(module));
            let circle: Vec<&str> = others.iter().copied().filter(back).collect();
            if circle.len() > 1 {
                let folder: String = folder.iter().map(|name| format!("/{name}")).collect();
                let among = |module: &&str| needs.get(*module).into_iter().flatten();
                let inside =
                    circle.iter().flat_map(among).filter(|(other, _)| circle.contains(&other.as_str()));
                let whys: Vec<String> =
                    inside.flat_map(|(_, whys)| whys).map(|why| format!("    {why}")).collect();
                found.insert(format!("{folder}: {}", circle.join(" ")), whys.join("\n"));
            }
        }
    }
    found.into_iter().collect()
}

/// The modules that one needs, by way of others too.
fn reached<'a>(module: &str, needs: &'a Needs) -> BTreeSet<&'a str> {
    let of = |module: &str| needs.get(module).into_iter().flatten().map(|(other, _)| other.as_str());
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

/// What a module imports of others: its children may name that as its own, and everyone what is exported.
fn exports(name: &[String], text: &str) -> Vec<Name> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("use ") {
        if text[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_') {
            continue;
        }
        let statement = text[at + "use ".len()..].split(';').next().unwrap_or_default();
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
        if let Some(after) = rest.strip_prefix('*') {
            *rest = after;
            path.push("*".to_owned());
            break;
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
        let modules = files.iter().map(|(path, text)| (name(path), code(text))).collect();
        circles(&modules).into_iter().map(|(circle, _)| circle).collect()
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
    fn what_a_parent_imports_its_children_may_name() {
        let files = [("a", "use crate::c::C;"), ("a/b", "use super::C;"), ("c", "use crate::a::b::B;")];
        assert_eq!(found(&files), [": a c"]);
        let files = [("", "use c::C;"), ("a", "use crate::C;"), ("c", "use crate::a;")];
        assert_eq!(found(&files), [": a c"]);
    }

    #[test]
    fn globs_of_the_own_crate_are_seen() {
        let name = |path: &str| path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let modules: BTreeMap<Name, String> =
            ["", "a", "a/b", "c"].map(|path| (name(path), String::new())).into();
        let has = |text: &str| has_glob(&["a".to_owned()], text, &modules);
        assert!(has("use super::*;") && has("pub use crate::c::{*};") && has("pub use b::*;"));
        assert!(!has("use std::arch::*; use super::DType::{self, *}; use other::prelude::*;"));
    }

    #[test]
    fn tests_may_need_anything() {
        let test = "#[cfg(test)]\nmod tests {\n use crate::b;\n}";
        assert_eq!(found(&[("a", test), ("b", "use crate::a;")]), [""; 0]);
    }
}
