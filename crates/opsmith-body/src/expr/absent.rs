//! Graphs of which some inputs are not there.

use crate::expr::graph::Graph;
use crate::expr::node::{Binary, Fold, Id, Node, Unary};

impl Graph {
    /// The graph where inputs that are so are nothing, as the gradient of an output that nobody asks for: what is made of them alone, and
    /// what they multiply, is nothing too, even if it is infinite, and is not computed. Else they are 0.
    #[must_use]
    pub fn without_inputs(&self, is_absent: impl Fn(usize) -> bool) -> Self {
        let mut nodes: Vec<Node> = vec![Node::Constant(0)];
        let zero = Id(0);
        let mut places: Vec<Option<Id>> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let place = |id: Id| places[id.index()];
            let what = match *node {
                Node::Input(position) if is_absent(position as usize) => What::Nothing,
                // What a condition leaves out is 0 in a gradient.
                Node::Select(_, a, b) if self.is_nothing(&places, a, b) => What::Nothing,
                _ => What::of(*node, place),
            };
            places.push(match what {
                What::Nothing => None,
                What::Place(place) => Some(place),
                What::Node(node) => {
                    nodes.push(node);
                    Some(Id(nodes.len() as u32 - 1))
                }
                What::Same => {
                    nodes.push(node.with_operands(|id| place(id).unwrap_or(zero)));
                    Some(Id(nodes.len() as u32 - 1))
                }
            });
        }
        let outputs: Vec<Id> = self.outputs.iter().map(|id| places[id.index()].unwrap_or(zero)).collect();
        Self::new(&nodes, &outputs, self.attributes.clone(), (self.inputs.clone(), self.results.clone()))
    }

    /// Whether one of two numbers is nothing, and the other nothing or 0.
    fn is_nothing(&self, places: &[Option<Id>], a: Id, b: Id) -> bool {
        let is_zero = |id: Id| places[id.index()].is_none() || self.nodes[id.index()] == Node::Constant(0);
        let is_one = places[a.index()].is_none() || places[b.index()].is_none();
        is_one && is_zero(a) && is_zero(b)
    }
}

/// What becomes of a node.
enum What {
    Nothing,
    /// It is another one.
    Place(Id),
    Node(Node),
    /// It has its operands, 0 where one is nothing.
    Same,
}

impl What {
    /// Of a node, given where its operands are that are something.
    fn of(node: Node, place: impl Fn(Id) -> Option<Id>) -> Self {
        match node {
            Node::Unary(Unary::Neg, a) | Node::Detached(a) | Node::Fold(Fold::Sum, _, a) => {
                place(a).map_or(Self::Nothing, |_| Self::Same)
            }
            Node::Binary(op @ (Binary::Add | Binary::Sub), a, b) => match (op, place(a), place(b)) {
                (_, None, None) => Self::Nothing,
                (_, Some(a), None) | (Binary::Add, None, Some(a)) => Self::Place(a),
                (_, None, Some(b)) => Self::Node(Node::Unary(Unary::Neg, b)),
                _ => Self::Same,
            },
            Node::Binary(Binary::Mul, a, b) if place(a).is_none() || place(b).is_none() => Self::Nothing,
            Node::Binary(Binary::Div, a, _) if place(a).is_none() => Self::Nothing,
            _ => Self::Same,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Axes, Axis, Indexed, Scalar, trace_over};

    #[test]
    fn what_is_made_of_an_absent_gradient_is_not_computed() {
        let (i, j) = (Axes::at(&[0]), Axes::at(&[0, 1]));
        let graph = trace_over(&["i", "j"], &[("x", j)], &[("y", j), ("z", i)], |x| {
            vec![x[0].exp(), (x[0] * x[0]).sum(Axis::new(1)).sqrt()]
        });
        let gradient = graph.gradient();
        let of = |absent: &[usize]| gradient.without_inputs(|input| absent.contains(&input)).formula();
        assert_eq!(of(&[2]), "x_grad = y_grad * exp(x)");
        assert!(!of(&[1]).contains("exp"), "{}", of(&[1]));
        assert_eq!(of(&[1, 2]), "x_grad = 0");
        // Nor which numbers are the largest.
        let graph = trace_over(&["i", "j"], &[("x", j)], &[("y", j), ("z", i)], |x| {
            vec![x[0] * x[0], x[0].amax(Axis::new(1))]
        });
        let gradient = graph.gradient().without_inputs(|input| input == 2);
        assert_eq!(gradient.formula(), "x_grad = x * y_grad * 2");
        assert_eq!(gradient.without_inputs(|_| false), gradient);
    }
}
