//! The graph: nodes, each on earlier ones, and outputs.

use std::collections::BTreeSet;

use crate::axes::{Axes, Axis};
use crate::expr::node::{Fold, Id, Node};
use crate::scalar::Scalar;

/// What a body computes, as [`trace`](crate::trace) recorded it. Equal subexpressions are one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    pub(crate) nodes: Vec<Node>,
    pub(crate) outputs: Vec<Id>,
    pub(crate) attributes: Vec<(&'static str, f64)>,
    pub(crate) inputs: Vec<Argument>,
    pub(crate) results: Vec<Argument>,
    /// The names of the axes, for printing; none where there is one at most.
    pub(crate) axis_names: Vec<String>,
    /// Whether each function that was traced is a node.
    pub(crate) is_faithful: bool,
    /// Which axes may be no longer than which others, in a graph that was traced.
    pub(crate) limits: Vec<(Axis, Axis)>,
    /// The axes whose positions such a graph tells apart.
    pub(crate) exact: Axes,
    /// The positions that such a graph takes numbers from.
    pub(crate) taken: Vec<(Axis, usize)>,
    /// The axes along which such a graph adds up or multiplies what was folded along them.
    pub(crate) refolded: Axes,
    /// The numbers that such a graph says are to be saved for gradients.
    pub(crate) saved: Vec<Id>,
}

/// An input or an output of a graph.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Argument {
    pub(crate) name: String,
    pub(crate) axes: Axes,
}

impl Argument {
    /// An argument of a body without folds.
    pub(crate) fn each(name: String) -> Self {
        Self { name, axes: Axes::FIRST }
    }

    /// The gradient of it.
    pub(crate) fn gradient(&self) -> Self {
        Self { name: format!("{}_grad", self.name), axes: self.axes }
    }
}

/// What a node is while a graph is computed.
#[derive(Clone, Copy)]
pub(crate) enum Value<S: Scalar> {
    Number(S),
    Mask(S::Mask),
}

impl<S: Scalar> Value<S> {
    pub(crate) fn number(self) -> S {
        match self {
            Self::Number(number) => number,
            Self::Mask(_) => unreachable!("a graph computes numbers from numbers"),
        }
    }

    pub(crate) fn mask(self) -> S::Mask {
        match self {
            Self::Mask(mask) => mask,
            Self::Number(_) => unreachable!("a graph selects by masks"),
        }
    }
}

impl Graph {
    /// A graph of the nodes that the outputs need.
    pub(crate) fn new(
        nodes: &[Node],
        outputs: &[Id],
        attributes: Vec<(&'static str, f64)>,
        arguments: (Vec<Argument>, Vec<Argument>),
    ) -> Self {
        let mut needed: BTreeSet<Id> = outputs.iter().copied().collect();
        for index in (0..nodes.len()).rev() {
            if needed.contains(&Id(index as u32)) {
                needed.extend(nodes[index].operands());
            }
        }
        let needed: Vec<Id> = needed.into_iter().collect();
        let renumbered = |id: Id| Id(needed.partition_point(|n| *n < id) as u32);
        Self {
            nodes: needed.iter().map(|id| nodes[id.index()].with_operands(renumbered)).collect(),
            outputs: outputs.iter().map(|id| renumbered(*id)).collect(),
            attributes,
            inputs: arguments.0,
            results: arguments.1,
            axis_names: Vec::new(),
            is_faithful: true,
            limits: Vec::new(),
            exact: Axes::NONE,
            taken: Vec::new(),
            refolded: Axes::NONE,
            saved: Vec::new(),
        }
    }

    /// Whether the graph computes what the traced body does, function by function: it used none that is rounded once
    /// as a whole and more often as several nodes, as `mul_add` is.
    pub fn is_faithful(&self) -> bool {
        self.is_faithful
    }

    /// The nodes; each comes after those that it is computed from.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The nodes of the outputs.
    pub fn outputs(&self) -> &[Id] {
        &self.outputs
    }

    /// The attributes: names, and the values that the body had when it was traced.
    pub fn attributes(&self) -> &[(&'static str, f64)] {
        &self.attributes
    }

    /// How many inputs there are.
    pub fn input_count(&self) -> usize {
        self.inputs.len()
    }

    /// The graph with other names than `x0`, `x1`, … and `y0`, `y1`, …, for printing.
    ///
    /// # Panics
    /// If there are more or fewer names than inputs and outputs.
    #[must_use]
    pub fn with_names(mut self, inputs: &[&str], outputs: &[&str]) -> Self {
        assert_eq!(inputs.len(), self.inputs.len(), "one name for each input");
        assert_eq!(outputs.len(), self.results.len(), "one name for each output");
        let named = self.inputs.iter_mut().zip(inputs).chain(self.results.iter_mut().zip(outputs));
        for (argument, name) in named {
            argument.name = (*name).to_owned();
        }
        self
    }

    /// The graph with names of its axes, for printing.
    #[must_use]
    pub fn with_axis_names(mut self, names: &[&str]) -> Self {
        self.axis_names = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    /// Which axes may be no longer than which others, of a graph that was traced.
    pub fn limits(&self) -> &[(Axis, Axis)] {
        &self.limits
    }

    /// The axes whose positions such a graph tells apart: numbers have to hold them exactly.
    pub fn exact(&self) -> Axes {
        self.exact
    }

    /// The positions that such a graph takes numbers from, by [`Indexed::at`](crate::Indexed::at): there have to be some.
    pub fn taken(&self) -> &[(Axis, usize)] {
        &self.taken
    }

    /// The axes along which such a graph adds up or multiplies what has been folded along them: each number as often as there are
    /// positions.
    pub fn refolded_axes(&self) -> Axes {
        self.refolded
    }

    /// The graph with some of its outputs, by position, and all inputs.
    ///
    /// # Panics
    /// If there is no such output.
    #[must_use]
    pub fn with_outputs(&self, outputs: &[usize]) -> Self {
        let ids: Vec<Id> = outputs.iter().map(|output| self.outputs[*output]).collect();
        let results = outputs.iter().map(|output| self.results[*output].clone()).collect();
        Self::new(&self.nodes, &ids, self.attributes.clone(), (self.inputs.clone(), results))
    }

    /// The axes that each input lies on.
    pub fn input_axes(&self) -> impl Iterator<Item = Axes> {
        self.inputs.iter().map(|argument| argument.axes)
    }

    /// The axes that each output lies on.
    pub fn output_axes(&self) -> impl Iterator<Item = Axes> {
        self.results.iter().map(|argument| argument.axes)
    }

    /// The axes that what was computed for each output lies on, which may be fewer than those of the output.
    pub fn result_axes(&self) -> Vec<Axes> {
        let axes = self.axes();
        self.outputs.iter().map(|id| axes[id.index()]).collect()
    }

    /// The axes along which a position is looked for on the way to an output: that of the largest or smallest.
    pub fn position_axes(&self, output: usize) -> Axes {
        let graph = self.with_outputs(&[output]);
        let is_place = |id: Id, axis: Axis| match graph.nodes[id.index()] {
            Node::Select(_, place, _) => graph.nodes[place.index()] == Node::Index(axis),
            _ => false,
        };
        let axis = |node: &Node| match *node {
            Node::Fold(Fold::Min, axis, a) if is_place(a, axis) => Axes::of(axis),
            _ => Axes::NONE,
        };
        graph.nodes.iter().map(axis).fold(Axes::NONE, Axes::union)
    }

    /// The axes that folds, sizes and positions are of.
    pub fn used_axes(&self) -> Axes {
        let own = |node: &Node| match *node {
            Node::Fold(_, axis, _) | Node::Count(axis) | Node::Index(axis) => Axes::of(axis),
            _ => Axes::NONE,
        };
        self.nodes.iter().map(own).fold(Axes::NONE, Axes::union)
    }

    /// Whether axes matter: the graph has folds or positions, or inputs and outputs that lie on different axes.
    pub fn has_axes(&self) -> bool {
        let is_one = |node: &Node| matches!(node, Node::Fold(..) | Node::Count(_) | Node::Index(_));
        let mut all = self.input_axes().chain(self.output_axes());
        self.nodes.iter().any(is_one) || all.any(|axes| axes != Axes::FIRST)
    }

    /// The graph without marks for derivatives.
    pub fn without_detached(&self) -> Self {
        let mut places: Vec<Id> = Vec::with_capacity(self.nodes.len());
        let mut nodes = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            match *node {
                Node::Detached(a) => places.push(places[a.index()]),
                _ => {
                    nodes.push(node.with_operands(|id| places[id.index()]));
                    places.push(Id(nodes.len() as u32 - 1));
                }
            }
        }
        let outputs: Vec<Id> = self.outputs.iter().map(|id| places[id.index()]).collect();
        Self::new(&nodes, &outputs, self.attributes.clone(), (self.inputs.clone(), self.results.clone()))
    }

    /// The axes that a node lies on.
    pub fn axes_of(&self, id: Id) -> Axes {
        self.axes()[id.index()]
    }

    /// The axes that each node lies on.
    pub(crate) fn axes(&self) -> Vec<Axes> {
        let mut axes: Vec<Axes> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            axes.push(node.axes(|position| self.inputs[position as usize].axes, |id| axes[id.index()]));
        }
        axes
    }

    /// How many positions the node has that has the most, for axes of these sizes.
    pub fn most_positions(&self, sizes: &[usize]) -> usize {
        let count = |axes: Axes| axes.iter().map(|axis| sizes[axis.index()]).fold(1, usize::saturating_mul);
        self.axes().into_iter().map(count).max().unwrap_or(0)
    }

    /// Computes the outputs from the inputs, with the attributes' traced values, in any kind of number.
    ///
    /// # Panics
    /// If there are more or fewer inputs than the graph has, or if it [has axes](Self::has_axes).
    pub fn eval<S: Scalar>(&self, inputs: &[S]) -> Vec<S> {
        assert!(!self.has_axes(), "a graph with folds is computed along its axes");
        let values = self.values(inputs, |_, _| unreachable!("there are no folds"));
        self.outputs.iter().map(|id| values[id.index()].number()).collect()
    }

    /// The value of every node; those that are about an axis as `of_axis` says, from the node and its operand.
    pub(crate) fn values<S: Scalar>(
        &self,
        inputs: &[S],
        of_axis: impl Fn(Node, Option<S>) -> S,
    ) -> Vec<Value<S>> {
        assert_eq!(inputs.len(), self.input_count(), "one number for each input");
        let mut values: Vec<Value<S>> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let number = |id: Id| values[id.index()].number();
            let mask = |id: Id| values[id.index()].mask();
            values.push(match *node {
                Node::Input(position) => Value::Number(inputs[position as usize]),
                Node::Attribute(position) => {
                    let (name, value) = self.attributes[position as usize];
                    Value::Number(S::attr(name, value))
                }
                Node::Constant(bits) => Value::Number(S::of(f64::from_bits(bits))),
                Node::Unary(op, a) => Value::Number(op.apply(number(a))),
                Node::Binary(op, a, b) => Value::Number(op.apply(number(a), number(b))),
                Node::Select(m, a, b) => Value::Number(S::select(mask(m), number(a), number(b))),
                Node::Compare(op, a, b) => Value::Mask(op.apply(number(a), number(b))),
                Node::And(a, b) => Value::Mask(mask(a) & mask(b)),
                Node::Or(a, b) => Value::Mask(mask(a) | mask(b)),
                Node::Not(a) => Value::Mask(!mask(a)),
                Node::Detached(a) => Value::Number(number(a).detached()),
                Node::Fold(_, _, a) => Value::Number(of_axis(*node, Some(number(a)))),
                Node::Count(_) | Node::Index(_) => Value::Number(of_axis(*node, None)),
            });
        }
        values
    }
}
