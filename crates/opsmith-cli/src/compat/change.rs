//! One change, and how it reads.

use std::fmt;

use serde_json::{Value, json};

use super::rules::{Rule, Verdict};

/// What of a definition has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// The library, or an op as a whole.
    Whole,
    /// The input of this name.
    Input(String),
    /// The output of this name.
    Output(String),
    /// The attribute of this name.
    Attr(String),
    /// The shape signature.
    Shape,
    /// The free axes.
    Parallel,
    /// What is declared of the gradient.
    Gradient,
    /// The kernels of this device.
    Kernels(String),
}

impl Part {
    /// The kind of part, and its name where it has one.
    fn words(&self) -> (&'static str, Option<&str>) {
        match self {
            Part::Whole => ("whole", None),
            Part::Input(name) => ("input", Some(name)),
            Part::Output(name) => ("output", Some(name)),
            Part::Attr(name) => ("attribute", Some(name)),
            Part::Shape => ("shape", None),
            Part::Parallel => ("free axes", None),
            Part::Gradient => ("gradient", None),
            Part::Kernels(device) => ("kernels", Some(device)),
        }
    }
}

/// One change from an old definition to a new one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The op, or the library where it is that which has changed.
    pub subject: String,
    /// What of it.
    pub part: Part,
    /// What kind of change it is; this says the verdict and the reason.
    pub rule: Rule,
    /// What was and what is: `the default was 1, is 2`.
    pub detail: String,
}

impl Change {
    /// Whether it is safe.
    pub fn verdict(&self) -> Verdict {
        self.rule.verdict()
    }

    /// The op and the part: ``ZeroOut, attribute `T` ``.
    pub fn place(&self) -> String {
        let subject = &self.subject;
        match self.part.words() {
            ("whole", _) => subject.clone(),
            ("kernels", Some(device)) => format!("{subject}, kernels on {device}"),
            (kind, Some(name)) => format!("{subject}, {kind} `{name}`"),
            (kind, None) => format!("{subject}, {kind}"),
        }
    }

    /// The change as JSON: `verdict`, `rule`, `op`, `part`, `name`, `detail` and `reason`.
    pub fn to_json(&self) -> Value {
        let (part, name) = self.part.words();
        json!({
            "verdict": self.verdict().name(),
            "rule": self.rule.id(),
            "subject": self.subject,
            "part": part,
            "name": name,
            "detail": self.detail,
            "reason": self.rule.reason(),
        })
    }
}

/// On one line, for files: ``breaking attr-default-changed | ZeroOut, attribute `a` | the default was 1, is 2``.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} | {} | {}", self.verdict().name(), self.rule.id(), self.place(), self.detail)
    }
}

/// The changes of one op.
pub(super) struct Changes<'a> {
    pub(super) subject: &'a str,
    pub(super) list: &'a mut Vec<Change>,
}

impl Changes<'_> {
    pub(super) fn add(&mut self, rule: Rule, part: Part, detail: impl Into<String>) {
        let (subject, detail) = (self.subject.to_owned(), detail.into());
        self.list.push(Change { subject, part, rule, detail });
    }
}
