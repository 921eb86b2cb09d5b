//! Graphs with folds as passes over the rows, each a graph without.

use std::collections::{BTreeMap, BTreeSet};

use crate::axes::Axes;
use crate::expr::graph::{Argument, Fold, Graph, Id, Node, Unary};

/// A graph with folds, cut at them: what is computed in each pass over a row, and between the passes.
///
/// A pass computes at every position; of its results some are folded, some are outputs, and some are kept for later
/// passes, where they would cost more to compute again. Before each pass, numbers of which there is one for each row
/// are computed. All numbers of this kind that go from one to the other have an index, as have those that are kept.
///
/// ```
/// use opsmith_body::{Axes, Each, Passes, Scalar, trace_rows};
///
/// let graph = trace_rows(&[("x", Axes::FIRST)], &[("y", Axes::FIRST)], |x| {
///     let e = (x[0] - x[0].amax()).exp();
///     vec![e / e.sum()]
/// });
/// // The largest, the sum of the exponentials, the quotients.
/// assert_eq!(Passes::new(&graph, true).passes.len(), 3);
/// ```
#[derive(Clone, Debug)]
pub struct Passes {
    /// The passes, in order.
    pub passes: Vec<Pass>,
    /// How many numbers there are for each row: the inputs that are such first, in their order, then how many positions
    /// the row has, then what folds and passes give.
    pub ones: usize,
    /// How many numbers are kept at every position.
    pub kept: usize,
    /// For each output of which there is one for each row, its position and its index.
    pub row_outputs: Vec<(usize, usize)>,
}

/// A pass over a row, and what is computed before.
#[derive(Clone, Debug)]
pub struct Pass {
    /// What is computed for the row before the pass; the outputs go to `before_results`.
    pub before: Graph,
    /// The indices of its inputs.
    pub before_inputs: Vec<usize>,
    /// The indices of its results.
    pub before_results: Vec<usize>,
    /// What is computed at every position; nothing in a pass without results.
    pub each: Graph,
    /// What its inputs are.
    pub each_inputs: Vec<Source>,
    /// What becomes of its results.
    pub each_results: Vec<Target>,
}

/// What a pass reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The input of that position.
    Input(usize),
    /// The row's number of that index.
    One(usize),
    /// What an earlier pass kept under that index.
    Kept(usize),
}

/// What becomes of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Folded to the row's number of that index.
    Fold(Fold, usize),
    /// The output of that position.
    Output(usize),
    /// Kept under that index.
    Keep(usize),
}

/// The cost from which on a number is kept; an addition costs 1.
const KEPT_COST: u32 = 6;

impl Passes {
    /// Cuts a graph. Without `keep`, passes compute again whatever they need.
    pub fn new(graph: &Graph, keep: bool) -> Self {
        let graph = &graph.without_detached();
        let cutter = Cutter {
            graph,
            axes: graph.axes(),
            levels: levels(graph),
            ones: BTreeMap::new(),
            kept: BTreeMap::new(),
            computed: BTreeSet::new(),
            keep,
        };
        cutter.cut()
    }
}

/// After how many folds each node is known.
fn levels(graph: &Graph) -> Vec<usize> {
    let mut levels: Vec<usize> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let last = node.operands().map(|id| levels[id.index()]).max().unwrap_or(0);
        levels.push(last + usize::from(matches!(node, Node::Fold(..))));
    }
    levels
}

struct Cutter<'a> {
    graph: &'a Graph,
    axes: Vec<Axes>,
    levels: Vec<usize>,
    /// The indices of the numbers that there are for each row.
    ones: BTreeMap<Id, usize>,
    kept: BTreeMap<Id, usize>,
    /// What earlier passes have computed at every position.
    computed: BTreeSet<Id>,
    keep: bool,
}

/// What a pass is to compute.
type Roots = Vec<(Id, Target)>;

impl Cutter<'_> {
    fn cut(mut self) -> Passes {
        let row_inputs = self.graph.input_axes().filter(|axes| axes.is_empty()).count();
        let last = self.levels.iter().copied().max().unwrap_or(0);
        self.number_ones(row_inputs);
        let mut roots: Vec<Roots> = (0..=last).map(|level| self.roots(level)).collect();
        self.keep_what_is_dear(&mut roots);
        let passes = roots.iter().enumerate().map(|(level, roots)| self.pass(level, roots)).collect();
        let outputs = self.graph.outputs.iter().zip(self.graph.output_axes()).enumerate();
        let row_outputs = outputs.filter(|(_, (_, axes))| axes.is_empty());
        Passes {
            passes,
            ones: self.ones.values().copied().max().map_or(0, |index| index + 1).max(row_inputs + 1),
            kept: self.kept.len(),
            row_outputs: row_outputs.map(|(position, (id, _))| (position, self.ones[id])).collect(),
        }
    }

    fn node(&self, id: Id) -> Node {
        self.graph.nodes[id.index()]
    }

    /// Whether it is written as a number in whatever graph needs it.
    fn is_constant(&self, id: Id) -> bool {
        matches!(self.node(id), Node::Constant(_) | Node::Attribute(_))
    }

    fn is_one(&self, id: Id) -> bool {
        self.axes[id.index()].is_empty()
    }

    /// Gives an index to every number of which there is one for each row and that leaves the graph in which it is
    /// computed: inputs, folds, outputs, and what is used at every position. Masks do not; they are computed again.
    fn number_ones(&mut self, row_inputs: usize) {
        let mut position = 0;
        let mut of_input = Vec::new();
        for axes in self.graph.input_axes() {
            of_input.push(position);
            position += usize::from(axes.is_empty());
        }
        let mut next = row_inputs + 1;
        let mut leaving: BTreeSet<Id> = BTreeSet::new();
        for (index, node) in self.graph.nodes.iter().enumerate() {
            let id = Id(index as u32);
            match *node {
                Node::Input(position) if self.is_one(id) => {
                    self.ones.insert(id, of_input[position as usize]);
                }
                Node::Count(_) => {
                    self.ones.insert(id, row_inputs);
                }
                Node::Fold(..) => {
                    leaving.insert(id);
                }
                _ => {}
            }
            if !self.is_one(id) {
                leaving
                    .extend(node.operands().filter(|id| self.is_one(*id)).flat_map(|id| self.numbers_of(id)));
            }
        }
        let outputs = self.graph.outputs.iter().zip(self.graph.output_axes());
        leaving.extend(outputs.filter(|(id, axes)| axes.is_empty() || self.is_one(**id)).map(|(id, _)| *id));
        for id in leaving {
            let is_output = self.graph.outputs.contains(&id);
            if !self.ones.contains_key(&id) && (is_output || !self.is_constant(id)) {
                self.ones.insert(id, next);
                next += 1;
            }
        }
    }

    /// The number itself, or the numbers that a mask is computed from.
    fn numbers_of(&self, id: Id) -> Vec<Id> {
        if !self.node(id).is_mask() {
            return vec![id];
        }
        self.node(id).operands().flat_map(|id| self.numbers_of(id)).collect()
    }

    /// What the pass after so many folds gives: the next folds and the outputs that are known then.
    fn roots(&self, level: usize) -> Roots {
        let mut roots = Roots::new();
        for (index, node) in self.graph.nodes.iter().enumerate() {
            if let Node::Fold(op, _, a) = *node
                && self.levels[index] == level + 1
            {
                roots.push((a, Target::Fold(op, self.ones[&Id(index as u32)])));
            }
        }
        let outputs = self.graph.outputs.iter().zip(self.graph.output_axes()).enumerate();
        for (position, (id, axes)) in outputs {
            if !axes.is_empty() && self.levels[id.index()] == level {
                roots.push((*id, Target::Output(position)));
            }
        }
        roots
    }

    /// Lets passes keep what later ones need, where it is dear.
    fn keep_what_is_dear(&mut self, roots: &mut [Roots]) {
        let costs = self.costs();
        let mut passes: BTreeMap<Id, usize> = BTreeMap::new();
        for level in 0..roots.len() {
            let mut pending: Vec<Id> = roots[level].iter().map(|(id, _)| *id).collect();
            let mut seen = BTreeSet::new();
            while let Some(id) = pending.pop() {
                if self.is_one(id) || !seen.insert(id) {
                    continue;
                }
                let earlier = passes.get(&id).copied();
                if let Some(earlier) = earlier
                    && self.keep
                    && costs[id.index()] >= KEPT_COST
                    && !self.node(id).is_mask()
                {
                    if !self.kept.contains_key(&id) {
                        self.kept.insert(id, self.kept.len());
                        roots[earlier].push((id, Target::Keep(self.kept[&id])));
                    }
                    continue;
                }
                pending.extend(self.node(id).operands());
            }
            for id in seen {
                passes.entry(id).or_insert(level);
            }
        }
    }

    /// What it costs to compute each node at a position, from the inputs.
    fn costs(&self) -> Vec<u32> {
        let mut costs: Vec<u32> = Vec::with_capacity(self.graph.nodes.len());
        for (index, node) in self.graph.nodes.iter().enumerate() {
            let own = match node {
                _ if self.axes[index].is_empty() => 0,
                Node::Input(_) => 0,
                Node::Unary(Unary::Neg | Unary::Abs | Unary::Sign | Unary::Floor, _) => 1,
                Node::Unary(Unary::Sqrt | Unary::Rsqrt, _) => 5,
                Node::Unary(..) | Node::Binary(crate::Binary::Pow, ..) => 10,
                Node::Binary(crate::Binary::Div, ..) => 5,
                _ => 1,
            };
            let operands = node.operands().filter(|id| !self.is_one(*id));
            costs.push(operands.map(|id| costs[id.index()]).fold(own, u32::saturating_add));
        }
        costs
    }

    fn pass(&mut self, level: usize, roots: &Roots) -> Pass {
        let new: Vec<(Id, usize)> = self
            .ones
            .iter()
            .filter(|(id, _)| self.levels[id.index()] == level)
            .filter(|(id, _)| !matches!(self.node(**id), Node::Input(_) | Node::Count(_) | Node::Fold(..)))
            .map(|(id, index)| (*id, *index))
            .collect();
        let ids: Vec<Id> = new.iter().map(|(id, _)| *id).collect();
        // What is computed here is not read from where it goes.
        let given =
            |id: Id| self.ones.get(&id).filter(|_| !ids.contains(&id)).map(|index| Source::One(*index));
        let (before, before_inputs) = self.graph.part(&ids, given);
        let each_ids: Vec<Id> = roots.iter().map(|(id, _)| *id).collect();
        let kept_here =
            |index: usize| roots.iter().any(|(_, target)| matches!(target, Target::Keep(k) if *k == index));
        let given = |id: Id| {
            let kept = self.kept.get(&id).filter(|index| self.computed.contains(&id) && !kept_here(**index));
            match self.node(id) {
                Node::Input(position) if !self.is_one(id) => Some(Source::Input(position as usize)),
                _ => kept.map(|index| Source::Kept(*index)).or(self.ones.get(&id).map(|k| Source::One(*k))),
            }
        };
        let (each, each_inputs) = self.graph.part(&each_ids, given);
        self.computed.extend(roots.iter().filter(|(_, t)| matches!(t, Target::Keep(_))).map(|(id, _)| *id));
        let index = |source: &Source| match source {
            Source::One(index) => *index,
            Source::Input(_) | Source::Kept(_) => unreachable!("a row's numbers are computed from such"),
        };
        Pass {
            before,
            before_inputs: before_inputs.iter().map(index).collect(),
            before_results: new.iter().map(|(_, index)| *index).collect(),
            each,
            each_inputs,
            each_results: roots.iter().map(|(_, target)| *target).collect(),
        }
    }
}

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
