//! `opsmith compat`: tells safe changes of definitions from those that break users.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Result;
use opsmith_core::family::op_name;
use serde_json::json;

use crate::Outcome;
use crate::compat::{Change, Rule, Verdict, compare};
use crate::definitions::{Definitions, Gradient, Op};
use crate::source::{LibraryFile, read_apart};
use crate::text::{BAD, FAINT, GOOD, STRONG, WARNING, print, styled, wrapped};

/// Tell safe changes of a library's definitions from those that break its users
///
/// OLD and NEW are libraries, or files that `opsmith inspect LIB --json` wrote. Saved graphs, installed packages and
/// calls in source depend on definitions; each change is judged by a rule, and the rule says why.
///
/// Exit status: 0 if nothing breaks, 1 if something does, 2 if the files cannot be compared.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  opsmith inspect libdistances.so --json > distances.json    # at a release; commit it
  opsmith compat distances.json target/release/libdistances.so
  opsmith compat --strict old/libdistances.so new/libdistances.so
  opsmith compat --rules")]
pub(crate) struct Options {
    /// The definitions that are in use
    #[arg(required_unless_present = "rules")]
    old: Option<PathBuf>,
    /// The definitions that are to replace them
    #[arg(required_unless_present = "rules")]
    new: Option<PathBuf>,
    /// Fail on cautions too: changes that old calls in source and exported PyTorch programs do not survive
    #[arg(long)]
    strict: bool,
    /// Write JSON, for programs
    #[arg(long)]
    json: bool,
    /// List the rules, compare nothing
    #[arg(long, conflicts_with_all = ["old", "new", "strict"])]
    rules: bool,
}

/// Compares and prints.
pub(crate) fn compat(options: &Options) -> Result<Outcome> {
    let (Some(old), Some(new)) = (&options.old, &options.new) else {
        print(&rules(options.json))?;
        return Ok(Outcome::Good);
    };
    let (old, new) = (read_apart(old)?, read_apart(new)?);
    let mut changes = compare(&old.definitions, &new.definitions);
    changes.sort_by_key(Change::verdict);
    let fails = |change: &Change| {
        change.verdict() == Verdict::Breaking || options.strict && change.verdict() == Verdict::Caution
    };
    let is_fault = changes.iter().any(fails);
    print(&if options.json { as_json(&old, &new, &changes) } else { as_table(&old, &new, &changes) })?;
    Ok(if is_fault { Outcome::Fault } else { Outcome::Good })
}

fn as_json(old: &LibraryFile, new: &LibraryFile, changes: &[Change]) -> String {
    let side = |source: &LibraryFile| {
        let definitions = &source.definitions;
        json!({ "path": source.path, "name": definitions.name, "version": definitions.version })
    };
    let json = json!({
        "old": side(old),
        "new": side(new),
        "breaking": count(changes, Verdict::Breaking),
        "caution": count(changes, Verdict::Caution),
        "safe": count(changes, Verdict::Safe),
        "changes": changes.iter().map(Change::to_json).collect::<Vec<_>>(),
    });
    format!("{json:#}\n")
}

fn as_table(old: &LibraryFile, new: &LibraryFile, changes: &[Change]) -> String {
    let (was, is) = (&old.definitions, &new.definitions);
    let mut table = format!(
        "{} {} {}\n",
        styled(STRONG, format_args!("{} {} → {}", was.name, was.version, is.version)),
        styled(FAINT, "from"),
        styled(FAINT, format_args!("{} to {}", old.path.display(), new.path.display())),
    );
    let gradients = gradients(&[was, is], changes);
    let is_gradient = |change: &&Change| gradients.contains_key(change.subject.as_str());
    let mut told = HashSet::new();
    for change in changes.iter().filter(|change| !is_gradient(change)) {
        let verdict = verdict(change.verdict(), &format!("{:8}", change.verdict().name()));
        let place = styled(STRONG, change.place());
        let detail = wrapped(&change.detail, 10);
        let reason = wrapped(change.rule.reason(), 10);
        let _ = write!(table, "\n{verdict}  {place}  {}\n", styled(FAINT, change.rule.id()));
        let _ = writeln!(table, "{detail}\n{}", styled(FAINT, reason));
        if told.insert(&change.subject)
            && let Some(line) = gradients_line(
                changes
                    .iter()
                    .filter(|other| gradients.get(other.subject.as_str()) == Some(&change.subject.as_str())),
            )
        {
            let _ = writeln!(table, "{}", wrapped(&line, 10));
        }
    }
    let total = |verdict| count(changes, verdict);
    let (breaking, caution, safe) = (total(Verdict::Breaking), total(Verdict::Caution), total(Verdict::Safe));
    let _ = match changes.len() {
        0 => writeln!(table, "\n{}", verdict(Verdict::Safe, "no change")),
        _ => writeln!(table, "\n{breaking} breaking, {caution} to be looked at, {safe} safe"),
    };
    table
}

/// The gradients of ops, each with the op at the beginning of its chain, whose changes are told with those of that op: it changes as badly.
/// Derived gradients are called after their op.
fn gradients<'a>(sides: &[&'a Definitions], changes: &'a [Change]) -> HashMap<&'a str, &'a str> {
    let ops = || sides.iter().flat_map(|side| &side.ops);
    let forward = |name: &str| {
        let is_forward = |op: &&Op| matches!(&op.gradient, Gradient::Op(wiring) if wiring.op == name);
        ops().filter(is_forward).map(Op::name).find(|forward| op_name(forward, 1) == name)
    };
    let worst =
        |name: &str| changes.iter().filter(|change| change.subject == name).map(Change::verdict).min();
    let with_first = |op: &'a Op| {
        let first = std::iter::successors(forward(op.name()), |name| forward(name)).last()?;
        let is_as_bad = worst(first)? <= worst(op.name())?;
        is_as_bad.then_some((op.name(), first))
    };
    ops().filter_map(with_first).collect()
}

/// The changes of an op's gradients on one line; none where there are none.
fn gradients_line<'a>(changes: impl Iterator<Item = &'a Change>) -> Option<String> {
    let changes: Vec<&Change> = changes.collect();
    let distinct = |texts: &mut dyn Iterator<Item = &'a str>| {
        let mut list: Vec<&str> = Vec::new();
        texts.for_each(|text| {
            if !list.contains(&text) {
                list.push(text)
            }
        });
        list.join(", ")
    };
    let names = distinct(&mut changes.iter().map(|change| change.subject.as_str()));
    let rules = distinct(&mut changes.iter().map(|change| change.rule.id()));
    let verdicts = [Verdict::Breaking, Verdict::Caution, Verdict::Safe].map(|verdict| {
        let count = changes.iter().filter(|change| change.verdict() == verdict).count();
        (count > 0).then(|| format!("{count} {}", verdict.name()))
    });
    let counts: Vec<String> = verdicts.into_iter().flatten().collect();
    let counts = counts.join(", ");
    (!changes.is_empty())
        .then(|| format!("its gradients too, {names}: {counts} ({rules}); --json lists each"))
}

fn count(changes: &[Change], verdict: Verdict) -> usize {
    changes.iter().filter(|change| change.verdict() == verdict).count()
}

fn verdict(verdict: Verdict, text: &str) -> String {
    let style = match verdict {
        Verdict::Breaking => BAD,
        Verdict::Caution => WARNING,
        Verdict::Safe => GOOD,
    };
    styled(style, text)
}

fn rules(as_json: bool) -> String {
    if as_json {
        let rule = |rule: &Rule| json!({ "rule": rule.id(), "verdict": rule.verdict().name(), "reason": rule.reason() });
        return format!("{:#}\n", Rule::ALL.iter().map(rule).collect::<serde_json::Value>());
    }
    let mut list = String::new();
    for rule in Rule::ALL {
        let word = verdict(rule.verdict(), &format!("{:8}", rule.verdict().name()));
        let _ = writeln!(list, "{word}  {}\n{}", styled(STRONG, rule.id()), wrapped(rule.reason(), 10));
    }
    list
}
