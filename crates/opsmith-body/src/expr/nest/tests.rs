//! Nests of random graphs, run as they say, against every node at every position.

mod online;

use super::*;
use crate::body::BLOCK;
use crate::expr::Expr;
use crate::expr::cuda::CudaType;
use crate::expr::node::{Id, Node};
use crate::float::F64;
use crate::indexed::{Index, Indexed, trace_over};
use crate::isa::Plain;
use crate::scalar::Scalar;

type At = [usize; Axis::MOST];

const NAMES: [&str; 4] = ["i", "j", "k", "l"];

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % end
    }

    /// Some of the axes.
    fn axes(&mut self) -> Axes {
        let bits = self.below(16);
        (0..4).filter(|axis| bits >> axis & 1 == 1).fold(Axes::NONE, |axes, axis| axes.with(Axis::new(axis)))
    }

    /// An expression of some of those that there are, which it becomes one of.
    fn expression(&mut self, known: &mut Vec<Expr>) -> Expr {
        let (a, b) = (known[self.below(known.len())], known[self.below(known.len())]);
        let axis = Axis::new(self.below(4));
        let new = match self.below(10) {
            0 => a + b,
            1 => a * b,
            2 => a - b,
            3 => a / (b * b + 1.0),
            4 => a.sin(),
            5 => (-(a * a)).exp(),
            6 => Indexed::sum(a, axis),
            7 => Indexed::sum(a * b, axis),
            8 => Indexed::amax(a, axis),
            _ => a.log_sum_exp(axis),
        };
        known.push(new);
        new
    }
}

fn graph(random: &mut Random) -> Graph {
    let inputs = [random.axes(), random.axes(), random.axes()];
    let outputs = [random.axes(), random.axes()];
    let named: Vec<_> = ["x", "y", "z"].into_iter().zip(inputs).collect();
    let results: Vec<_> = ["u", "v"].into_iter().zip(outputs).collect();
    trace_over(&NAMES, &named, &results, |x| {
        let mut known = x.to_vec();
        for _ in 0..4 + random.below(8) {
            random.expression(&mut known);
        }
        let of = |own: Axes, random: &mut Random, known: &mut Vec<Expr>| {
            let last = random.expression(known);
            let others = (0..4).map(Axis::new).filter(|axis| !own.has(*axis));
            others.fold(last, Indexed::sum)
        };
        outputs.map(|own| of(own, random, &mut known)).to_vec()
    })
}

/// Numbers on some axes.
#[derive(Clone)]
struct Array {
    axes: Axes,
    numbers: Vec<f64>,
}

impl Array {
    fn new(axes: Axes, sizes: &[usize], mut number: impl FnMut(&At) -> f64) -> Self {
        let mut array = Array { axes, numbers: Vec::new() };
        for_each(axes, sizes, &mut |at| array.numbers.push(number(at)));
        array
    }

    fn place(&self, sizes: &[usize], at: &At) -> usize {
        self.axes.iter().fold(0, |place, axis| place * sizes[axis.index()] + at[axis.index()])
    }

    fn at(&self, sizes: &[usize], at: &At) -> f64 {
        self.numbers[self.place(sizes, at)]
    }
}

/// All positions of some axes, the last one's fastest.
fn for_each(axes: Axes, sizes: &[usize], act: &mut impl FnMut(&At)) {
    let count: usize = axes.iter().map(|axis| sizes[axis.index()]).product();
    for index in 0..count {
        let (mut at, mut rest) = ([0; Axis::MOST], index);
        for axis in axes.iter().rev() {
            at[axis.index()] = rest % sizes[axis.index()];
            rest /= sizes[axis.index()];
        }
        act(&at);
    }
}

/// What a node is of other numbers, masks among them, which are 1 or 0.
fn pointwise(node: Node, of: impl Fn(Id) -> f64) -> f64 {
    let number = |id: Id| F64::<Plain>::new(of(id));
    match node {
        Node::Constant(bits) => f64::from_bits(bits),
        Node::Unary(op, a) => op.apply(number(a)).get(),
        Node::Binary(op, a, b) => op.apply(number(a), number(b)).get(),
        Node::Select(m, a, b) => of(if of(m) == 0.0 { b } else { a }),
        Node::Compare(op, a, b) => {
            let mask = op.apply(number(a), number(b));
            F64::<Plain>::select(mask, F64::of(1.0), F64::of(0.0)).get()
        }
        Node::And(a, b) => of(a) * of(b),
        Node::Or(a, b) => of(a).max(of(b)),
        Node::Not(a) => 1.0 - of(a),
        Node::Detached(a) => of(a),
        _ => unreachable!("{node:?} is of more than a position"),
    }
}

/// The outputs, every node at all of its positions.
fn plain(graph: &Graph, sizes: &[usize], inputs: &[Array]) -> Vec<Array> {
    let mut found: Vec<Array> = Vec::new();
    for (node, own) in graph.nodes().iter().zip(graph.axes()) {
        let array = Array::new(own, sizes, |at| match *node {
            Node::Input(position) => inputs[position as usize].at(sizes, at),
            Node::Count(axis) => sizes[axis.index()] as f64,
            Node::Index(axis) => at[axis.index()] as f64,
            Node::Fold(op, axis, a) => {
                let mut at = *at;
                let fold = |folded, position| {
                    at[axis.index()] = position;
                    op.of_two(folded, F64::<Plain>::new(found[a.index()].at(sizes, &at)))
                };
                (0..sizes[axis.index()]).fold(F64::of(op.identity_value()), fold).get()
            }
            node => pointwise(node, |id| found[id.index()].at(sizes, at)),
        });
        found.push(array);
    }
    let outputs = graph.outputs().iter().zip(graph.output_axes());
    outputs.map(|(id, own)| Array::new(own, sizes, |at| found[id.index()].at(sizes, at))).collect()
}

/// A nest as it is run: a register has a block for each position of its axes, in which there is no number at first.
struct Run<'a> {
    nest: &'a Nest,
    sizes: &'a [usize],
    inputs: &'a [Array],
    outputs: &'a mut [Array],
    temporaries: &'a mut [Array],
    registers: Vec<Vec<[f64; BLOCK]>>,
    /// By which axes loops have shared memory here, and whether what fills it has some too.
    sharing: Option<(tile::Sides, bool)>,
    axes: &'a dyn Fn(Place) -> Axes,
    /// Where the loops are, of the axis of the lanes where its block begins, and along which axes they go.
    at: At,
    bound: Axes,
}

impl Run<'_> {
    /// How many positions a loop goes through, and how far apart they are.
    fn positions(&self, axis: Axis) -> (usize, usize) {
        let step = if self.nest.lanes == Some(axis) { BLOCK } else { 1 };
        (self.sizes[axis.index()].div_ceil(step), step)
    }

    fn block(&mut self, register: usize) -> &mut [f64; BLOCK] {
        let axes = self.nest.registers[register];
        let of = |place: usize, axis: Axis| {
            let (count, step) = self.positions(axis);
            place * count + self.at[axis.index()] / step
        };
        let place = axes.iter().fold(0, of);
        &mut self.registers[register][place]
    }

    /// The axis along the lanes if the loops go along it, and how many numbers there are.
    fn lanes(&self) -> Option<(Axis, usize)> {
        let axis = self.nest.lanes.filter(|axis| self.bound.has(*axis))?;
        Some((axis, (self.sizes[axis.index()] - self.at[axis.index()]).min(BLOCK)))
    }

    fn at_lane(&self, lane: usize) -> At {
        let mut at = self.at;
        if let Some((axis, _)) = self.lanes() {
            at[axis.index()] += lane;
        }
        at
    }

    fn array(&mut self, place: Place) -> &mut Array {
        match place {
            Place::Input(_) => unreachable!("inputs are not written"),
            Place::Output(output) => &mut self.outputs[output],
            Place::Temporary(array) => &mut self.temporaries[array],
        }
    }

    /// Puts a number into each lane that there is, all if there is one number.
    fn put(&mut self, register: usize, number: impl Fn(&Self, &At) -> f64) {
        match self.lanes() {
            Some((_, count)) => {
                for lane in 0..count {
                    let number = number(self, &self.at_lane(lane));
                    self.block(register)[lane] = number;
                }
            }
            None => *self.block(register) = [number(self, &self.at); BLOCK],
        }
    }

    fn step(&mut self, step: &Step) {
        let count = self.lanes().map_or(BLOCK, |(_, count)| count);
        match step {
            Step::Load { from, to } => self.put(*to, |run, at| match *from {
                Place::Input(input) => run.inputs[input].at(run.sizes, at),
                Place::Output(_) => unreachable!("outputs are not read"),
                Place::Temporary(array) => run.temporaries[array].at(run.sizes, at),
            }),
            Step::Store { from, to } => {
                for lane in 0..self.lanes().map_or(1, |(_, count)| count) {
                    let (at, sizes, number) = (self.at_lane(lane), self.sizes, self.block(*from)[lane]);
                    let array = self.array(*to);
                    let place = array.place(sizes, &at);
                    array.numbers[place] = number;
                }
            }
            Step::Index { axis, to } => self.put(*to, |_, at| at[axis.index()] as f64),
            Step::Count { axis, to } => self.put(*to, |run, _| run.sizes[axis.index()] as f64),
            Step::Compute { graph, inputs, outputs, .. } => {
                for lane in 0..count {
                    let inputs: Vec<f64> =
                        inputs.iter().map(|register| self.block(*register)[lane]).collect();
                    let mut values: Vec<f64> = Vec::new();
                    for node in graph.nodes() {
                        values.push(match *node {
                            Node::Input(position) => inputs[position as usize],
                            node => pointwise(node, |id| values[id.index()]),
                        });
                    }
                    for (register, id) in outputs.iter().zip(graph.outputs()) {
                        self.block(*register)[lane] = values[id.index()];
                    }
                }
            }
            Step::Fill { register, value } => self.registers[*register].fill([*value; BLOCK]),
            Step::Fold { op, from, into } => {
                for lane in 0..count {
                    let from = F64::<Plain>::new(self.block(*from)[lane]);
                    let into = &mut self.block(*into)[lane];
                    *into = op.of_two(F64::new(*into), from).get();
                }
            }
            Step::Loop { axis, steps, .. } => self.go_along(*axis, steps),
            Step::Online(online) => self.online(online),
            Step::Across { op, register } => {
                for block in &mut self.registers[*register] {
                    let numbers = block.iter().map(|number| F64::<Plain>::new(*number));
                    let all = numbers.reduce(|a, b| op.of_two(a, b)).expect("a block has numbers");
                    *block = [all.get(); BLOCK];
                }
            }
        }
    }

    fn go_along(&mut self, axis: Axis, steps: &[Step]) {
        let around = (self.at, self.bound);
        self.bound = self.bound.with(axis);
        let (count, step) = self.positions(axis);
        let sharing = self.sharing.clone();
        for position in 0..count {
            self.at[axis.index()] = position * step;
            match sharing.as_ref().and_then(|(sides, fills)| Some((sides, *fills, sides.chunk(steps)?))) {
                Some((sides, fills, chunk)) => self.share(axis, (sides, fills), &chunk),
                None => steps.iter().for_each(|step| self.step(step)),
            }
            self.sharing = sharing.clone();
        }
        (self.at, self.bound) = around;
    }

    /// A position of a loop that has shared memory: what is in it is computed at any position of the other axis, and nothing else of
    /// what that takes is known afterwards.
    fn share(&mut self, along: Axis, (sides, fills): (&tile::Sides, bool), chunk: &tile::Chunk) {
        let at = self.at;
        for (which, steps) in chunk.fills.iter().enumerate() {
            let other = sides.axes[1 - which];
            if other != along {
                self.at[other.index()] = 0;
            }
            self.sharing =
                fills.then(|| (sides.of_fill(which, along, steps, &|place| (self.axes)(place)), false));
            steps.iter().for_each(|step| self.step(step));
            self.at = at;
            let written = uses::Uses::of(steps).written;
            for register in written.into_iter().filter(|register| !chunk.shared.contains(register)) {
                self.registers[register].fill([f64::NAN; BLOCK]);
            }
        }
        self.sharing = None;
        chunk.steps.iter().for_each(|step| self.step(step));
    }

    /// For every position of the free axes.
    fn go(&mut self, free: &[Axis]) {
        if let [axis, rest @ ..] = free {
            let around = (self.at, self.bound);
            self.bound = self.bound.with(*axis);
            let (count, step) = self.positions(*axis);
            for position in 0..count {
                self.at[axis.index()] = position * step;
                self.go(rest);
            }
            (self.at, self.bound) = around;
            return;
        }
        self.nest.steps.iter().for_each(|step| self.step(step));
    }
}

fn nested(graph: &Graph, nests: &Nests, sizes: &[usize], inputs: &[Array]) -> Vec<Array> {
    let nothing = |own: Axes| Array::new(own, sizes, |_| f64::NAN);
    let mut outputs: Vec<Array> = graph.output_axes().map(nothing).collect();
    let mut temporaries: Vec<Array> = nests.temporaries.iter().map(|own| nothing(*own)).collect();
    let (of_inputs, of_outputs): (Vec<Axes>, Vec<Axes>) =
        (graph.input_axes().collect(), graph.output_axes().collect());
    let axes = |place: Place| match place {
        Place::Input(input) => of_inputs[input],
        Place::Output(output) => of_outputs[output],
        Place::Temporary(array) => nests.temporaries[array],
    };
    for (number, nest) in nests.nests.iter().enumerate() {
        let tile = nests.tiles.get(number).and_then(Option::as_ref);
        let tiled = tile.map(|tile| Nest {
            registers: vec![Axes::NONE; tile.sides.varies.len()],
            steps: tile.steps.clone(),
            ..nest.clone()
        });
        let nest = tiled.as_ref().unwrap_or(nest);
        let mut run = Run {
            nest,
            sizes,
            inputs,
            outputs: &mut outputs,
            temporaries: &mut temporaries,
            registers: Vec::new(),
            sharing: tile.map(|tile| (tile.sides.clone(), true)),
            axes: &axes,
            at: [0; Axis::MOST],
            bound: Axes::NONE,
        };
        let blocks = |own: &Axes| own.iter().map(|axis| run.positions(axis).0).product();
        run.registers = nest.registers.iter().map(|own| vec![[f64::NAN; BLOCK]; blocks(own)]).collect();
        let free: Vec<Axis> = nest.free.iter().collect();
        run.go(&free);
    }
    outputs
}

/// Numbers between -1 and 1 for inputs on these axes.
fn numbers(axes: impl Iterator<Item = Axes>, sizes: &[usize], random: &mut Random) -> Vec<Array> {
    let mut number = || random.below(2001) as f64 / 1000.0 - 1.0;
    axes.map(|own| Array::new(own, sizes, |_| number())).collect()
}

/// The nests of a graph give what is expected.
fn check(graph: &Graph, sizes: &[usize], dense: &[Axes], inputs: &[Array], expected: &[Array], what: &str) {
    let few = sizes.iter().product::<usize>() <= 24;
    let card = few.then(|| (Nests::for_card(graph, CudaType::Float, false), "a card"));
    for (nests, of) in [(Nests::new(graph, sizes, dense), "the processor")].into_iter().chain(card) {
        for (own, other) in nested(graph, &nests, sizes, inputs).iter().zip(expected) {
            for (a, b) in own.numbers.iter().zip(&other.numbers) {
                let is_close =
                    a == b || (a - b).abs() <= 1e-9 * (1.0 + b.abs()) || (a.is_nan() && b.is_nan());
                assert!(is_close, "{what} for {of}, {sizes:?}: {a} for {b}\n{graph:?}");
            }
        }
    }
}

/// The nests of a graph give what it is.
fn compare(graph: &Graph, sizes: &[usize], dense: &[Axes], random: &mut Random, what: &str) {
    let inputs = numbers(graph.input_axes(), sizes, random);
    let expected = plain(&graph.without_detached(), sizes, &inputs);
    check(graph, sizes, dense, &inputs, &expected, what);
}

#[test]
fn random_nests_compute_random_graphs() {
    for seed in 0..120 {
        let mut random = Random(seed);
        let graph = graph(&mut random);
        let gradient = graph.gradient();
        let second = gradient.gradient();
        for sizes in
            [[5, 3, 4, 2], [2, 3, 2, 2], [130, 2, 3, 2], [2, 3, 17, 20], [3, 2, 0, 4], [2, 1, 3, 131]]
        {
            for (graph, order) in [(&graph, 0), (&gradient, 1), (&second, 2)] {
                let what = format!("seed {seed}, order {order}");
                let dense: Vec<Axes> = graph
                    .input_axes()
                    .chain(graph.output_axes())
                    .map(|own| own.both(random.axes()))
                    .collect();
                compare(graph, &sizes, &dense, &mut random, &what);
                if graph.outputs().len() > 1 {
                    compare(&graph.with_outputs(&[1]), &sizes, &[], &mut random, &what);
                }
            }
        }
    }
}

#[test]
fn what_is_folded_again_later_is_not_in_memory_for_that() {
    // Mean shift: the distances are folded along k, and so is what is made of their weights, which is in memory.
    let (i, j, k) = (0, 1, 2);
    let arguments = [("x", Axes::at(&[i, k])), ("y", Axes::at(&[j, k]))];
    let graph = trace_over(&["i", "j", "k"], &arguments, &[("z", Axes::at(&[i]))], |x| {
        let [j, k] = [j, k].map(Axis::new);
        let w = (-((x[0] - x[1]) * (x[0] - x[1])).sum(k)).exp();
        let m = (w * x[1]).sum(j) / w.sum(j) - x[0];
        vec![(m * m).sum(k)]
    });
    let pairs = Axes::at(&[i, j]);
    for nests in [Nests::new(&graph, &[5000, 5000, 3], &[]), Nests::for_card(&graph, CudaType::Float, false)]
    {
        assert!(nests.temporaries.iter().all(|axes| !pairs.is_within(*axes)), "{:?}", nests.temporaries);
    }
    let second = graph.gradient().gradient();
    for nests in
        [Nests::new(&second, &[5000, 5000, 3], &[]), Nests::for_card(&second, CudaType::Float, false)]
    {
        assert!(nests.temporaries.iter().all(|axes| !pairs.is_within(*axes)), "{:?}", nests.temporaries);
    }
}

#[test]
fn what_is_kept_of_another_position_is_not_taken_for_that_of_this() {
    // The gradient has loops along j within those, and what they compute for all of j is also wanted for one.
    let (i, j) = (Axis::new(0), Axis::new(1));
    let arguments = [("x", Axes::at(&[0, 1])), ("y", Axes::at(&[1, 2]))];
    let graph = trace_over(&NAMES, &arguments, &[("z", Axes::at(&[2]))], |x| {
        let (x, y) = (x[0], x[1]);
        let q = y / (x * x + 1.0);
        vec![Indexed::sum((x.sin() - y * y) * ((x + y) / (q * q + 1.0)), j).log_sum_exp(i)]
    });
    for sizes in [[5, 3, 4, 1], [5, 3, 0, 1], [0, 3, 4, 1], [130, 3, 4, 1], [3, 130, 4, 1]] {
        compare(&graph.gradient(), &sizes, &[], &mut Random(0), "gradient");
    }
}

#[test]
fn what_is_the_same_along_an_axis_is_not_folded_along_it() {
    for seed in 0..60 {
        let mut random = Random(seed);
        let graph = graph(&mut random).gradient();
        for sizes in [[5, 3, 4, 2], [130, 2, 1, 2], [3, 2, 0, 4]] {
            let less: Vec<Axes> = graph.input_axes().map(|own| own.both(random.axes())).collect();
            let outputs: Vec<Axes> = graph.output_axes().collect();
            let lying = graph.lying_on(&less, &outputs, Axes::NONE, &sizes);
            let axes = lying.axes();
            let varies = |node: &Node| match *node {
                Node::Fold(_, axis, a) => axes[a.index()].has(axis) || sizes[axis.index()] == 0,
                _ => true,
            };
            assert!(lying.nodes().iter().all(varies), "{lying:?}");
            let inputs = numbers(less.into_iter(), &sizes, &mut random);
            let whole = graph.input_axes().zip(&inputs);
            let whole: Vec<Array> =
                whole.map(|(own, input)| Array::new(own, &sizes, |at| input.at(&sizes, at))).collect();
            let expected = plain(&graph.without_detached(), &sizes, &whole);
            check(&lying, &sizes, &[], &inputs, &expected, &format!("seed {seed}"));
        }
    }
}

#[test]
fn pairs_are_not_computed_again_for_what_is_made_of_their_folds() {
    // Attention of which a query that sees nothing gets 0: gradients are sums over pairs, and chosen by masks of rows.
    let [query, key, value] = [[0, 1], [2, 1], [2, 3]].map(|axes| Axes::at(&axes));
    let arguments = [("query", query), ("key", key), ("value", value)];
    let names = ["i", "k", "j", "e"];
    let graph = trace_over(&names, &arguments, &[("z", Axes::at(&[0, 3]))], |x| {
        let (k, j) = (Axis::new(1), Axis::new(2));
        let weight = Indexed::sum(x[0] * x[1], k).exp();
        let (total, zero) = (Indexed::sum(weight, j), Expr::of(0.0));
        vec![Expr::select(total.gt(zero), Indexed::sum(weight * x[2], j) / total, zero)]
    });
    let nests = Nests::new(&graph.gradient(), &[512, 64, 512, 64], &[]);
    fn has_exponential(steps: &[Step]) -> bool {
        steps.iter().any(|step| match step {
            Step::Compute { graph, .. } => graph.formula().contains("exp("),
            Step::Loop { steps, .. } => has_exponential(steps),
            _ => false,
        })
    }
    let of_pairs: Vec<_> = nests.nests.iter().filter(|nest| has_exponential(&nest.steps)).collect();
    assert!(of_pairs.len() > 2 && of_pairs.iter().all(|nest| nest.free.len() == 1), "{of_pairs:?}");
}
