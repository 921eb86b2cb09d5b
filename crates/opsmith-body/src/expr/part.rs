//! A part of a graph as a graph of its own.

use std::collections::{BTreeMap, BTreeSet};

use crate::expr::graph::{Argument, Graph};
use crate::expr::node::{Id, Node};

impl Graph {
    /// The inputs that are masks which nothing but the choices of a `select` depends on, alone or with other masks.
    pub(crate) fn choosing_inputs(&self) -> Vec<usize> {
        let mut chooses = vec![true; self.nodes.len()];
        self.outputs.iter().for_each(|id| chooses[id.index()] = false);
        for (index, node) in self.nodes.iter().enumerate().rev() {
            for (place, id) in node.operands().enumerate() {
                chooses[id.index()] &= match node {
                    Node::Select(..) => place == 0,
                    Node::And(..) => chooses[index],
                    _ => false,
                };
            }
        }
        let is_read = |id: usize| self.nodes.iter().any(|node| node.operands().any(|own| own.index() == id));
        let own = |(index, node): (usize, &Node)| match node {
            Node::Input(position) if chooses[index] && is_read(index) => Some(*position as usize),
            _ => None,
        };
        self.nodes.iter().enumerate().filter_map(own).collect()
    }

    /// The graph where such inputs are true everywhere, which does not read them.
    pub(crate) fn chosen_by(&self, inputs: &[usize]) -> Self {
        // What stands for each node; nothing for a mask that is true.
        let mut places: BTreeMap<Id, Option<Id>> = BTreeMap::new();
        let mut nodes = self.nodes.clone();
        for (index, node) in nodes.iter_mut().enumerate() {
            let id = Id(index as u32);
            let at = |id: Id| places.get(&id).copied().unwrap_or(Some(id));
            let place = match *node {
                Node::Input(position) if inputs.contains(&(position as usize)) => None,
                Node::And(a, b) if at(a).is_none() => at(b),
                Node::And(a, b) if at(b).is_none() => at(a),
                Node::Select(mask, yes, _) if at(mask).is_none() => at(yes),
                own => {
                    *node = own.with_operands(|id| at(id).unwrap_or(id));
                    Some(id)
                }
            };
            places.insert(id, place);
        }
        let outputs: Vec<Id> = self.outputs.iter().map(|id| places[id].unwrap_or(*id)).collect();
        Self::new(&nodes, &outputs, self.attributes.clone(), (self.inputs.clone(), self.results.clone()))
    }

    /// Whether an output is 0 wherever one of some inputs is false.
    pub(crate) fn is_chosen(&self, output: usize, inputs: &[usize]) -> bool {
        let Node::Select(mask, _, no) = self.nodes[self.outputs[output].index()] else { return false };
        let mut masks = vec![mask];
        while let Some(mask) = masks.pop() {
            match self.nodes[mask.index()] {
                Node::Input(position) if inputs.contains(&(position as usize)) => {
                    return self.nodes[no.index()].constant() == Some(0.0);
                }
                Node::And(a, b) => masks.extend([a, b]),
                _ => {}
            }
        }
        false
    }

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
