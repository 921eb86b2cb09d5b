//! A part of a graph as a graph of its own.

use std::collections::BTreeSet;

use crate::expr::graph::{Argument, Graph};
use crate::expr::node::{Id, Node};

impl Graph {
    /// The part that computes `outputs` from what is given; and what of that it reads, in the order of its inputs.
    pub(crate) fn part<S: PartialEq>(
        &self,
        outputs: &[Id],
        given: impl Fn(Id) -> Option<S>,
    ) -> (Self, Vec<S>) {
        let mut inputs: Vec<S> = Vec::new();
        let mut nodes = self.nodes.clone();
        let mut needed: BTreeSet<Id> = outputs.iter().copied().collect();
        for index in (0..nodes.len()).rev() {
            let id = Id(index as u32);
            if !needed.contains(&id) {
                continue;
            }
            match given(id) {
                Some(source) => {
                    let known = inputs.iter().position(|other| *other == source);
                    let position = known.unwrap_or_else(|| {
                        inputs.push(source);
                        inputs.len() - 1
                    });
                    nodes[index] = Node::Input(position as u32);
                }
                None => needed.extend(nodes[index].operands()),
            }
        }
        let named = |letter: char, count: usize| {
            (0..count).map(|k| Argument::each(format!("{letter}{k}"))).collect::<Vec<_>>()
        };
        let arguments = (named('x', inputs.len()), named('y', outputs.len()));
        (Self::new(&nodes, outputs, self.attributes.clone(), arguments), inputs)
    }
}
