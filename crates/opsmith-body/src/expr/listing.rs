//! Graphs in numbers, as libraries and programs exchange them.

use crate::axes::{Axes, Axis};
use crate::expr::graph::{Argument, Graph};
use crate::expr::node::{Binary, Compare, Fold, Id, Node, Unary};

/// The most inputs and outputs of a listing, so that a number in it does not decide how much memory is taken.
const MOST_ARGUMENTS: usize = 1 << 16;

/// The most nodes.
const MOST_NODES: usize = 1 << 20;

/// A graph in numbers.
///
/// ```
/// use opsmith_body::{Graph, Scalar, compose};
///
/// let listing = compose(2, 1, |x| vec![x[0] * 2.0 + x[1].tanh()]).to_listing().unwrap();
/// assert_eq!(Graph::from_listing(&listing).unwrap().unwrap().formula(), "y0 = x0 * 2 + tanh(x1)");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// For each input the axes that it lies on, as [`Axes::bits`].
    pub inputs: Vec<u16>,
    /// For each node its opcode and what it is computed from: the position of an input, the bits of a float64, an axis, a node and
    /// the axis along which it is folded, or up to three earlier nodes. What is left over is 0.
    pub nodes: Vec<[i64; 4]>,
    /// The node of each output.
    pub outputs: Vec<i64>,
    /// For each output the axes that it lies on.
    pub results: Vec<u16>,
}

/// What a node of a listing does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Opcode {
    Input,
    Constant,
    Select,
    And,
    Or,
    Not,
    Compare(Compare),
    Binary(Binary),
    Unary(Unary),
    Fold(Fold),
    Count,
    Index,
}

/// The operations that are no functions of one number. Their positions are numbers of the C ABI: new ones come at the end.
const OTHERS: [(&str, Opcode); 22] = [
    ("input", Opcode::Input),
    ("constant", Opcode::Constant),
    ("select", Opcode::Select),
    ("and", Opcode::And),
    ("or", Opcode::Or),
    ("not", Opcode::Not),
    ("lt", Opcode::Compare(Compare::Lt)),
    ("le", Opcode::Compare(Compare::Le)),
    ("eq", Opcode::Compare(Compare::Eq)),
    ("add", Opcode::Binary(Binary::Add)),
    ("sub", Opcode::Binary(Binary::Sub)),
    ("mul", Opcode::Binary(Binary::Mul)),
    ("div", Opcode::Binary(Binary::Div)),
    ("pow", Opcode::Binary(Binary::Pow)),
    ("min", Opcode::Binary(Binary::Min)),
    ("max", Opcode::Binary(Binary::Max)),
    ("fold_sum", Opcode::Fold(Fold::Sum)),
    ("fold_max", Opcode::Fold(Fold::Max)),
    ("fold_min", Opcode::Fold(Fold::Min)),
    ("fold_product", Opcode::Fold(Fold::Product)),
    ("count", Opcode::Count),
    ("index", Opcode::Index),
];

/// The number of the first function of one number.
const FIRST_UNARY: i64 = 64;

/// The operations of listings: numbers, which are those of the C ABI, and names in texts.
pub fn opcodes() -> impl Iterator<Item = (i64, &'static str)> {
    all().map(|(number, name, _)| (number, name))
}

/// All operations: number, name, what they do.
fn all() -> impl Iterator<Item = (i64, &'static str, Opcode)> {
    let others = OTHERS.iter().zip(0..).map(|(&(name, opcode), number)| (number, name, opcode));
    let unary = Unary::ALL.iter().zip(FIRST_UNARY..);
    others.chain(unary.map(|(&op, number)| (number, op.name(), Opcode::Unary(op))))
}

impl Opcode {
    /// Its number and name.
    pub(crate) fn told(self) -> (i64, &'static str) {
        all().find(|(.., opcode)| *opcode == self).map_or((-1, ""), |(number, name, _)| (number, name))
    }

    pub(crate) fn named(word: &str) -> Option<Self> {
        all().find(|(_, name, _)| *name == word).map(|(.., opcode)| opcode)
    }

    pub(crate) fn numbered(number: i64) -> Option<Self> {
        all().find(|(known, ..)| *known == number).map(|(.., opcode)| opcode)
    }

    /// How many numbers it is computed from.
    pub(crate) fn arity(self) -> usize {
        match self {
            Self::Input | Self::Constant | Self::Count | Self::Index | Self::Not | Self::Unary(_) => 1,
            Self::And | Self::Or | Self::Compare(_) | Self::Binary(_) | Self::Fold(_) => 2,
            Self::Select => 3,
        }
    }

    /// What a node does, and what it is computed from; none of what a listing does not have.
    fn of(node: Node) -> Option<(Self, [i64; 3])> {
        let opcode = match node {
            Node::Input(position) => return Some((Self::Input, [position.into(), 0, 0])),
            Node::Constant(bits) => return Some((Self::Constant, [bits as i64, 0, 0])),
            Node::Select(..) => Self::Select,
            Node::And(..) => Self::And,
            Node::Or(..) => Self::Or,
            Node::Not(_) => Self::Not,
            Node::Compare(op, ..) => Self::Compare(op),
            Node::Binary(op, ..) => Self::Binary(op),
            Node::Unary(op, _) => Self::Unary(op),
            Node::Fold(op, axis, a) => return Some((Self::Fold(op), [a.0.into(), axis.index() as i64, 0])),
            Node::Count(axis) => return Some((Self::Count, [axis.index() as i64, 0, 0])),
            Node::Index(axis) => return Some((Self::Index, [axis.index() as i64, 0, 0])),
            Node::Attribute(_) | Node::Detached(_) => return None,
        };
        let mut operands = [0; 3];
        operands.iter_mut().zip(node.operands()).for_each(|(operand, id)| *operand = id.0.into());
        Some((opcode, operands))
    }

    /// The node that does it with these operands, behind the nodes before it.
    fn node(self, operands: [i64; 3], inputs: usize, before: &[Node]) -> Result<Node, String> {
        let number = |k: usize| operand(operands[k], before, false);
        let mask = |k: usize| operand(operands[k], before, true);
        let axis = |k: usize| match usize::try_from(operands[k]) {
            Ok(axis) if axis < Axis::MOST => Ok(Axis::new(axis)),
            _ => Err(format!("expected one of {} axes, got {}", Axis::MOST, operands[k])),
        };
        if let Some(more) = operands[self.arity()..].iter().find(|operand| **operand != 0) {
            return Err(format!("expected {} operands and then zeros, got {more}", self.arity()));
        }
        Ok(match self {
            Self::Input => match u32::try_from(operands[0]) {
                Ok(position) if (position as usize) < inputs => Node::Input(position),
                _ => return Err(format!("expected one of {inputs} inputs, got {}", operands[0])),
            },
            Self::Constant => Node::Constant(operands[0] as u64),
            Self::Select => Node::Select(mask(0)?, number(1)?, number(2)?),
            Self::And => Node::And(mask(0)?, mask(1)?),
            Self::Or => Node::Or(mask(0)?, mask(1)?),
            Self::Not => Node::Not(mask(0)?),
            Self::Compare(op) => Node::Compare(op, number(0)?, number(1)?),
            Self::Binary(op) => Node::Binary(op, number(0)?, number(1)?),
            Self::Unary(op) => Node::Unary(op, number(0)?),
            Self::Fold(op) => Node::Fold(op, axis(1)?, number(0)?),
            Self::Count => Node::Count(axis(0)?),
            Self::Index => Node::Index(axis(0)?),
        })
    }
}

/// An earlier node, a mask or a number.
fn operand(id: i64, before: &[Node], is_mask: bool) -> Result<Id, String> {
    let known = u32::try_from(id).ok().filter(|&id| (id as usize) < before.len());
    let known =
        known.ok_or_else(|| format!("expected one of the {} nodes before it, got {id}", before.len()))?;
    if before[known as usize].is_mask() != is_mask {
        return Err(match is_mask {
            true => format!("expected a mask, got number {id}"),
            false => format!("expected a number, got mask {id}"),
        });
    }
    Ok(Id(known))
}

impl Graph {
    /// The graph in numbers, attributes with the values that they were traced with; none if it
    /// has a node that listings do not have.
    pub fn to_listing(&self) -> Option<Listing> {
        let graph = self.without_detached();
        let listed = |node: &Node| {
            let node = match *node {
                Node::Attribute(position) => Node::Constant(graph.attributes[position as usize].1.to_bits()),
                other => other,
            };
            let (opcode, [a, b, c]) = Opcode::of(node)?;
            Some([opcode.told().0, a, b, c])
        };
        let nodes = graph.nodes().iter().map(listed).collect::<Option<_>>()?;
        let outputs = graph.outputs().iter().map(|id| id.0.into()).collect();
        let (inputs, results) =
            (graph.input_axes().map(Axes::bits).collect(), graph.output_axes().map(Axes::bits).collect());
        Some(Listing { inputs, nodes, outputs, results })
    }

    /// The graph that is listed, with inputs `x0`, `x1`, … and outputs `y0`, `y1`, …; none where a node does what is not known
    /// here, as one of a later version may.
    ///
    /// # Errors
    /// What is wrong with the listing, and in which node.
    pub fn from_listing(listing: &Listing) -> Result<Option<Self>, String> {
        let Listing { inputs, nodes, outputs, results } = listing;
        let counts = [
            (inputs.len(), MOST_ARGUMENTS, "inputs"),
            (nodes.len(), MOST_NODES, "nodes"),
            (outputs.len(), MOST_ARGUMENTS, "outputs"),
        ];
        if let Some((count, most, what)) = counts.into_iter().find(|(count, most, _)| count > most) {
            return Err(format!("expected at most {most} {what}, got {count}"));
        }
        if outputs.is_empty() {
            return Err("it has no output".to_owned());
        }
        if results.len() != outputs.len() {
            return Err(format!("expected the axes of {} outputs, got {}", outputs.len(), results.len()));
        }
        let mut read = Vec::new();
        read.try_reserve_exact(nodes.len()).map_err(|_| "there is no memory for its nodes")?;
        for &[number, operands @ ..] in nodes {
            let Some(opcode) = Opcode::numbered(number) else { return Ok(None) };
            let node = opcode.node(operands, inputs.len(), &read);
            let at = |error| format!("node {}, `{}`: {error}", read.len(), opcode.told().1);
            let node = node.map_err(at)?;
            read.push(node);
        }
        let outputs = outputs.iter().enumerate().map(|(position, output)| {
            operand(*output, &read, false).map_err(|error| format!("output {position}: {error}"))
        });
        let outputs = outputs.collect::<Result<Vec<Id>, String>>()?;
        let arguments = |letter: char, all: &[u16]| -> Vec<Argument> {
            let axes = all.iter().map(|&bits| Axes::from_bits(bits));
            axes.enumerate().map(|(k, axes)| Argument { name: format!("{letter}{k}"), axes }).collect()
        };
        let arguments = (arguments('x', inputs), arguments('y', results));
        let graph = Self::new(&read, &outputs, Vec::new(), arguments);
        let more = |(_, (result, own)): &(usize, (Axes, Axes))| !result.is_within(*own);
        let found = graph.result_axes().into_iter().zip(graph.output_axes()).enumerate().find(more);
        if let Some((output, (result, own))) = found {
            return Err(format!("output {output}: it is on axes {result:?}, should be on {own:?}"));
        }
        Ok(Some(graph))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(inputs: usize, nodes: &[[i64; 4]], outputs: &[i64]) -> String {
        let (inputs, results) = (vec![1; inputs], vec![1; outputs.len()]);
        let listing = Listing { inputs, nodes: nodes.to_vec(), outputs: outputs.to_vec(), results };
        Graph::from_listing(&listing).unwrap_err()
    }

    #[test]
    fn numbers_and_names_are_different() {
        let all: Vec<_> = all().collect();
        for (index, (number, name, opcode)) in all.iter().enumerate() {
            assert!(!all[..index].iter().any(|(known, other, _)| known == number || other == name));
            assert_eq!(Opcode::numbered(*number), Some(*opcode));
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        let (input, add, exp, lt) = ([0, 0, 0, 0], 9, 65, 6);
        assert_eq!(error(1, &[input], &[]), "it has no output");
        assert_eq!(error(1 << 17, &[input], &[0]), "expected at most 65536 inputs, got 131072");
        let fold = "node 1, `fold_sum`: expected one of 16 axes, got 16";
        assert_eq!(error(1, &[input, [16, 0, 16, 0]], &[1]), fold);
        let listing = Listing { inputs: vec![1], nodes: vec![input], outputs: vec![0], results: vec![0] };
        let row = "output 0: it is on axes {0}, should be on {}";
        assert_eq!(Graph::from_listing(&listing), Err(row.to_owned()));
        assert_eq!(error(1, &[[0, 1, 0, 0]], &[0]), "node 0, `input`: expected one of 1 inputs, got 1");
        assert_eq!(error(1, &[[0, -1, 0, 0]], &[0]), "node 0, `input`: expected one of 1 inputs, got -1");
        let later = "node 1, `add`: expected one of the 1 nodes before it, got 1";
        assert_eq!(error(1, &[input, [add, 0, 1, 0]], &[1]), later);
        let more = "node 1, `exp`: expected 1 operands and then zeros, got 2";
        assert_eq!(error(1, &[input, [exp, 0, 0, 2]], &[1]), more);
        let mask = [lt, 0, 0, 0];
        assert_eq!(error(1, &[input, mask], &[1]), "output 0: expected a number, got mask 1");
        let select = "node 1, `select`: expected a mask, got number 0";
        assert_eq!(error(1, &[input, [2, 0, 0, 0]], &[1]), select);
        assert_eq!(error(1, &[input], &[-1]), "output 0: expected one of the 1 nodes before it, got -1");
    }

    #[test]
    fn what_a_later_version_adds_is_not_known() {
        for opcode in [-1, 22, 63, 1000, i64::MIN, i64::MAX] {
            let nodes = vec![[0, 0, 0, 0], [opcode, 0, 0, 0]];
            let listing = Listing { inputs: vec![1], nodes, outputs: vec![1], results: vec![1] };
            assert_eq!(Graph::from_listing(&listing), Ok(None));
        }
    }
}
