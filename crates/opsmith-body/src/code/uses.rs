//! When each vector of a line is still read.

use super::line::{Op, Value};

/// The readings of each vector, in order: by the operations that are so far in the line, and at its end.
pub(super) struct Uses {
    all: Vec<usize>,
    /// Of each vector those that are left, as the first of them and the one after the last.
    left: Vec<(usize, usize)>,
}

impl Uses {
    /// Of a line with these results, each of which is read when it is there or, if it is late, at the end.
    pub(super) fn new(ops: &[Op], results: &[(Value, bool)]) -> Self {
        let mut left = vec![(0, 0); ops.len()];
        for (value, _) in results {
            left[value.0 as usize].1 += 1;
        }
        // What reads a vector comes after it, so that it is known whether that is needed itself.
        for index in (0..ops.len()).rev() {
            if left[index].1 > 0 {
                ops[index].operands().for_each(|operand| left[operand.0 as usize].1 += 1);
            }
        }
        let is_live = |left: &[(usize, usize)], index: usize| left[index].1 > left[index].0;
        let mut first = 0;
        for (begin, end) in &mut left {
            let count = *end;
            (*begin, *end) = (first, first + count);
            first += count;
        }
        let mut uses = Self { all: vec![0; first], left };
        let mut next: Vec<usize> = uses.left.iter().map(|(begin, _)| *begin).collect();
        let mut add = |value: Value, when: usize| {
            uses.all[next[value.0 as usize]] = when;
            next[value.0 as usize] += 1;
        };
        let results =
            |late: bool| results.iter().filter(move |(_, own)| *own == late).map(|(value, _)| *value);
        results(false).for_each(|value| add(value, value.0 as usize));
        for index in (0..ops.len()).filter(|index| is_live(&uses.left, *index)) {
            ops[index].operands().for_each(|operand| add(operand, index));
        }
        results(true).for_each(|value| add(value, ops.len()));
        uses
    }

    /// How often it is still read.
    pub(super) fn left(&self, value: Value) -> usize {
        let (begin, end) = self.left[value.0 as usize];
        end - begin
    }

    /// When it is read next, if it is.
    pub(super) fn next(&self, value: Value) -> Option<usize> {
        let (begin, end) = self.left[value.0 as usize];
        (begin < end).then(|| self.all[begin])
    }

    /// It has been read once more.
    pub(super) fn take(&mut self, value: Value) {
        let (begin, end) = &mut self.left[value.0 as usize];
        *begin = (*begin + 1).min(*end);
    }
}
