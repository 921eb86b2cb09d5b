//! What came of the checks.

use serde_json::{Value, json};

use crate::properties::Property;

/// What came of the checks of a library.
#[derive(Debug, Clone)]
pub struct Report {
    /// The library's name.
    pub library: String,
    /// The seed that the cases were generated from.
    pub seed: u64,
    /// A row for each op and property.
    pub rows: Vec<Row>,
}

/// What came of checking one property of one op.
#[derive(Debug, Clone)]
pub struct Row {
    /// The op's name, CamelCase.
    pub op: String,
    /// What was checked.
    pub property: Property,
    /// Whether it holds.
    pub verdict: Verdict,
    /// In how many cases it was seen to hold.
    pub cases: u32,
}

/// Whether a property holds.
#[derive(Debug, Clone)]
pub enum Verdict {
    /// In all cases.
    Passed,
    /// There was nothing to check, and why.
    Skipped(String),
    /// It does not.
    Failed(Failure),
}

/// The smallest case that was found in which a property does not hold.
#[derive(Debug, Clone)]
pub struct Failure {
    /// What is wrong.
    pub message: String,
    /// A line of Python that makes the call.
    pub python: String,
}

impl Verdict {
    /// `passed`, `skipped` or `failed`.
    pub fn name(&self) -> &'static str {
        match self {
            Verdict::Passed => "passed",
            Verdict::Skipped(_) => "skipped",
            Verdict::Failed(_) => "failed",
        }
    }
}

impl Report {
    /// The rows that failed.
    pub fn failures(&self) -> impl Iterator<Item = (&Row, &Failure)> {
        self.rows.iter().filter_map(|row| match &row.verdict {
            Verdict::Failed(failure) => Some((row, failure)),
            _ => None,
        })
    }

    /// How many rows have a verdict of this name.
    pub fn count(&self, verdict: &str) -> usize {
        self.rows.iter().filter(|row| row.verdict.name() == verdict).count()
    }

    /// The report for programs.
    pub fn to_json(&self) -> Value {
        let row = |row: &Row| {
            let mut json = json!({
                "op": row.op,
                "property": row.property.name(),
                "verdict": row.verdict.name(),
                "cases": row.cases,
            });
            match &row.verdict {
                Verdict::Passed => {}
                Verdict::Skipped(why) => json["why"] = why.as_str().into(),
                Verdict::Failed(failure) => {
                    json["message"] = failure.message.as_str().into();
                    json["python"] = failure.python.as_str().into();
                }
            }
            json
        };
        json!({
            "library": self.library,
            "seed": self.seed,
            "passed": self.count("passed"),
            "failed": self.count("failed"),
            "skipped": self.count("skipped"),
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}
