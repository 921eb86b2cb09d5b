//! Graphs computed number by number, each node once at all positions of its axes.

use opsmith_body::{Axes, Axis, F64, Fold, Graph, Node, Plain, Scalar};

type Number = F64<Plain>;

/// Numbers at all positions of some axes, the last axis the fastest.
#[derive(Clone)]
pub(super) struct Array {
    pub(super) axes: Axes,
    pub(super) numbers: Vec<f64>,
}

impl Array {
    /// Where its number for a position is.
    pub(super) fn index(&self, sizes: &[usize], at: &[usize]) -> usize {
        self.axes.iter().fold(0, |index, axis| index * sizes[axis.index()] + at[axis.index()])
    }
}

/// Calls a function with all positions of some axes, in order.
pub(super) fn each_position(axes: Axes, sizes: &[usize], mut each: impl FnMut(&[usize])) {
    let count: usize = axes.iter().map(|axis| sizes[axis.index()]).product();
    let mut at = vec![0; sizes.len()];
    for _ in 0..count {
        each(&at);
        for axis in axes.iter().rev() {
            let own = &mut at[axis.index()];
            *own += 1;
            if *own < sizes[axis.index()] {
                break;
            }
            *own = 0;
        }
    }
}

/// The outputs of a graph.
pub(super) fn evaluate(graph: &Graph, sizes: &[usize], inputs: &[Array]) -> Vec<Array> {
    let mut known: Vec<Array> = Vec::with_capacity(graph.nodes().len());
    for node in graph.nodes() {
        let own = match *node {
            Node::Fold(op, axis, a) => folded(op, axis, &known[a.index()], sizes),
            Node::Input(position) => inputs[position as usize].clone(),
            _ => {
                let of_operands = node.operands().map(|a| known[a.index()].axes);
                let index = if let Node::Index(axis) = node { Axes::of(*axis) } else { Axes::NONE };
                let axes = of_operands.fold(index, Axes::union);
                let mut numbers = Vec::new();
                each_position(axes, sizes, |at| {
                    numbers.push(of_node(graph, *node, sizes, at, |a| {
                        let array = &known[a];
                        array.numbers[array.index(sizes, at)]
                    }));
                });
                Array { axes, numbers }
            }
        };
        known.push(own);
    }
    graph.outputs().iter().map(|id| known[id.index()].clone()).collect()
}

fn of_node(graph: &Graph, node: Node, sizes: &[usize], at: &[usize], of: impl Fn(usize) -> f64) -> f64 {
    let number = |id: opsmith_body::Id| Number::new(of(id.index()));
    let truth = |id: opsmith_body::Id| of(id.index()) != 0.0;
    match node {
        Node::Constant(bits) => f64::from_bits(bits),
        Node::Attribute(position) => graph.attributes()[position as usize].1,
        Node::Unary(op, a) => op.apply(number(a)).get(),
        Node::Binary(op, a, b) => op.apply(number(a), number(b)).get(),
        Node::Select(mask, a, b) => of(if truth(mask) { a.index() } else { b.index() }),
        Node::Compare(op, a, b) => {
            let mask = op.apply(number(a), number(b));
            Number::select(mask, Number::new(1.0), Number::new(0.0)).get()
        }
        Node::And(a, b) => f64::from(u8::from(truth(a) & truth(b))),
        Node::Or(a, b) => f64::from(u8::from(truth(a) | truth(b))),
        Node::Not(a) => f64::from(u8::from(!truth(a))),
        Node::Detached(a) => of(a.index()),
        Node::Count(axis) => sizes[axis.index()] as f64,
        Node::Index(axis) => at[axis.index()] as f64,
        Node::Fold(..) | Node::Input(_) => unreachable!("they are no functions of numbers"),
    }
}

fn folded(op: Fold, axis: Axis, of: &Array, sizes: &[usize]) -> Array {
    let axes = of.axes.without(axis);
    let mut numbers = Vec::new();
    each_position(axes, sizes, |at| {
        let mut at = at.to_vec();
        let mut all = op.identity::<Number>();
        for position in 0..sizes[axis.index()] {
            at[axis.index()] = position;
            all = op.of_two(all, Number::new(of.numbers[of.index(sizes, &at)]));
        }
        numbers.push(all.get());
    });
    Array { axes, numbers }
}
