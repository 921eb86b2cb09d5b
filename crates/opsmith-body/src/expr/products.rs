//! Products of matrices in a graph, which have kernels of their own, and the parts of the graph between them.

use std::collections::{BTreeMap, BTreeSet};

use crate::axes::Axes;
use crate::expr::graph::{Argument, Graph};
use crate::expr::nest::Place;
use crate::expr::node::{Binary, Fold, Id, Node};

/// Either side of a product, and what is summed, has at least so many numbers.
const LEAST_SIDE: usize = 8;
/// A product has at least so many multiplications: with fewer, the code of nests takes no longer.
const LEAST: usize = 1 << 18;

/// Where both factors lie one number after another along what is summed, the code of nests takes as long but for large factors, each
/// number of which is read from memory: that many numbers are one, and so many are summed.
const LEAST_FACTOR: usize = 1 << 18;
const LEAST_SUMMED: usize = 1 << 8;

/// A graph cut at its products of matrices.
#[derive(Clone)]
pub struct Products {
    /// The axes of each array of temporary memory.
    pub temporaries: Vec<Axes>,
    /// What is computed, in order.
    pub parts: Vec<Part>,
}

/// What is computed at once.
#[derive(Clone)]
pub enum Part {
    /// A graph, whose inputs are those of the whole and then all temporaries, and whose outputs go to these places.
    Graph(Graph, Vec<Place>),
    /// A product.
    Product(Product),
}

/// The sums, along axes that two factors share, of the products of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// Where the factors are.
    pub factors: [Place; 2],
    /// Where the sums go.
    pub to: Place,
    /// The axes that only the one factor has, or only the other.
    pub sides: [Axes; 2],
    /// Those that are summed over.
    pub summed: Axes,
    /// Those that both factors have and the sums too.
    pub shared: Axes,
    /// Whether the sums are added to what is there.
    pub adds: bool,
}

/// A product by the nodes of its factors.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub(super) factors: [Id; 2],
    pub(super) sides: [Axes; 2],
    pub(super) summed: Axes,
    shared: Axes,
}

pub(super) struct Finder<'a> {
    graph: &'a Graph,
    sizes: &'a [usize],
    /// Of the inputs, and behind those of the outputs, that products can read and write where they lie, the axes along which they are dense.
    dense: &'a [Option<Axes>],
    pub(super) axes: Vec<Axes>,
    /// How often each node is an operand or an output.
    uses: Vec<usize>,
    /// How many numbers what goes through memory has at most: as many as the largest argument; `usize::MAX` where all may.
    pub(super) most: usize,
}

impl<'a> Finder<'a> {
    /// For axes of these sizes, and arguments that lie as [`at_products`](Graph::at_products) has it.
    pub(super) fn new(graph: &'a Graph, sizes: &'a [usize], dense: &'a [Option<Axes>]) -> Self {
        let mut uses = vec![0; graph.nodes.len()];
        let operands = graph.nodes.iter().flat_map(|node| node.operands());
        operands.chain(graph.outputs.iter().copied()).for_each(|id| uses[id.index()] += 1);
        let mut finder = Finder { axes: graph.axes(), graph, sizes, dense, uses, most: 0 };
        let arguments = graph.input_axes().chain(graph.output_axes());
        finder.most = arguments.map(|axes| finder.count(axes)).max().unwrap_or(0);
        finder
    }

    /// The graph cut at its products, if it has some.
    pub(super) fn products(&self) -> Option<Products> {
        let (products, read) = self.all();
        (!products.is_empty()).then(|| Cut::new(self, products, &read).parts())
    }

    pub(super) fn count(&self, axes: Axes) -> usize {
        axes.iter().map(|axis| self.sizes[axis.index()]).fold(1, usize::saturating_mul)
    }

    /// The axes along which an input is dense, if products can read it where it lies.
    pub(super) fn dense(&self, id: Id) -> Option<Axes> {
        match self.graph.nodes[id.index()] {
            Node::Input(input) => self.dense[input as usize],
            _ => None,
        }
    }

    /// The product that a node is, if it is large.
    fn product(&self, id: Id) -> Option<Found> {
        let (mut at, mut summed) = (id, Axes::NONE);
        while let Node::Fold(Fold::Sum, axis, a) = self.graph.nodes[at.index()] {
            (at, summed) = (a, summed.with(axis));
        }
        let Node::Binary(Binary::Mul, a, b) = self.graph.nodes[at.index()] else { return None };
        let [of_a, of_b] = [a, b].map(|id| self.axes[id.index()]);
        let both = of_a.both(of_b);
        let found = Found {
            factors: [a, b],
            sides: [of_a.minus(of_b), of_b.minus(of_a)],
            summed,
            shared: both.minus(summed),
        };
        let counts = [found.sides[0], found.sides[1], summed].map(|axes| self.count(axes));
        let is_large = counts.iter().all(|count| *count >= LEAST_SIDE)
            && counts.into_iter().fold(1, usize::saturating_mul) >= LEAST
            && self.count(found.shared) > 0;
        let is_along = |id: Id| self.dense(id).is_some_and(|dense| !dense.both(summed).is_empty());
        let largest = self.count(of_a).max(self.count(of_b));
        // Where all may go through memory, loops between products save nothing by computing one themselves.
        let pays = self.most == usize::MAX
            || !(is_along(a) && is_along(b))
            || largest >= LEAST_FACTOR && counts[2] >= LEAST_SUMMED;
        let fits = |id: &Id| self.dense(*id).is_some() || self.count(self.axes[id.index()]) <= self.most;
        (summed.is_within(both) && is_large && pays && [id, a, b].iter().all(fits)).then_some(found)
    }

    /// The products that a node is the sum of, or the one that it is; none where it is something else. What is used elsewhere too is
    /// computed by itself.
    fn sum(&self, id: Id) -> Vec<Found> {
        let Node::Binary(Binary::Add, a, b) = self.graph.nodes[id.index()] else {
            return self.product(id).into_iter().collect();
        };
        let is_term =
            |term: Id| self.uses[term.index()] == 1 && self.axes[term.index()] == self.axes[id.index()];
        if a == b || !is_term(a) || !is_term(b) {
            return Vec::new();
        }
        let last = self.sum(b);
        let first = if last.is_empty() { Vec::new() } else { self.sum(a) };
        if first.is_empty() { first } else { [first, last].concat() }
    }

    /// The products that are computed, by what they are added up to, and the nodes that others are computed from.
    pub(super) fn all(&self) -> (BTreeMap<Id, Vec<Found>>, BTreeSet<Id>) {
        let (mut products, mut read) = (BTreeMap::new(), BTreeSet::new());
        let (mut seen, mut pending) = (BTreeSet::new(), self.graph.outputs.clone());
        while let Some(id) = pending.pop() {
            if !seen.insert(id) {
                continue;
            }
            let found = self.sum(id);
            let operands: Vec<Id> = match found.is_empty() {
                true => self.graph.nodes[id.index()].operands().collect(),
                false => {
                    let factors = found.iter().flat_map(|found| found.factors).collect();
                    products.insert(id, found);
                    factors
                }
            };
            read.extend(operands.iter().copied());
            pending.extend(operands);
        }
        (products, read)
    }
}

impl Graph {
    /// The graph cut at its large products of matrices, for axes of these sizes; nothing where it has none. `dense` has, for each
    /// input and then each output that products can read or write where it lies, the axes along which its numbers lie one after another.
    pub fn at_products(&self, sizes: &[usize], dense: &[Option<Axes>]) -> Option<Products> {
        if !self.nodes.iter().any(|node| matches!(node, Node::Fold(Fold::Sum, ..))) {
            return None;
        }
        let graph = self.without_detached();
        Finder::new(&graph, sizes, dense).products()
    }
}

/// Where the numbers are that go through memory, and after how many rounds of products each number can be computed.
struct Cut<'a> {
    finder: &'a Finder<'a>,
    products: BTreeMap<Id, Vec<Found>>,
    rounds: Vec<usize>,
    places: BTreeMap<Id, Place>,
    temporaries: Vec<Axes>,
}

impl<'a> Cut<'a> {
    fn new(finder: &'a Finder<'a>, products: BTreeMap<Id, Vec<Found>>, read: &BTreeSet<Id>) -> Self {
        let graph = finder.graph;
        let mut rounds: Vec<usize> = Vec::with_capacity(graph.nodes.len());
        for (index, node) in graph.nodes.iter().enumerate() {
            let after =
                |ids: &mut dyn Iterator<Item = Id>| ids.map(|id| rounds[id.index()]).max().unwrap_or(0);
            let own = match products.get(&Id(index as u32)) {
                Some(found) => after(&mut found.iter().flat_map(|found| found.factors)) + 1,
                None => after(&mut node.operands()),
            };
            rounds.push(own);
        }
        let mut cut = Cut { finder, products, rounds, places: BTreeMap::new(), temporaries: Vec::new() };
        let products: Vec<Id> = cut.products.keys().copied().collect();
        for &id in &products {
            let place = cut.output_of(id).filter(|_| !read.contains(&id)).map(Place::Output);
            cut.place(id, place);
            let factors: Vec<Id> = cut.products[&id].iter().flat_map(|found| found.factors).collect();
            for factor in factors {
                let place = match graph.nodes[factor.index()] {
                    Node::Input(input) if finder.dense(factor).is_some() => {
                        Some(Place::Input(input as usize))
                    }
                    _ => None,
                };
                cut.place(factor, place);
            }
        }
        cut
    }

    /// The only output that a number is, if that can be written where it lies.
    fn output_of(&self, id: Id) -> Option<usize> {
        let graph = self.finder.graph;
        let mut outputs = (0..graph.outputs.len()).filter(|output| graph.outputs[*output] == id);
        let output = outputs.next().filter(|_| outputs.next().is_none())?;
        let lies = graph.results[output].axes == self.finder.axes[id.index()];
        (lies && self.finder.dense[graph.input_count() + output].is_some()).then_some(output)
    }

    /// Has a number be in some place, or in temporary memory.
    fn place(&mut self, id: Id, place: Option<Place>) {
        if self.places.contains_key(&id) {
            return;
        }
        let place = place.unwrap_or_else(|| {
            self.temporaries.push(self.finder.axes[id.index()]);
            Place::Temporary(self.temporaries.len() - 1)
        });
        self.places.insert(id, place);
    }

    fn parts(self) -> Products {
        let mut parts = Vec::new();
        for round in 0..=self.rounds.iter().copied().max().unwrap_or(0) {
            parts.extend(self.graph_of(round));
            let products = self.products.iter().filter(|(id, _)| self.rounds[id.index()] == round + 1);
            let terms = products
                .flat_map(|(id, sum)| sum.iter().enumerate().map(move |(term, found)| (id, term, found)));
            parts.extend(terms.map(|(id, term, found)| {
                let &Found { factors, sides, summed, shared } = found;
                let factors = factors.map(|id| self.places[&id]);
                Part::Product(Product { factors, to: self.places[id], sides, summed, shared, adds: term > 0 })
            }));
        }
        Products { temporaries: self.temporaries, parts }
    }

    /// What is computed after so many rounds of products, if there is anything.
    fn graph_of(&self, round: usize) -> Option<Part> {
        let graph = self.finder.graph;
        let is_here = |id: Id| self.rounds[id.index()] == round;
        let temporary = |axes: Axes| Argument { name: String::new(), axes };
        let (mut nodes, mut ids, mut results, mut places) =
            (graph.nodes.clone(), Vec::new(), Vec::new(), Vec::new());
        for (&id, &place) in &self.places {
            let Place::Temporary(array) = place else { continue };
            if is_here(id) && !self.products.contains_key(&id) {
                ids.push(id);
                results.push(temporary(self.temporaries[array]));
                places.push(place);
            } else {
                nodes[id.index()] = Node::Input((graph.input_count() + array) as u32);
            }
        }
        for (output, &id) in graph.outputs.iter().enumerate() {
            if is_here(id) && self.places.get(&id) != Some(&Place::Output(output)) {
                ids.push(id);
                results.push(graph.results[output].clone());
                places.push(Place::Output(output));
            }
        }
        let temporaries = self.temporaries.iter().copied().map(temporary);
        let inputs = graph.inputs.iter().cloned().chain(temporaries).collect();
        let part = Graph::new(&nodes, &ids, graph.attributes.clone(), (inputs, results));
        (!ids.is_empty()).then_some(Part::Graph(part, places))
    }
}
