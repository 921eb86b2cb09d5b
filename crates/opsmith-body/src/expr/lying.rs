//! Graphs for arguments that lie on other axes than those of the body.

use crate::axes::{Axes, Axis};
use crate::expr::graph::{Argument, Graph};
use crate::expr::node::{Binary, Fold, Id, Node};

impl Graph {
    /// The same computation with its arguments on other axes: inputs on fewer of their own, along which they are the same, and both on
    /// those of a batch. An output that lacks one of its own or of the batch is summed over it.
    ///
    /// # Panics
    /// If there are more or fewer sets than inputs and outputs.
    #[must_use]
    pub fn lying_on(&self, inputs: &[Axes], outputs: &[Axes], batch: Axes, sizes: &[usize]) -> Self {
        assert_eq!((inputs.len(), outputs.len()), (self.inputs.len(), self.results.len()), "axes for each");
        let mut graph = Self { saved: Vec::new(), ..self.clone() };
        for (argument, axes) in graph.inputs.iter_mut().zip(inputs) {
            argument.axes = *axes;
        }
        graph.fold_what_varies(sizes);
        let axes = graph.axes();
        for (position, own) in outputs.iter().enumerate() {
            let result = &mut graph.results[position];
            let lacking = result.axes.union(batch).minus(*own);
            result.axes = *own;
            let of_node = axes[graph.outputs[position].index()];
            for axis in lacking.iter() {
                let (size, id) = (sizes[axis.index()], graph.outputs[position]);
                graph.outputs[position] = match size {
                    0 => graph.push(Node::Fold(Fold::Sum, axis, id)),
                    2.. if of_node.has(axis) => graph.push(Node::Fold(Fold::Sum, axis, id)),
                    _ => graph.times(Binary::Mul, id, size),
                };
            }
        }
        graph
    }

    /// Leaves out folds of numbers that are the same all along the axis, unless that is empty: their sum is a product, their product
    /// a power, and each is the largest. An array of one number may claim to have more than could ever be gone through.
    fn fold_what_varies(&mut self, sizes: &[usize]) {
        let nodes = std::mem::take(&mut self.nodes);
        let (mut places, mut axes): (Vec<Id>, Vec<Axes>) = (Vec::new(), Vec::new());
        for node in nodes {
            let own = node.axes(|position| self.inputs[position as usize].axes, |id| axes[id.index()]);
            let is_same = |axis: Axis, a: Id| !axes[a.index()].has(axis) && sizes[axis.index()] > 0;
            let place = match node {
                Node::Fold(op, axis, a) if is_same(axis, a) => match op {
                    Fold::Sum => self.times(Binary::Mul, places[a.index()], sizes[axis.index()]),
                    Fold::Product => self.times(Binary::Pow, places[a.index()], sizes[axis.index()]),
                    Fold::Max | Fold::Min => places[a.index()],
                },
                _ => self.push(node.with_operands(|id| places[id.index()])),
            };
            axes.push(own);
            places.push(place);
        }
        self.outputs.iter_mut().for_each(|output| *output = places[output.index()]);
    }

    fn push(&mut self, node: Node) -> Id {
        self.nodes.push(node);
        Id(self.nodes.len() as u32 - 1)
    }

    /// A number so many times, added up or multiplied.
    fn times(&mut self, op: Binary, id: Id, count: usize) -> Id {
        if count == 1 {
            return id;
        }
        let count = self.push(Node::Constant((count as f64).to_bits()));
        self.push(Node::Binary(op, id, count))
    }

    /// The graph with several axes in the place of one, whose positions are those of all together, the last one's the fastest but
    /// for the axis itself, whose are faster still.
    #[must_use]
    pub fn spread(&self, axis: usize, group: Axes, sizes: &[usize]) -> Self {
        let axis = Axis::new(axis);
        // From the fastest on.
        let group: Vec<Axis> = [axis].into_iter().chain(group.without(axis).iter().rev()).collect();
        let size = |axis: &Axis| sizes[axis.index()] as f64;
        let mut nodes: Vec<Node> = Vec::with_capacity(self.nodes.len());
        let mut places: Vec<Id> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let mut push = |node: Node| {
                nodes.push(node);
                Id(nodes.len() as u32 - 1)
            };
            let place = match *node {
                Node::Fold(op, own, a) if own == axis => {
                    group.iter().fold(places[a.index()], |a, axis| push(Node::Fold(op, *axis, a)))
                }
                Node::Count(own) if own == axis => {
                    push(Node::Constant(group.iter().map(size).product::<f64>().to_bits()))
                }
                Node::Index(own) if own == axis => {
                    let mut stride = 1.0;
                    let mut at = push(Node::Index(axis));
                    for pair in group.windows(2) {
                        stride *= size(&pair[0]);
                        let (along, stride) =
                            (push(Node::Index(pair[1])), push(Node::Constant(f64::to_bits(stride))));
                        let along = push(Node::Binary(Binary::Mul, along, stride));
                        at = push(Node::Binary(Binary::Add, at, along));
                    }
                    at
                }
                _ => push(node.with_operands(|id| places[id.index()])),
            };
            places.push(place);
        }
        let outputs = self.outputs.iter().map(|id| places[id.index()]).collect();
        let all = group.into_iter().fold(Axes::NONE, Axes::with);
        let of = |arguments: &[Argument]| {
            let spread = |axes: Axes| if axes.has(axis) { axes.union(all) } else { axes };
            arguments.iter().map(|own| Argument { name: own.name.clone(), axes: spread(own.axes) }).collect()
        };
        let (inputs, results) = (of(&self.inputs), of(&self.results));
        Self { nodes, outputs, inputs, results, saved: Vec::new(), ..self.clone() }
    }
}
