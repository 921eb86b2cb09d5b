//! Graphs as text that programs exchange: one line for the inputs, one for each node, one for each output.

use crate::expr::graph::{Argument, Binary, Compare, Graph, Id, Node, Unary};

/// The most inputs that a text may speak of, so that a number in it does not decide how much memory is taken.
const MOST_INPUTS: u32 = 1 << 16;

const BINARY: [(Binary, &str); 7] = [
    (Binary::Add, "add"),
    (Binary::Sub, "sub"),
    (Binary::Mul, "mul"),
    (Binary::Div, "div"),
    (Binary::Pow, "pow"),
    (Binary::Min, "min"),
    (Binary::Max, "max"),
];

const COMPARE: [(Compare, &str); 3] = [(Compare::Lt, "lt"), (Compare::Le, "le"), (Compare::Eq, "eq")];

impl Graph {
    /// The graph as text, which [`parse`](Self::parse) reads; none if it [has axes](Self::has_axes).
    ///
    /// Each node is a line: a word, and the numbers of the nodes that it is computed from. Attributes have the values that
    /// they were traced with; constants are written as the bits of a float64.
    ///
    /// ```
    /// use opsmith_body::{Graph, Scalar, compose};
    ///
    /// let graph = compose(2, 1, |x| vec![x[0] * 2.0 + x[1].tanh()]);
    /// let text = graph.to_text().unwrap();
    /// assert_eq!(Graph::parse(&text).unwrap().formula(), "y0 = x0 * 2 + tanh(x1)");
    /// ```
    pub fn to_text(&self) -> Option<String> {
        if self.has_axes() {
            return None;
        }
        let graph = self.without_detached();
        let mut lines = vec![format!("inputs {}", graph.input_count())];
        for node in graph.nodes() {
            let word = match *node {
                Node::Input(position) => format!("input {position}"),
                Node::Attribute(position) => {
                    format!("constant {:016x}", graph.attributes[position as usize].1.to_bits())
                }
                Node::Constant(bits) => format!("constant {bits:016x}"),
                Node::Unary(op, _) => op.name().to_owned(),
                Node::Binary(op, ..) => name_of(&BINARY, op).to_owned(),
                Node::Compare(op, ..) => name_of(&COMPARE, op).to_owned(),
                Node::Select(..) => "select".to_owned(),
                Node::And(..) => "and".to_owned(),
                Node::Or(..) => "or".to_owned(),
                Node::Not(..) => "not".to_owned(),
                Node::Fold(..) | Node::Count(_) | Node::Index(_) | Node::Detached(_) => return None,
            };
            let operands = node.operands().map(|id| format!(" {}", id.0));
            lines.push(operands.fold(word, |line, operand| line + &operand));
        }
        lines.extend(graph.outputs().iter().map(|id| format!("output {}", id.0)));
        Some(lines.join("\n"))
    }

    /// The graph of a text that [`to_text`](Self::to_text) gave, with inputs `x0`, `x1`, … and outputs `y0`, `y1`, ….
    ///
    /// # Errors
    /// What is wrong with the text, and in which line.
    pub fn parse(text: &str) -> Result<Graph, String> {
        let mut reader = Reader::default();
        for (index, line) in text.lines().enumerate() {
            reader.line(line).map_err(|error| format!("line {}, `{line}`: {error}", index + 1))?;
        }
        let inputs = reader.inputs.ok_or("it is empty")?;
        if reader.outputs.is_empty() {
            return Err("it has no output".to_owned());
        }
        let names = |letter: char, count: usize| -> Vec<Argument> {
            (0..count).map(|k| Argument::each(format!("{letter}{k}"))).collect()
        };
        let arguments = (names('x', inputs as usize), names('y', reader.outputs.len()));
        Ok(Graph::new(&reader.nodes, &reader.outputs, Vec::new(), arguments))
    }
}

fn name_of<T: PartialEq>(names: &[(T, &'static str)], op: T) -> &'static str {
    names.iter().find(|(known, _)| *known == op).map_or("", |(_, name)| name)
}

fn named<T: Copy>(names: &[(T, &str)], word: &str) -> Option<T> {
    names.iter().find(|(_, name)| *name == word).map(|(op, _)| *op)
}

/// What was read so far.
#[derive(Default)]
struct Reader {
    inputs: Option<u32>,
    nodes: Vec<Node>,
    /// Which nodes are masks.
    masks: Vec<bool>,
    outputs: Vec<Id>,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split_ascii_whitespace();
        let word = words.next().ok_or("it says nothing")?;
        let rest: Vec<&str> = words.collect();
        let Some(inputs) = self.inputs else {
            let number =
                single(&rest)?.parse().ok().filter(|&count| word == "inputs" && count <= MOST_INPUTS);
            self.inputs = Some(number.ok_or("it should say how many inputs there are, `inputs 2`")?);
            return Ok(());
        };
        if word == "output" {
            let output = self.operand(single(&rest)?, false)?;
            self.outputs.push(output);
            return Ok(());
        }
        let node = match word {
            "input" => {
                let position = single(&rest)?.parse().ok().filter(|&position| position < inputs);
                Node::Input(position.ok_or_else(|| format!("there are {inputs} inputs"))?)
            }
            "constant" => {
                let bits = u64::from_str_radix(single(&rest)?, 16);
                Node::Constant(bits.map_err(|_| "it should have 16 hexadecimal digits")?)
            }
            _ => self.operation(word, &rest)?,
        };
        self.masks.push(matches!(node, Node::Compare(..) | Node::And(..) | Node::Or(..) | Node::Not(_)));
        self.nodes.push(node);
        Ok(())
    }

    /// A node that is computed from others.
    fn operation(&self, word: &str, operands: &[&str]) -> Result<Node, String> {
        let number = |k: usize| self.operand(operands.get(k).copied().unwrap_or_default(), false);
        let mask = |k: usize| self.operand(operands.get(k).copied().unwrap_or_default(), true);
        let node = if let Some(op) = Unary::ALL.iter().copied().find(|op| op.name() == word) {
            Node::Unary(op, number(0)?)
        } else if let Some(op) = named(&BINARY, word) {
            Node::Binary(op, number(0)?, number(1)?)
        } else if let Some(op) = named(&COMPARE, word) {
            Node::Compare(op, number(0)?, number(1)?)
        } else {
            match word {
                "select" => Node::Select(mask(0)?, number(1)?, number(2)?),
                "and" => Node::And(mask(0)?, mask(1)?),
                "or" => Node::Or(mask(0)?, mask(1)?),
                "not" => Node::Not(mask(0)?),
                _ => return Err("there is no such operation".to_owned()),
            }
        };
        let expected = node.operands().count();
        if operands.len() != expected {
            return Err(format!("expected {expected} operands"));
        }
        Ok(node)
    }

    /// An earlier node, a mask or a number.
    fn operand(&self, word: &str, is_mask: bool) -> Result<Id, String> {
        let known = word.parse::<u32>().ok().filter(|&id| (id as usize) < self.nodes.len());
        let id = known.ok_or_else(|| format!("`{word}` is no node before it"))?;
        if self.masks[id as usize] != is_mask {
            return Err(format!("node {id} is {} mask", if is_mask { "no" } else { "a" }));
        }
        Ok(Id(id))
    }
}

fn single<'a>(words: &[&'a str]) -> Result<&'a str, String> {
    match words {
        [word] => Ok(word),
        _ => Err("expected one word after the first".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::{Expr, compose};
    use crate::scalar::Scalar;

    #[test]
    fn every_operation_is_written_and_read() {
        let graph = compose(3, 3, |x| {
            let [a, b, c] = [x[0], x[1], x[2]];
            let unary =
                a.exp().log() + a.log1p() + a.expm1() + a.tanh() + a.sigmoid() + a.erf() + a.normal_cdf();
            let more = a.normal_pdf() + a.softplus() + a.sin() + a.cos() + a.sqrt() + a.rsqrt() + a.abs();
            let binary = b.pow(c) - b.min(c) * b.max(c) / (a.sign() + a.floor());
            let mask = (a.lt(b) & b.le(c)) | !a.eq(c);
            vec![unary + more, Scalar::select(mask, binary, -a), c * 0.1 + f64::NEG_INFINITY]
        });
        let text = graph.to_text().unwrap();
        let read = Graph::parse(&text).unwrap();
        assert_eq!(read.nodes(), graph.nodes());
        assert_eq!(read.outputs(), graph.outputs());
        assert_eq!(read.to_text().unwrap(), text);
    }

    #[test]
    fn attributes_have_their_values() {
        let graph = compose(1, 1, |x| vec![x[0] * Expr::attr("slope", 0.25)]);
        assert_eq!(Graph::parse(&graph.to_text().unwrap()).unwrap().formula(), "y0 = x0 * 0.25");
    }

    #[test]
    fn what_is_wrong_is_told() {
        let errors = [
            ("", "it is empty"),
            ("input 0", "line 1, `input 0`: it should say how many inputs there are, `inputs 2`"),
            (
                "inputs 99999999",
                "line 1, `inputs 99999999`: it should say how many inputs there are, `inputs 2`",
            ),
            ("inputs 1\ninput 0", "it has no output"),
            ("inputs 1\ninput 1", "line 2, `input 1`: there are 1 inputs"),
            ("inputs 1\ninput 0\nexp 1\noutput 0", "line 3, `exp 1`: `1` is no node before it"),
            ("inputs 1\ninput 0\nadd 0\noutput 0", "line 3, `add 0`: `` is no node before it"),
            ("inputs 1\ninput 0\nexp 0 0\noutput 0", "line 3, `exp 0 0`: expected 1 operands"),
            ("inputs 1\ninput 0\nlt 0 0\noutput 1", "line 4, `output 1`: node 1 is a mask"),
            ("inputs 1\ninput 0\nnot 0\noutput 0", "line 3, `not 0`: node 0 is no mask"),
            ("inputs 1\ninput 0\nfrob 0\noutput 0", "line 3, `frob 0`: there is no such operation"),
            (
                "inputs 1\nconstant xyz\noutput 0",
                "line 2, `constant xyz`: it should have 16 hexadecimal digits",
            ),
        ];
        for (text, expected) in errors {
            assert_eq!(Graph::parse(text).unwrap_err(), expected);
        }
    }
}
