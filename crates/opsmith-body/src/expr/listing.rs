//! Graphs in numbers, as libraries and programs exchange them.

use crate::expr::graph::{Argument, Graph};
use crate::expr::node::{Binary, Compare, Id, Node, Unary};

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
    /// How many inputs there are.
    pub inputs: usize,
    /// For each node its opcode and what it is computed from: the position of an input, the bits of a float64, or up to three
    /// earlier nodes. What is left over is 0.
    pub nodes: Vec<[i64; 4]>,
    /// The node of each output.
    pub outputs: Vec<i64>,
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
}

/// The operations that are no functions of one number. Their positions are numbers of the C ABI: new ones come at the end.
const OTHERS: [(&str, Opcode); 16] = [
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
            Self::Input | Self::Constant | Self::Not | Self::Unary(_) => 1,
            Self::And | Self::Or | Self::Compare(_) | Self::Binary(_) => 2,
            Self::Select => 3,
        }
    }

    /// What a node does, and what it is computed from; none of one that is about axes.
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
            Node::Attribute(_) | Node::Fold(..) | Node::Count(_) | Node::Index(_) | Node::Detached(_) => {
                return None;
            }
        };
        let mut operands = [0; 3];
        operands.iter_mut().zip(node.operands()).for_each(|(operand, id)| *operand = id.0.into());
        Some((opcode, operands))
    }

    /// The node that does it with these operands, behind the nodes before it.
    fn node(self, operands: [i64; 3], inputs: usize, before: &[Node]) -> Result<Node, String> {
        let number = |k: usize| operand(operands[k], before, false);
        let mask = |k: usize| operand(operands[k], before, true);
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
    /// [has axes](Self::has_axes).
    pub fn to_listing(&self) -> Option<Listing> {
        if self.has_axes() {
            return None;
        }
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
        Some(Listing { inputs: graph.input_count(), nodes, outputs })
    }

    /// The graph that is listed, with inputs `x0`, `x1`, … and outputs `y0`, `y1`, …; none where a node does what is not known
    /// here, as one of a later version may.
    ///
    /// # Errors
    /// What is wrong with the listing, and in which node.
    pub fn from_listing(listing: &Listing) -> Result<Option<Self>, String> {
        let Listing { inputs, nodes, outputs } = listing;
        let counts = [
            (*inputs, MOST_ARGUMENTS, "inputs"),
            (nodes.len(), MOST_NODES, "nodes"),
            (outputs.len(), MOST_ARGUMENTS, "outputs"),
        ];
        if let Some((count, most, what)) = counts.into_iter().find(|(count, most, _)| count > most) {
            return Err(format!("expected at most {most} {what}, got {count}"));
        }
        if outputs.is_empty() {
            return Err("it has no output".to_owned());
        }
        let mut read = Vec::new();
        read.try_reserve_exact(nodes.len()).map_err(|_| "there is no memory for its nodes")?;
        for &[number, operands @ ..] in nodes {
            let Some(opcode) = Opcode::numbered(number) else { return Ok(None) };
            let node = opcode.node(operands, *inputs, &read);
            let at = |error| format!("node {}, `{}`: {error}", read.len(), opcode.told().1);
            let node = node.map_err(at)?;
            read.push(node);
        }
        let outputs = outputs.iter().enumerate().map(|(position, output)| {
            operand(*output, &read, false).map_err(|error| format!("output {position}: {error}"))
        });
        let outputs = outputs.collect::<Result<Vec<Id>, String>>()?;
        let names = |letter: char, count: usize| -> Vec<Argument> {
            (0..count).map(|k| Argument::each(format!("{letter}{k}"))).collect()
        };
        let arguments = (names('x', *inputs), names('y', outputs.len()));
        Ok(Some(Self::new(&read, &outputs, Vec::new(), arguments)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(inputs: usize, nodes: &[[i64; 4]], outputs: &[i64]) -> String {
        let listing = Listing { inputs, nodes: nodes.to_vec(), outputs: outputs.to_vec() };
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
        assert_eq!(error(1 << 40, &[input], &[0]), "expected at most 65536 inputs, got 1099511627776");
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
        for opcode in [-1, 16, 63, 1000, i64::MIN, i64::MAX] {
            let nodes = vec![[0, 0, 0, 0], [opcode, 0, 0, 0]];
            assert_eq!(Graph::from_listing(&Listing { inputs: 1, nodes, outputs: vec![1] }), Ok(None));
        }
    }
}
