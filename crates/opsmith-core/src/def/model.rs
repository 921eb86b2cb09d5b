//! A parsed and validated definition, as every framework reads it.

use std::ops::Bound;

use crate::DType;
use crate::attr::{AttrType, AttrValue};

/// A definition that is well formed: unique names, every reference resolved, defaults within their constraints.
#[derive(Debug, Clone, PartialEq)]
pub struct Signature {
    /// The op's name, CamelCase: `PairwiseManhattanDistance`.
    pub name: String,
    /// The tensors it takes, in order.
    pub inputs: Vec<ArgDef>,
    /// The tensors it gives, in order.
    pub outputs: Vec<ArgDef>,
    /// Its attributes, in order, those inferred from inputs among them.
    pub attrs: Vec<AttrDef>,
    /// What it does, for a person; Markdown.
    pub doc: String,
    /// Whether two calls with the same inputs may differ, or a call has effects: never folded, merged or dropped.
    pub stateful: bool,
}

/// An input or output of an op: one tensor, or a list of them.
#[derive(Debug, Clone, PartialEq)]
pub struct ArgDef {
    /// Its name, snake_case by convention.
    pub name: String,
    /// Where its dtype, or the dtypes of its elements, come from.
    pub dtype: ArgType,
    /// How many tensors it holds.
    pub count: ArgCount,
    /// `Ref(T)`: an input changed in place.
    pub is_ref: bool,
    /// An input that may be absent, or an output that need not be computed.
    pub optional: bool,
    /// An output that serves the gradient only; wrappers drop it.
    pub saved: bool,
    /// What it holds, for a person.
    pub doc: String,
}

/// Where the dtype of an argument comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgType {
    /// Written in the definition: `x: float`.
    Fixed(DType),
    /// The `type` attribute at this index: `x: T`.
    Attr(usize),
    /// The `list(type)` attribute at this index gives one dtype per element: `x: T` with `T: list(type)`.
    List(usize),
}

/// How many tensors an argument holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgCount {
    /// One tensor, not a list.
    One,
    /// As many as the `int` attribute at this index says: `x: N * T`.
    Attr(usize),
    /// As many as the `list(type)` attribute at this index has elements.
    Types(usize),
}

impl ArgCount {
    /// Whether the argument is a list of tensors.
    pub fn is_list(self) -> bool {
        self != ArgCount::One
    }
}

/// An attribute of an op.
#[derive(Debug, Clone, PartialEq)]
pub struct AttrDef {
    /// Its name; capitalised by convention when it is inferred from inputs.
    pub name: String,
    /// The type of its value.
    pub ty: AttrType,
    /// The values that it, or each element of the list, may have.
    pub allowed: Option<Allowed>,
    /// Where the values of an `int` or `float` begin; excluded only of a `float`.
    pub min: Bound<AttrValue>,
    /// Where they end.
    pub max: Bound<AttrValue>,
    /// The least number of elements of a list.
    pub min_len: Option<usize>,
    /// The value when none is given.
    pub default: Option<AttrValue>,
    /// Whether the inputs decide the value, so that callers do not pass it.
    pub inferred: bool,
    /// What it does, for a person.
    pub doc: String,
}

impl AttrDef {
    /// An attribute of which nothing else is said: any value of the type, which callers pass.
    pub fn new(name: impl Into<String>, ty: AttrType) -> AttrDef {
        AttrDef {
            name: name.into(),
            ty,
            allowed: None,
            min: Bound::Unbounded,
            max: Bound::Unbounded,
            min_len: None,
            default: None,
            inferred: false,
            doc: String::new(),
        }
    }
}

/// A closed set of values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allowed {
    /// One of these strings: `{'apple', 'orange'}`.
    Strings(Vec<String>),
    /// One of these integers: `{1, 2, 4}`.
    Ints(Vec<i64>),
    /// One of these dtypes: `{int32, float}`, sets expanded.
    Types(Vec<DType>),
}

impl Signature {
    /// The index of the attribute of this name.
    pub fn attr_index(&self, name: &str) -> Option<usize> {
        self.attrs.iter().position(|attr| attr.name == name)
    }

    /// The index of the input of this name.
    pub fn input_index(&self, name: &str) -> Option<usize> {
        self.inputs.iter().position(|arg| arg.name == name)
    }

    /// The index of the output of this name.
    pub fn output_index(&self, name: &str) -> Option<usize> {
        self.outputs.iter().position(|arg| arg.name == name)
    }

    /// The op's name in snake_case, as wrappers spell it: `pairwise_manhattan_distance`.
    pub fn snake_name(&self) -> String {
        snake_case(&self.name)
    }
}

/// `PairwiseManhattanDistance` → `pairwise_manhattan_distance`, `MatMul2D` → `mat_mul2d`, `NMSOp` → `nms_op`.
///
/// The rule is that of TensorFlow's generated wrappers: an underscore before a capital that follows a lower-case
/// letter or digit, or that begins a word after a run of capitals.
pub fn snake_case(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut snake = String::with_capacity(name.len() + 4);
    for (i, &letter) in letters.iter().enumerate() {
        if letter.is_ascii_uppercase() && i > 0 {
            let before = letters[i - 1];
            let after = letters.get(i + 1);
            let starts_word = before.is_ascii_lowercase()
                || (before.is_ascii_digit() && after.is_some_and(|c| c.is_ascii_lowercase()));
            let ends_run = before.is_ascii_uppercase() && after.is_some_and(|c| c.is_ascii_lowercase());
            if starts_word || ends_run {
                snake.push('_');
            }
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_snake_case() {
        for (camel, snake) in [
            ("ZeroOut", "zero_out"),
            ("PairwiseManhattanDistance", "pairwise_manhattan_distance"),
            ("MatMul", "mat_mul"),
            ("NMSOp", "nms_op"),
            ("ZeroOut2", "zero_out2"),
        ] {
            assert_eq!(snake_case(camel), snake);
        }
    }
}
