//! Equations in Einstein's notation.

use std::collections::BTreeMap;
use std::fmt;

use opsmith::prelude::*;

/// What names a dim: a letter, or a number for what `...` stands for, counted from the end.
pub(super) type Label = u16;

/// Where the numbers of what `...` stands for begin.
const DOTS: Label = 256;

/// The dims of one tensor: letters, and where `...` is among them.
#[derive(Default)]
struct Term {
    letters: Vec<Label>,
    dots: Option<usize>,
}

/// An equation.
pub(super) struct Equation {
    text: String,
    inputs: Vec<Term>,
    output: Term,
}

/// The dims of the tensors of a call.
pub(super) struct Labels {
    pub(super) inputs: Vec<Vec<Label>>,
    pub(super) output: Vec<Label>,
    pub(super) sizes: BTreeMap<Label, usize>,
}

impl fmt::Display for Equation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn error(text: &str, why: impl fmt::Display) -> Error {
    Error::invalid_argument(format!("`equation`, {text:?}, {why}")).naming("equation")
}

impl Term {
    fn read(text: &str, equation: &str) -> Result<Term> {
        let mut term = Term::default();
        let mut rest = text.trim();
        while let Some(first) = rest.chars().next() {
            if let Some(behind) = rest.strip_prefix("...") {
                if term.dots.replace(term.letters.len()).is_some() {
                    return Err(error(equation, "has `...` twice in one tensor"));
                }
                rest = behind;
            } else if first.is_ascii_alphabetic() {
                term.letters.push(first as Label);
                rest = &rest[1..];
            } else if first == ' ' {
                rest = &rest[1..];
            } else {
                return Err(error(
                    equation,
                    format_args!("has {first:?}, which is no letter, `...`, `,` or `->`"),
                ));
            }
        }
        Ok(term)
    }

    /// The labels, of which `...` stands for so many.
    fn labels(&self, dots: usize) -> Vec<Label> {
        let mut labels = self.letters.clone();
        if let Some(at) = self.dots {
            labels.splice(at..at, (0..dots).rev().map(|from_end| DOTS + from_end as Label));
        }
        labels
    }
}

impl Equation {
    pub(super) fn new(text: &str) -> Result<Equation> {
        let (left, right) = match text.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (text, None),
        };
        let inputs = left.split(',').map(|term| Term::read(term, text)).collect::<Result<Vec<_>>>()?;
        let all: Vec<Label> = inputs.iter().flat_map(|term| term.letters.iter().copied()).collect();
        let times = |letters: &[Label], letter| letters.iter().filter(|&&own| own == letter).count();
        let output = match right {
            Some(right) => Term::read(right, text)?,
            None => {
                let mut letters: Vec<Label> =
                    all.iter().copied().filter(|&own| times(&all, own) == 1).collect();
                letters.sort_unstable();
                Term { letters, dots: Some(0) }
            }
        };
        for &letter in &output.letters {
            let name = char::from(letter as u8);
            if times(&output.letters, letter) > 1 {
                return Err(error(text, format_args!("has {name:?} twice in the output")));
            }
            if times(&all, letter) == 0 {
                return Err(error(text, format_args!("has {name:?} in the output and in no input")));
            }
        }
        Ok(Equation { text: text.to_owned(), inputs, output })
    }

    /// The labels of tensors of these ranks, of which no size is known.
    pub(super) fn labels(&self, ranks: &[usize]) -> Result<Labels> {
        let text = &self.text;
        if self.inputs.len() != ranks.len() {
            return Err(error(
                text,
                format_args!("is of {} tensors, got {}", self.inputs.len(), ranks.len()),
            ));
        }
        let mut most = 0;
        let mut inputs = Vec::new();
        for (at, (term, &rank)) in self.inputs.iter().zip(ranks).enumerate() {
            let fits = |rest: &usize| term.dots.is_some() || *rest == 0;
            let Some(dots) = rank.checked_sub(term.letters.len()).filter(fits) else {
                let count = term.letters.len();
                return Err(error(text, format_args!("names {count} dims of tensor {at}, which has {rank}")));
            };
            most = most.max(dots);
            inputs.push(term.labels(dots));
        }
        Ok(Labels { inputs, output: self.output.labels(most), sizes: BTreeMap::new() })
    }
}
