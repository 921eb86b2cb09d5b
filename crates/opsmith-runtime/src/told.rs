//! What a library has told of its ops, kept: it tells the same again, and a graph asks it of every node.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use opsmith_core::attr::TensorValue;
use opsmith_core::fork::Mutex;
use opsmith_core::shape::Constraint;
use opsmith_core::{AttrValue, DType, Shape};

use crate::program::OpProgram;

/// As many answers are kept; then all go, so that attributes and shapes that always differ do not fill the memory.
const MOST_KEPT: usize = 1 << 12;

/// Attributes by name.
pub(crate) type Attrs = Arc<[(String, AttrValue)]>;

/// What an op would give.
#[derive(Debug, Clone, PartialEq)]
pub struct Inferred {
    /// For each output of the definition, the dtypes and shapes of its tensors.
    pub outputs: Vec<Vec<(DType, Shape)>>,
    /// What was taken for granted of dims that are not known.
    pub constraints: Vec<Constraint>,
}

/// What shape inference is told of a tensor: its dtype, its shape, and its value where that is known and small.
pub(crate) type Known = (DType, Shape, Option<TensorValue>);

/// An op, by its position, with all that shape inference is told of a call.
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Call {
    pub(crate) op: usize,
    /// For each input of the definition its tensors.
    pub(crate) inputs: Vec<Option<Vec<Known>>>,
    pub(crate) attrs: Vec<(String, AttrValue)>,
}

/// Answers to questions.
pub(crate) struct Told<Q, A>(Mutex<HashMap<Q, A>>);

impl<Q, A> Default for Told<Q, A> {
    fn default() -> Self {
        Told(Mutex::new(HashMap::new()))
    }
}

impl<Q: Eq + Hash, A: Clone> Told<Q, A> {
    /// The answer to a question that was asked before.
    pub(crate) fn get(&self, question: &Q) -> Option<A> {
        self.0.lock().get(question).cloned()
    }

    /// Keeps an answer.
    pub(crate) fn keep(&self, question: Q, answer: A) {
        let mut known = self.0.lock();
        let old = if known.len() < MOST_KEPT { HashMap::new() } else { std::mem::take(&mut *known) };
        known.insert(question, answer);
        drop(known);
        drop(old);
    }
}

/// What a library has told: programs of ops for attributes and a dtype of floats, and the dtypes and shapes of outputs.
#[derive(Default)]
pub(crate) struct Answers {
    pub(crate) programs: Told<(usize, DType, Attrs), Option<Arc<OpProgram>>>,
    pub(crate) inferred: Told<Call, Inferred>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_kept_and_are_not_too_many() {
        let told = Told::default();
        for question in 0..MOST_KEPT {
            told.keep(question, -(question as i64));
        }
        assert_eq!((told.get(&7), told.get(&MOST_KEPT)), (Some(-7), None));
        told.keep(MOST_KEPT, 1);
        assert_eq!((told.get(&7), told.get(&MOST_KEPT)), (None, Some(1)));
    }
}
