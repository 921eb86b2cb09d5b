//! How often functions are computed where passes over a row follow each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::expr::graph::Graph;
use crate::expr::nest::is_dear;
use crate::expr::node::{Id, Node};

impl Graph {
    /// How many functions that cost more than to read a number are computed of each element, if nothing is kept from one pass over the
    /// elements to another: folds that need no other fold are one pass, those that need these the next, and outputs are passes of their own.
    pub fn functions_by_passes(&self) -> usize {
        let axes = self.axes();
        let mut levels: Vec<usize> = Vec::with_capacity(self.nodes.len());
        let mut passes: BTreeMap<(usize, bool), Vec<Id>> = BTreeMap::new();
        for node in &self.nodes {
            let level = node.operands().map(|id| levels[id.index()]).max().unwrap_or(0);
            if let Node::Fold(_, _, a) = node {
                passes.entry((level, false)).or_default().push(*a);
            }
            levels.push(level + usize::from(matches!(node, Node::Fold(..))));
        }
        for &id in self.outputs.iter().filter(|id| !axes[id.index()].is_empty()) {
            passes.entry((levels[id.index()], true)).or_default().push(id);
        }
        let of_pass = |mut pending: Vec<Id>| {
            let mut found = BTreeSet::new();
            while let Some(id) = pending.pop() {
                let node = self.nodes[id.index()];
                if !axes[id.index()].is_empty() && !matches!(node, Node::Fold(..)) && found.insert(id) {
                    pending.extend(node.operands());
                }
            }
            found.into_iter().filter(|id| is_dear(self.nodes[id.index()])).count()
        };
        passes.into_values().map(of_pass).sum()
    }
}

#[cfg(test)]
mod tests {
    use crate::axes::Axes;
    use crate::rows::{Each, trace_rows};
    use crate::scalar::Scalar;

    #[test]
    fn a_function_is_counted_in_each_pass_that_needs_it() {
        let (each, one) = (("x", Axes::FIRST), ("y", Axes::NONE));
        let count = |of: &dyn Fn(crate::Expr) -> Vec<crate::Expr>, outputs: &[(&str, Axes)]| {
            trace_rows(&[each], outputs, |x| of(x[0])).functions_by_passes()
        };
        assert_eq!(count(&|x| vec![x.exp().tanh()], &[("y", Axes::FIRST)]), 2);
        assert_eq!(count(&|x| vec![x.exp().sum().sqrt()], &[one]), 1);
        assert_eq!(count(&|x| vec![x.exp(), x.exp().sum()], &[("y", Axes::FIRST), ("z", Axes::NONE)]), 2);
        let softmax = |x: crate::Expr| {
            let e = (x - x.amax()).exp();
            e / e.sum()
        };
        // The exponential twice, and a quotient.
        assert_eq!(count(&|x| vec![softmax(x)], &[("y", Axes::FIRST)]), 3);
        assert_eq!(count(&|x| vec![softmax(x.tanh())], &[("y", Axes::FIRST)]), 6);
    }
}
