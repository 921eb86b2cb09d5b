//! Graphs whose products have larger factors than memory is to hold: computed for some rows at a time, so that each product is computed
//! once. The gradient of attention is one: its scores are summed along the queries for some inputs, and along the keys for others.

use std::collections::{BTreeMap, BTreeSet};

use crate::axes::{Axes, Axis};
use crate::expr::graph::{Argument, Graph};
use crate::expr::nest::Place;
use crate::expr::node::{Binary, Fold, Id, Node};
use crate::expr::products::{Finder, Found, Part, Product, Products};

/// The most numbers of one intermediate result, of which there are some: they stay in the second cache or near it.
const ROOM: usize = 1 << 17;
/// Where rows are so long that so few of them take more, there may be more numbers, up to these.
const FEWEST: usize = 16;
const MOST_ROOM: usize = 1 << 20;
/// More rows at a time save nothing.
const MOST: usize = 128;
/// Where fewer positions are summed, or are a side of a product, loops that compute products several times take less.
const LEAST_WIDTH: usize = 24;

/// A graph, and how it is computed slice by slice.
pub struct Slices {
    /// The axes each of whose positions is a slice of its own.
    pub free: Axes,
    /// The axis that a slice is cut along, into blocks that are computed one after another.
    pub along: Axis,
    /// How many positions a block has, but for the last one.
    pub block: usize,
    /// The axes of the arrays that are in memory for a whole slice.
    pub kept: Vec<Axes>,
    /// What is computed before the blocks.
    pub before: Piece,
    /// What is computed for each block. What lacks the axis is added up over the blocks.
    pub each: Piece,
    /// What is computed behind the blocks.
    pub after: Piece,
}

/// A part of the computation of a slice.
pub struct Piece {
    /// What is computed: from the inputs of the graph, then all arrays that are kept, then a number, the first position of the block.
    pub products: Products,
    /// What its outputs are: outputs of the graph, or as temporary memory the arrays that are kept.
    pub outputs: Vec<Place>,
}

impl Graph {
    /// The graph in slices, for axes of these sizes, and `dense` as for [`at_products`](Self::at_products): where that keeps each product
    /// from being computed several times.
    pub fn in_slices(&self, sizes: &[usize], dense: &[Option<Axes>]) -> Option<Slices> {
        if !self.nodes.iter().any(|node| matches!(node, Node::Fold(Fold::Sum, ..))) {
            return None;
        }
        let graph = self.without_detached().with_masked_factors();
        let mut finder = Finder::new(&graph, sizes, dense);
        let memory = std::mem::replace(&mut finder.most, usize::MAX);
        let (products, _) = finder.all();
        let all: Vec<&Found> = products.values().flatten().collect();
        let large = |found: &Found| {
            found.factors.into_iter().filter(|id| finder.count(finder.axes[id.index()]) > memory)
        };
        let of_large: Vec<&Found> =
            all.iter().copied().filter(|found| large(found).next().is_some()).collect();
        let is_wide = |found: &&Found| {
            let sides = found.sides.into_iter().chain([found.summed]);
            sides.map(|axes| finder.count(axes)).all(|count| count >= LEAST_WIDTH)
        };
        let summed: BTreeSet<Axes> = of_large.iter().map(|found| found.summed).collect();
        if summed.len() < 2 || !of_large.iter().all(is_wide) {
            return None;
        }
        let rows = || of_large.iter().flat_map(|found| large(found)).map(|id| finder.axes[id.index()]);
        let shared = rows().reduce(Axes::both)?;
        let free = graph.free_axes(shared);
        let widest = rows().map(|axes| finder.count(axes.minus(free))).max()?;
        let slicer =
            Slicer { finder: &finder, products: &products, graph: &graph, sizes, free, widest, memory };
        shared.minus(free).iter().find_map(|along| slicer.along(along, dense))
    }

    /// The axes among some that all outputs have and nothing depends on as a whole.
    fn free_axes(&self, among: Axes) -> Axes {
        let own = |node: &Node| match *node {
            Node::Fold(_, axis, _) | Node::Index(axis) => Axes::of(axis),
            _ => Axes::NONE,
        };
        let used = self.nodes.iter().map(own).fold(Axes::NONE, Axes::union);
        self.output_axes().fold(among, Axes::both).minus(used)
    }

    /// The same with sums of products that count only where a condition holds as sums of products of factors that are 0 elsewhere, where
    /// the condition is about both.
    fn with_masked_factors(&self) -> Self {
        let axes = self.axes();
        let mut made = Rewritten::default();
        let summed = |node: &Node| if let Node::Fold(Fold::Sum, _, a) = *node { Some(a) } else { None };
        let summed: BTreeSet<Id> = self.nodes.iter().filter_map(summed).collect();
        for (index, node) in self.nodes.iter().enumerate() {
            let place = match self.masked(Id(index as u32)).filter(|_| summed.contains(&Id(index as u32))) {
                Some((mask, factors, zero))
                    if factors.iter().all(|id| axes[mask.index()].is_within(axes[id.index()])) =>
                {
                    let [mask, zero] = [mask, zero].map(|id| made.places[id.index()]);
                    let [a, b] = factors
                        .map(|id| made.places[id.index()])
                        .map(|id| made.push_once(Node::Select(mask, id, zero)));
                    made.push(Node::Binary(Binary::Mul, a, b))
                }
                _ => made.copy(node),
            };
            made.places.push(place);
        }
        made.graph(self)
    }

    /// The condition, the factors and the zero of a product that is 0 elsewhere.
    fn masked(&self, id: Id) -> Option<(Id, [Id; 2], Id)> {
        let Node::Select(mask, product, zero) = self.nodes[id.index()] else { return None };
        let Node::Binary(Binary::Mul, a, b) = self.nodes[product.index()] else { return None };
        (self.nodes[zero.index()] == Node::Constant(0)).then_some((mask, [a, b], zero))
    }
}

/// Nodes in the place of those of a graph.
#[derive(Default)]
struct Rewritten {
    nodes: Vec<Node>,
    places: Vec<Id>,
}

impl Rewritten {
    fn push(&mut self, node: Node) -> Id {
        self.nodes.push(node);
        Id(self.nodes.len() as u32 - 1)
    }

    /// The node that is equal, or a new one.
    fn push_once(&mut self, node: Node) -> Id {
        let known = self.nodes.iter().position(|known| *known == node);
        known.map_or_else(|| self.push(node), |index| Id(index as u32))
    }

    fn copy(&mut self, node: &Node) -> Id {
        self.push(node.with_operands(|id| self.places[id.index()]))
    }

    fn graph(&self, of: &Graph) -> Graph {
        let outputs: Vec<Id> = of.outputs.iter().map(|id| self.places[id.index()]).collect();
        Graph::new(&self.nodes, &outputs, of.attributes.clone(), (of.inputs.clone(), of.results.clone()))
    }
}

/// A graph that may be cut into slices.
struct Slicer<'a> {
    finder: &'a Finder<'a>,
    products: &'a BTreeMap<Id, Vec<Found>>,
    graph: &'a Graph,
    sizes: &'a [usize],
    free: Axes,
    /// How many numbers the largest intermediate result of a slice has.
    widest: usize,
    /// How many numbers there may be in memory at most.
    memory: usize,
}

impl Slicer<'_> {
    /// The graph in slices along an axis, if it can be.
    fn along(&self, along: Axis, dense: &[Option<Axes>]) -> Option<Slices> {
        let size = self.sizes[along.index()];
        let of_row = self.widest / size.max(1);
        let block = (ROOM / of_row.max(1) / FEWEST * FEWEST).clamp(FEWEST, MOST);
        if of_row.saturating_mul(FEWEST) > MOST_ROOM {
            return None;
        }
        let axes = |id: Id| self.finder.axes[id.index()];
        let sums =
            self.products.iter().filter(|(_, found)| found.iter().any(|found| found.summed.has(along)));
        let sums: Vec<Id> = sums.map(|(id, _)| *id).collect();
        let needs_sums = self.depends_on(&sums);
        let here = self.products.iter().filter(|(id, _)| !needs_sums[id.index()] || sums.contains(id));
        let factors = here.flat_map(|(_, found)| found).flat_map(|found| found.factors);
        let is_fixed = |id: &Id| !axes(*id).has(along) && self.finder.dense(*id).is_none();
        let fixed: BTreeSet<Id> = factors.filter(is_fixed).collect();
        let kept: Vec<Id> = fixed.iter().chain(&sums).copied().collect();
        let has_rows = |output: &usize| self.graph.results[*output].axes.has(along);
        let (main, others): (Vec<usize>, Vec<usize>) = (0..self.graph.outputs.len()).partition(has_rows);
        let ids =
            |outputs: &[usize]| outputs.iter().map(|output| self.graph.outputs[*output]).collect::<Vec<_>>();
        let is_early = ids(&main).iter().all(|id| !needs_sums[id.index()]);
        // Sums that are compared are computed once: two ways to do it round in two.
        let before = self.folds(&kept[..fixed.len()], &BTreeSet::new());
        let is_once = before.is_disjoint(&self.folds(&[ids(&main), sums.clone()].concat(), &fixed));
        if kept.iter().any(|id| axes(*id).has(along)) || !is_early || !is_once {
            return None;
        }
        let of_outputs = |outputs: &[usize]| {
            let of_output = |output: &usize| (self.graph.outputs[*output], self.graph.results[*output].axes);
            outputs.iter().map(of_output).collect::<Vec<_>>()
        };
        let of_arrays = |ids: &[Id]| ids.iter().map(|id| (*id, axes(*id))).collect::<Vec<_>>();
        let before = self.piece(&kept, 0, &of_arrays(&kept[..fixed.len()]), along);
        let each = self.piece(&kept, fixed.len(), &[of_outputs(&main), of_arrays(&sums)].concat(), along);
        let after = self.piece(&kept, kept.len(), &of_outputs(&others), along);
        if !self.is_small(&before) || !self.is_small(&after) {
            return None;
        }
        let products = self.in_blocks(&each, (along, block), dense, (kept.len(), &main))?;
        let arrays = |first: usize, count: usize| (first..first + count).map(Place::Temporary);
        let outputs =
            |outputs: &[usize]| outputs.iter().map(|output| Place::Output(*output)).collect::<Vec<_>>();
        let main = outputs(&main).into_iter().chain(arrays(fixed.len(), sums.len())).collect();
        Some(Slices {
            free: self.free,
            along,
            block,
            kept: kept.iter().map(|id| axes(*id)).collect(),
            before: Piece { products: Products::whole(before), outputs: arrays(0, fixed.len()).collect() },
            each: Piece { products, outputs: main },
            after: Piece { products: Products::whole(after), outputs: outputs(&others) },
        })
    }

    /// What is computed for a block, cut at its products, if they can be computed block by block in little memory: some outputs, and
    /// behind them arrays that are kept.
    fn in_blocks(
        &self,
        each: &Graph,
        (along, block): (Axis, usize),
        dense: &[Option<Axes>],
        (kept, main): (usize, &[usize]),
    ) -> Option<Products> {
        let mut own = self.sizes.to_vec();
        self.free.iter().for_each(|axis| own[axis.index()] = 1);
        own[along.index()] = block.min(own[along.index()]);
        let (inputs, outputs) = dense.split_at(self.graph.input_count());
        let arrays = each.outputs.len() - main.len();
        let in_memory = |count: usize| std::iter::repeat_n(Some(Axes::NONE), count);
        let read = inputs.iter().copied().chain(in_memory(kept)).chain([None]);
        let made = main.iter().map(|output| outputs[*output]).chain(in_memory(arrays));
        let dense: Vec<Option<Axes>> = read.chain(made).collect();
        let mut finder = Finder::new(each, &own, &dense);
        finder.most = usize::MAX;
        let products = finder.products()?;
        let is_small = products.temporaries.iter().all(|axes| finder.count(*axes) <= MOST_ROOM);
        (is_small && products.are_along(along)).then_some(products)
    }

    /// The folds that some nodes are computed from, but for what is computed before.
    fn folds(&self, ids: &[Id], before: &BTreeSet<Id>) -> BTreeSet<Id> {
        let (mut seen, mut pending) = (BTreeSet::new(), ids.to_vec());
        while let Some(id) = pending.pop() {
            if !before.contains(&id) && seen.insert(id) {
                pending.extend(self.graph.nodes[id.index()].operands());
            }
        }
        seen.retain(|id| matches!(self.graph.nodes[id.index()], Node::Fold(..)));
        seen
    }

    /// Which nodes are computed from some, or are these.
    fn depends_on(&self, ids: &[Id]) -> Vec<bool> {
        let mut depends: Vec<bool> = Vec::with_capacity(self.graph.nodes.len());
        for (index, node) in self.graph.nodes.iter().enumerate() {
            let is_one = ids.contains(&Id(index as u32));
            depends.push(is_one || node.operands().any(|id| depends[id.index()]));
        }
        depends
    }

    /// Whether a graph has no number on more positions than there may be in memory.
    fn is_small(&self, graph: &Graph) -> bool {
        graph.axes().into_iter().all(|axes| self.finder.count(axes) <= self.memory)
    }

    /// The graph of these outputs, which reads the first of what is kept from memory.
    fn piece(&self, kept: &[Id], read: usize, outputs: &[(Id, Axes)], along: Axis) -> Graph {
        let axes = |id: Id| self.finder.axes[id.index()];
        let argument = |axes: Axes| Argument { name: String::new(), axes };
        let inputs = self.graph.inputs.iter().cloned();
        let inputs = inputs.chain(kept.iter().map(|id| argument(axes(*id)))).chain([argument(Axes::NONE)]);
        let inputs: Vec<Argument> = inputs.collect();
        let (own, first) = (self.graph.input_count(), inputs.len() - 1);
        let mut made = Rewritten::default();
        for (index, node) in self.graph.nodes.iter().enumerate() {
            let array = kept[..read].iter().position(|id| id.index() == index);
            let kept = array.map(|array| made.push(Node::Input((own + array) as u32)));
            let place = kept.unwrap_or_else(|| match *node {
                Node::Count(axis) if self.free.with(along).has(axis) => {
                    made.push(Node::Constant((self.sizes[axis.index()] as f64).to_bits()))
                }
                Node::Index(axis) if axis == along => {
                    let (first, here) = (made.push(Node::Input(first as u32)), made.push(*node));
                    made.push(Node::Binary(Binary::Add, first, here))
                }
                _ => made.copy(node),
            });
            made.places.push(place);
        }
        let results = outputs.iter().map(|(_, axes)| argument(*axes)).collect();
        let outputs: Vec<Id> = outputs.iter().map(|(id, _)| made.places[id.index()]).collect();
        Graph::new(&made.nodes, &outputs, self.graph.attributes.clone(), (inputs, results))
    }
}

impl Products {
    /// All of a graph at once.
    pub fn whole(graph: Graph) -> Self {
        let outputs = (0..graph.outputs.len()).map(Place::Output).collect();
        Self { temporaries: Vec::new(), parts: vec![Part::Graph(graph, outputs)] }
    }

    /// Whether all is computed for positions of an axis, or is an output that products add up along it.
    fn are_along(&self, axis: Axis) -> bool {
        let folds = |graph: &Graph| {
            graph.nodes.iter().any(|node| matches!(*node, Node::Fold(_, own, _) if own == axis))
        };
        self.temporaries.iter().all(|axes| axes.has(axis))
            && self.parts.iter().all(|part| match part {
                Part::Graph(graph, _) => !folds(graph) && graph.output_axes().all(|axes| axes.has(axis)),
                Part::Product(Product { to, sides, summed, shared, .. }) => match summed.has(axis) {
                    true => matches!(to, Place::Output(_)),
                    false => sides[0].union(sides[1]).union(*shared).has(axis),
                },
            })
    }
}
