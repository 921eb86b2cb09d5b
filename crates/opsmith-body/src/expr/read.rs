//! Outputs that a gradient reads instead of computing them again, and whether that pays.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::axes::Axes;
use crate::expr::graph::{Argument, Graph, Value};
use crate::expr::node::{Binary, Id, Node, Unary};
use crate::expr::trace::{Expr, axes_of, node, node_at, of_axis, record, replace, replaced};
use crate::scalar::Scalar;

/// A sum: how often each node is added to it, or, below 0, taken off.
type Terms = BTreeMap<Id, i32>;

/// What is known of the outputs that are read, while a gradient is recorded.
#[derive(Default)]
pub(super) struct Read {
    given: Vec<Id>,
    /// Logarithms of divisors, where outputs say them.
    logs: BTreeMap<Id, Log>,
}

/// A logarithm: a sum of the output that says it and what else that output is made of.
struct Log {
    output: Id,
    terms: Terms,
}

impl Read {
    /// Of outputs, by node and what is read, in the order of their nodes; `values` computes all nodes of the graph, of which those that
    /// are known already are not computed again.
    pub(super) fn new(outputs: &[(Id, &Expr)], values: impl Fn() -> Vec<Value<Expr>>) -> Self {
        let mut read = Self::default();
        for (output, given) in outputs {
            let number = values()[output.index()].number();
            let mut terms = Terms::new();
            add_terms(number.0, 1, &mut terms);
            read.find_logs(&terms, given.0);
            stand_for(number, **given);
            read.given.push(given.0);
        }
        read
    }

    /// The logarithms that a sum has, from what it is and its other terms.
    ///
    /// Not that of a number which may be negative: the output is NaN then, and the quotient is not.
    fn find_logs(&mut self, terms: &Terms, output: Id) {
        for (term, count) in terms {
            if let (Node::Unary(Unary::Log, a), 1 | -1) = (node_at(*term), *count)
                && is_not_negative(a)
            {
                let others = terms.iter().filter(|(other, _)| *other != term);
                let mut log: Terms = others.map(|(other, times)| (*other, -times * count)).collect();
                *log.entry(output).or_default() += count;
                self.logs.insert(a, Log { output, terms: log });
            }
        }
    }

    /// Whether a number is an output that is read.
    pub(super) fn has(&self, number: Expr) -> bool {
        self.given.contains(&number.0)
    }

    /// Whether an output says the logarithm of a number.
    pub(super) fn has_log(&self, number: Expr) -> bool {
        self.logs.contains_key(&number.0)
    }

    /// The quotient of two numbers, if it is an output, or follows from one: `exp(u) / s` is `exp(u - log(s))`.
    ///
    /// What else the logarithm is made of must be in `u` as it is, and so be gone from the difference: another term may be infinite where
    /// the quotient is not, and lie on other axes.
    pub(super) fn quotient(&self, number: Expr, divisor: Expr) -> Option<Expr> {
        if let Some(quotient) = replaced(Node::Binary(Binary::Div, number.0, divisor.0)) {
            return Some(quotient);
        }
        let (log, Node::Unary(Unary::Exp, u)) = (self.logs.get(&divisor.0)?, node_at(number.0)) else {
            return None;
        };
        let mut terms = Terms::new();
        add_terms(u, 1, &mut terms);
        let is_gone = |(id, count): (&Id, &i32)| *id == log.output || terms.get(id) == Some(count);
        if !log.terms.iter().all(is_gone) {
            return None;
        }
        for (id, count) in &log.terms {
            *terms.entry(*id).or_default() -= count;
        }
        let quotient = node(Node::Unary(Unary::Exp, sum(&terms).0));
        let own = axes_of(number.0).union(axes_of(divisor.0));
        axes_of(quotient.0).is_within(own).then_some(quotient)
    }
}

/// Whether a number cannot be less than 0, whatever the inputs are.
fn is_not_negative(id: Id) -> bool {
    match node_at(id) {
        Node::Constant(bits) => f64::from_bits(bits) >= 0.0,
        Node::Count(_) | Node::Index(_) => true,
        Node::Unary(Unary::Exp | Unary::Abs | Unary::Sigmoid | Unary::Softplus | Unary::Sqrt, _) => true,
        Node::Unary(Unary::Rsqrt | Unary::NormalCdf | Unary::NormalPdf, _) => true,
        Node::Binary(Binary::Mul, a, b) if a == b => true,
        Node::Binary(Binary::Add | Binary::Mul | Binary::Div | Binary::Min | Binary::Max, a, b) => {
            is_not_negative(a) && is_not_negative(b)
        }
        Node::Select(_, yes, no) => is_not_negative(yes) && is_not_negative(no),
        Node::Fold(_, _, a) | Node::Detached(a) => is_not_negative(a),
        _ => false,
    }
}

/// Has a number be what is read: of a negative one, the number itself its negative.
fn stand_for(number: Expr, given: Expr) {
    match node_at(number.0) {
        Node::Unary(Unary::Neg, inner) => stand_for(Expr(inner), -given),
        _ => replace(number, given),
    }
}

/// Adds the terms of a number to a sum.
fn add_terms(id: Id, times: i32, terms: &mut Terms) {
    match node_at(id) {
        Node::Binary(Binary::Add, a, b) => {
            add_terms(a, times, terms);
            add_terms(b, times, terms);
        }
        Node::Binary(Binary::Sub, a, b) => {
            add_terms(a, times, terms);
            add_terms(b, -times, terms);
        }
        Node::Unary(Unary::Neg, a) => add_terms(a, -times, terms),
        _ => *terms.entry(id).or_default() += times,
    }
}

/// The number that terms are the sum of, those that are added first.
fn sum(terms: &Terms) -> Expr {
    let times = |(id, count): (&Id, i32)| std::iter::repeat_n(Expr(*id), count.max(0) as usize);
    let added = terms.iter().flat_map(|(id, count)| times((id, *count))).reduce(|a, b| a + b);
    let taken = terms.iter().flat_map(|(id, count)| times((id, -count)));
    taken.fold(added.unwrap_or_else(|| Expr::of(0.0)), |sum, term| sum - term)
}

impl Graph {
    /// The gradient as [`gradient`](Self::gradient), which has some of the outputs, by position, as inputs too, between the graph's own and
    /// the outputs' gradients. It reads them where it would compute the same again, but for outputs that have the same number all along
    /// one of their axes, and those that would be compared with what is not rounded as they are.
    ///
    /// # Panics
    /// If there is no such output.
    #[must_use]
    pub fn gradient_reading(&self, outputs: &[usize]) -> Self {
        let results = self.result_axes();
        let is_whole = |output: &usize| results[*output] == self.results[*output].axes;
        let mut read: Vec<usize> = outputs.iter().copied().filter(is_whole).collect();
        loop {
            let gradient = self.gradient_with(outputs, &read);
            let before = read.len();
            for (place, output) in outputs.iter().enumerate() {
                if gradient.compares(self.input_count() + place) {
                    read.retain(|own| own != output);
                }
            }
            // Where one is not read, more is made of the others.
            if read.len() == before {
                return gradient;
            }
        }
    }

    /// The outputs, by position, that the gradient of some of the inputs had better read than compute again: those that make it cheaper.
    ///
    /// Folds and functions count 2; divisions, roots and what is read count 1; numbers of fewer axes than the output has count nothing.
    pub fn worth_reading(&self, inputs: &[usize]) -> Vec<usize> {
        let (mut read, mut best) = (Vec::new(), self.gradient().with_outputs(inputs));
        for (output, result) in self.results.iter().enumerate() {
            let more = [read.as_slice(), &[output]].concat();
            let gradient = self.gradient_reading(&more).with_outputs(inputs);
            if gradient.cost(result.axes) < best.cost(result.axes) {
                (read, best) = (more, gradient);
            }
        }
        read
    }

    /// The numbers, by node, that a gradient which reads these outputs had better read than compute again: those that the body says, and the
    /// folds of which each lies on some of the axes of an argument, and on no others than an output does, so that it takes little memory
    /// beside those.
    pub fn worth_saving(&self, inputs: &[usize], read: &[usize]) -> Vec<Id> {
        let all: Vec<Axes> = self.input_axes().chain(self.output_axes()).collect();
        let axes = self.axes();
        if self.saved.is_empty() && self.nodes.iter().all(|node| !matches!(node, Node::Fold(..))) {
            return Vec::new();
        }
        let free = self.output_axes().reduce(Axes::both).unwrap_or_default().minus(self.used_axes());
        let is_candidate = |id: &Id| {
            let own = axes[id.index()];
            let is_small = all.iter().any(|argument| own != *argument && own.is_within(*argument));
            // There are as many of it as an output has dims in front.
            let is_small = is_small && self.output_axes().any(|output| own.is_within(output));
            let is_small = is_small && free.is_within(own);
            let is_small_fold = matches!(self.nodes[id.index()], Node::Fold(..)) && is_small;
            let is_said = self.saved.contains(id) && self.nodes[id.index()].operands().next().is_some();
            (is_small_fold || is_said) && !self.outputs.contains(id)
        };
        let mut folds: Vec<Id> = (0..self.nodes.len() as u32).map(Id).filter(is_candidate).collect();
        let (gradient, first) =
            (self.gradient_reading(read).with_outputs(inputs), self.input_count() + read.len());
        loop {
            let on: Vec<Axes> = folds.iter().map(|id| axes[id.index()]).collect();
            let reading = self.reading_folds(&gradient, read, Some(&folds), &on);
            let before = folds.len();
            let (saved, mut places) = (first..first + before, first..);
            folds.retain(|_| {
                places.next().is_some_and(|place| reading.reads(place) && !reading.is_matched(place, &saved))
            });
            if folds.len() == before {
                return folds;
            }
        }
    }

    /// The graph with some of its folds as further outputs, that lie on these axes: zeros where nothing is known of them.
    #[must_use]
    pub fn saving(&self, folds: Option<&[Id]>, axes: &[Axes]) -> Self {
        let results = axes.iter().map(|&axes| Argument { name: String::new(), axes });
        let results = self.results.iter().cloned().chain(results).collect();
        let graph = record(self.inputs.clone(), results, &[], |inputs| {
            let values = self.values(inputs, of_axis);
            let number = |id: &Id| values[id.index()].number();
            let saved = axes
                .iter()
                .enumerate()
                .map(|(at, _)| folds.map_or_else(|| Expr::of(0.0), |folds| number(&folds[at])));
            self.outputs.iter().map(number).chain(saved).collect()
        });
        let Self { nodes, outputs, attributes, results, .. } = graph;
        Self { nodes, outputs, attributes, results, saved: Vec::new(), ..self.clone() }
    }

    /// A gradient of this graph, of any order, with some folds of the graph as inputs too, behind the graph's own and so many outputs: it reads
    /// them where it would compute the same. They have no gradients: those of the inputs hold what a change of theirs does to the folds.
    /// Inputs that nothing is known of, on these axes, are not read.
    #[must_use]
    pub fn reading_folds(
        &self,
        gradient: &Self,
        outputs: &[usize],
        folds: Option<&[Id]>,
        axes: &[Axes],
    ) -> Self {
        let first = self.input_count() + outputs.len();
        let saved = axes.iter().map(|&axes| Argument { name: String::new(), axes });
        let mut inputs = gradient.inputs.clone();
        inputs.splice(first..first, saved);
        let graph = record(inputs, gradient.results.clone(), &[], |numbers| {
            let (own, rest) = numbers.split_at(first);
            let (saved, others) = rest.split_at(axes.len());
            let (inputs, given) = own.split_at(self.input_count());
            let read = outputs.iter().zip(given).enumerate();
            let read = read.filter(|(place, _)| gradient.reads(self.input_count() + place));
            let said = read.flat_map(|(_, (output, given))| self.said_by(*output).map(move |id| (id, given)));
            let mut known: Vec<_> =
                said.chain(folds.unwrap_or_default().iter().copied().zip(saved)).collect();
            known.sort_by_key(|(id, _)| *id);
            let _ = Read::new(&known, || self.values(inputs, of_axis));
            gradient.again(&[own, others].concat())
        });
        let Self { nodes, outputs, attributes, inputs, .. } = graph;
        Self { nodes, outputs, attributes, inputs, ..gradient.clone() }
    }

    /// What an output says: its own number, and what that takes from where a condition holds, if nothing else is made of it and it lies on
    /// the same axes. Gradients of that count there only.
    pub(super) fn said_by(&self, output: usize) -> impl Iterator<Item = Id> {
        let is_constant = |id: Id| self.nodes[id.index()].constant().is_some();
        let users = |id: Id| {
            let of_nodes = self.nodes.iter().flat_map(|node| node.operands()).filter(|own| *own == id);
            of_nodes.chain(self.outputs.iter().copied().filter(|own| *own == id)).count()
        };
        let (axes, own) = (self.axes(), self.outputs[output]);
        std::iter::successors(Some(own), move |id| {
            let taken = match self.nodes[id.index()] {
                Node::Select(_, yes, no) if is_constant(no) => yes,
                Node::Select(_, yes, no) if is_constant(yes) => no,
                _ => return None,
            };
            (users(taken) == 1 && axes[taken.index()] == axes[own.index()]).then_some(taken)
        })
    }

    /// Whether an input is read.
    pub fn reads(&self, input: usize) -> bool {
        self.nodes.contains(&Node::Input(input as u32))
    }

    /// What a graph costs for each number that lies on these axes.
    fn cost(&self, axes: Axes) -> usize {
        let of_node = |node: &Node| match node {
            Node::Unary(Unary::Neg | Unary::Abs | Unary::Sign | Unary::Floor, _) => 0,
            Node::Unary(Unary::Sqrt | Unary::Rsqrt, _) | Node::Binary(Binary::Div, ..) | Node::Input(_) => 1,
            Node::Unary(..) | Node::Binary(Binary::Pow, ..) | Node::Fold(..) => 2,
            _ => 0,
        };
        let lie = self.axes();
        let counts = |(node, own): &(&Node, &Axes)| axes.is_within(**own) || matches!(node, Node::Fold(..));
        self.nodes.iter().zip(&lie).filter(counts).map(|(node, _)| of_node(node)).sum()
    }

    /// Whether something is compared with what is computed from an input, or jumps with it. An output is rounded to the dtype of the op,
    /// so what is equal to it before may differ from it.
    fn compares(&self, input: usize) -> bool {
        self.users(input)
            .any(|node| matches!(node, Node::Compare(..) | Node::Unary(Unary::Sign | Unary::Floor, _)))
    }

    /// Whether an input, or what is computed from it, is compared with numbers that are computed from others than `saved` too, or jumps with
    /// such a number. What is saved is not rounded, but equal only to what was computed by the same instructions.
    fn is_matched(&self, input: usize, saved: &Range<usize>) -> bool {
        let mut is_of_saved: Vec<bool> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            is_of_saved.push(match *node {
                Node::Input(position) => saved.contains(&(position as usize)),
                Node::Index(_) => false,
                _ => node.operands().all(|id| is_of_saved[id.index()]),
            });
        }
        let is_mixed = |node: &Node| node.operands().any(|id| !is_of_saved[id.index()]);
        let jumps =
            |node: &Node| matches!(node, Node::Compare(..) | Node::Unary(Unary::Sign | Unary::Floor, _));
        self.users(input).any(|node| jumps(node) && is_mixed(node))
    }

    /// The nodes that are computed from an input.
    fn users(&self, input: usize) -> impl Iterator<Item = &Node> {
        let mut depends: Vec<bool> = Vec::with_capacity(self.nodes.len());
        self.nodes.iter().filter(move |node| {
            let own = match **node {
                Node::Input(position) => position as usize == input,
                _ => node.operands().any(|id| depends[id.index()]),
            };
            depends.push(own);
            own
        })
    }

    /// The graph with some of its inputs, by position, and all outputs, which read no other one.
    ///
    /// # Panics
    /// If there is no such input, or another one is read.
    #[must_use]
    pub fn with_inputs(&self, inputs: &[usize]) -> Self {
        let place = |input: u32| inputs.iter().position(|own| *own == input as usize);
        let mut graph = self.clone();
        for node in &mut graph.nodes {
            if let Node::Input(input) = node {
                *input = place(*input).expect("an input that is left out is not read") as u32;
            }
        }
        graph.inputs = inputs.iter().map(|input| self.inputs[*input].clone()).collect();
        graph
    }
}
