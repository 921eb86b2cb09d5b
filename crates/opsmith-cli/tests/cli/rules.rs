//! The rules of compatibility, each stated by pairs of definitions in `tests/compat`.
//!
//! A file is a sentence, an old and a new library in the definition language, and the changes that are expected, a line
//! each. It lies in the folder of the worst verdict. `UPDATE_EXPECTED=1` writes the lines anew; the folder says whether
//! they are right.

use std::collections::HashSet;
use std::fs;

use opsmith_cli::compat::{Change, Rule, compare};

use crate::pairs::pairs;

fn text(changes: &[Change]) -> String {
    let lines: String = changes.iter().map(|change| format!("{change}\n")).collect();
    if lines.is_empty() { "no change\n".to_owned() } else { lines }
}

#[test]
fn every_pair_is_judged_as_it_says() {
    let mut wrong = String::new();
    for pair in pairs() {
        let changes = compare(&pair.old.definitions, &pair.new.definitions);
        let got = text(&changes);
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            fs::write(&pair.path, format!("{}\nexpected\n{got}", pair.statement)).unwrap();
        } else if got != pair.expected {
            wrong += &format!("{}:\nexpected\n{}got\n{got}\n", pair.path.display(), pair.expected);
        }
        let worst = changes.iter().map(Change::verdict).min().map_or("safe", |verdict| verdict.name());
        if worst != pair.verdict() {
            wrong += &format!("{}: is {worst}\n{got}\n", pair.path.display());
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_rule_is_stated() {
    let stated: HashSet<Rule> = pairs()
        .iter()
        .flat_map(|pair| {
            compare(&pair.old.definitions, &pair.new.definitions).into_iter().map(|change| change.rule)
        })
        .collect();
    let missing: Vec<&str> =
        Rule::ALL.iter().filter(|rule| !stated.contains(rule)).map(|rule| rule.id()).collect();
    assert!(missing.is_empty(), "no pair in tests/compat states {}", missing.join(", "));
    assert!(pairs().len() >= 40, "{}", pairs().len());
}

#[test]
fn a_definition_is_compatible_with_itself() {
    for pair in pairs() {
        for side in [&pair.old.definitions, &pair.new.definitions] {
            assert_eq!(text(&compare(side, side)), "no change\n", "{}", pair.path.display());
        }
    }
}
