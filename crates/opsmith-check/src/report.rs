//! What came of the checks.

use std::fmt::Write;

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
    /// Of an op that is a gradient, the name of the op whose gradient it is.
    pub gradient_of: Option<String>,
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

    /// The report as a table: a row for each op and property, and below one that failed what is wrong.
    pub fn table(&self, look: &impl Look) -> String {
        let head = look.styled(Emphasis::Strong, &self.library);
        let mut table = format!("{head} {}\n", look.styled(Emphasis::Faint, &format!("seed {}", self.seed)));
        let mut op = "";
        for row in &self.rows {
            if row.op != op {
                op = &row.op;
                let source = row.gradient_of.iter().map(|source| format!(", the gradient of {source}"));
                let source = look.styled(Emphasis::Faint, &source.collect::<String>());
                let _ = writeln!(table, "\n{}{source}", look.styled(Emphasis::Strong, op));
            }
            row.write(&mut table, look);
        }
        let failed = self.count("failed");
        let sum =
            format!("{} passed, {failed} failed, {} skipped", self.count("passed"), self.count("skipped"));
        let emphasis = if failed == 0 { Emphasis::Good } else { Emphasis::Bad };
        let _ = writeln!(table, "\n{}", look.styled(emphasis, &sum));
        table
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
            if let Some(source) = &row.gradient_of {
                json["gradient_of"] = source.as_str().into();
            }
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

/// What a part of a report is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Emphasis {
    /// A name.
    Strong,
    /// A detail.
    Faint,
    /// Right.
    Good,
    /// Wrong.
    Bad,
}

/// How a table looks: colours and line breaks are up to who shows it.
pub trait Look {
    /// The text so that it stands out, or does not.
    fn styled(&self, emphasis: Emphasis, text: &str) -> String;
    /// The text in lines, each behind `indent` spaces.
    fn wrapped(&self, text: &str, indent: usize) -> String;
}

/// No colours and no line breaks.
#[derive(Debug, Clone, Copy)]
pub struct Plain;

impl Look for Plain {
    fn styled(&self, _: Emphasis, text: &str) -> String {
        text.to_owned()
    }

    fn wrapped(&self, text: &str, indent: usize) -> String {
        format!("{}{text}", " ".repeat(indent))
    }
}

/// How many columns a row has for what is said at its end; what is longer has lines of its own.
const NOTE: usize = 80 - 24;

impl Row {
    fn write(&self, table: &mut String, look: &impl Look) {
        let cases = || format!("{} {}", self.cases, if self.cases == 1 { "case" } else { "cases" });
        let (emphasis, note, more) = match &self.verdict {
            Verdict::Passed => (Emphasis::Good, cases(), ""),
            Verdict::Skipped(why) if why.chars().count() <= NOTE => (Emphasis::Faint, why.clone(), ""),
            Verdict::Skipped(why) => {
                let (what, more) = why.split_once(": ").unwrap_or(("", why));
                (Emphasis::Faint, what.to_owned(), more)
            }
            Verdict::Failed(_) => (Emphasis::Bad, cases(), ""),
        };
        let verdict = look.styled(emphasis, &format!("{:7}", self.verdict.name()));
        let note = look.styled(Emphasis::Faint, &note);
        let _ = writeln!(table, "  {verdict}  {:11}  {note}", self.property.name());
        if !more.is_empty() {
            let _ = writeln!(table, "{}", look.styled(Emphasis::Faint, &look.wrapped(more, 11)));
        }
        if let Verdict::Failed(Failure { message, python }) = &self.verdict {
            // The line of Python stays one line, to be copied.
            let python = look.styled(Emphasis::Faint, python);
            let _ = writeln!(table, "{}\n           {python}", look.wrapped(message, 11));
        }
    }
}
