//! `opsmith compat`: tells safe changes of definitions from those that break users.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;

use crate::Outcome;
use crate::compat::{Change, Rule, Verdict, compare};
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
    for change in changes {
        let verdict = verdict(change.verdict(), &format!("{:8}", change.verdict().name()));
        let place = styled(STRONG, change.place());
        let detail = wrapped(&change.detail, 10);
        let reason = wrapped(change.rule.reason(), 10);
        let _ = write!(table, "\n{verdict}  {place}  {}\n", styled(FAINT, change.rule.id()));
        let _ = writeln!(table, "{detail}\n{}", styled(FAINT, reason));
    }
    let total = |verdict| count(changes, verdict);
    let (breaking, caution, safe) = (total(Verdict::Breaking), total(Verdict::Caution), total(Verdict::Safe));
    let _ = match changes.len() {
        0 => writeln!(table, "\n{}", verdict(Verdict::Safe, "no change")),
        _ => writeln!(table, "\n{breaking} breaking, {caution} to be looked at, {safe} safe"),
    };
    table
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
