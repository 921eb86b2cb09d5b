//! Graphs as text: a [`Listing`] with a line for the inputs, one for each node, one for each output.

use crate::expr::graph::Graph;
use crate::expr::listing::{Listing, Opcode};

impl Graph {
    /// The graph as text, which [`parse`](Self::parse) reads; none if it has no [listing](Self::to_listing).
    ///
    /// The first line says of each input on which axes it lies, as bits. Each node is a line: a word, and the numbers of the nodes
    /// that it is computed from; an output is the number of a node, and its axes. Attributes have the values that they were traced
    /// with; constants are written as the bits of a float64.
    ///
    /// ```
    /// use opsmith_body::{Graph, Scalar, compose};
    ///
    /// let graph = compose(2, 1, |x| vec![x[0] * 2.0 + x[1].tanh()]);
    /// let text = graph.to_text().unwrap();
    /// assert_eq!(Graph::parse(&text).unwrap().formula(), "y0 = x0 * 2 + tanh(x1)");
    /// ```
    pub fn to_text(&self) -> Option<String> {
        let listing = self.to_listing()?;
        let inputs = listing.inputs.iter().map(|axes| format!(" {axes}")).collect::<String>();
        let mut lines = vec![format!("inputs{inputs}")];
        for &[number, ref operands @ ..] in &listing.nodes {
            let opcode = Opcode::numbered(number)?;
            let line = opcode.told().1.to_owned();
            lines.push(match opcode {
                Opcode::Constant => format!("{line} {:016x}", operands[0]),
                _ => {
                    operands[..opcode.arity()].iter().fold(line, |line, operand| format!("{line} {operand}"))
                }
            });
        }
        let outputs = listing.outputs.iter().zip(&listing.results);
        lines.extend(outputs.map(|(output, axes)| format!("output {output} {axes}")));
        Some(lines.join("\n"))
    }

    /// The graph of a text that [`to_text`](Self::to_text) gave, with inputs `x0`, `x1`, … and outputs `y0`, `y1`, ….
    ///
    /// # Errors
    /// What is wrong with the text, and in which line or node.
    pub fn parse(text: &str) -> Result<Graph, String> {
        let mut lines = text.lines();
        let inputs = lines.next().and_then(|line| {
            line.strip_prefix("inputs")?.split_ascii_whitespace().map(|axes| axes.parse().ok()).collect()
        });
        let inputs = inputs.ok_or("it should begin with the axes of its inputs, `inputs 1 1`")?;
        let mut listing = Listing { inputs, ..Listing::default() };
        for (index, line) in lines.enumerate() {
            read(&mut listing, line).map_err(|error| format!("line {}, `{line}`: {error}", index + 2))?;
        }
        Graph::from_listing(&listing)?.ok_or_else(|| "this is not an operation".to_owned())
    }
}

/// Reads the line of a node or an output.
fn read(listing: &mut Listing, line: &str) -> Result<(), String> {
    let mut words = line.split_ascii_whitespace();
    let word = words.next().ok_or("it says nothing")?;
    let opcode = Opcode::named(word);
    let number = |word: &str| match opcode {
        Some(Opcode::Constant) => u64::from_str_radix(word, 16).ok().map(|bits| bits as i64),
        _ => word.parse().ok(),
    };
    let numbers = words.map(|word| number(word).ok_or_else(|| format!("`{word}` is not a number")));
    let numbers: Vec<i64> = numbers.collect::<Result<_, _>>()?;
    let expected = match (word, opcode) {
        ("output", _) => 2,
        (_, Some(opcode)) => opcode.arity(),
        _ => return Err("this is not an operation".to_owned()),
    };
    if numbers.len() != expected {
        return Err(format!("expected {expected} operands"));
    }
    let Some(opcode) = opcode else {
        listing.outputs.push(numbers[0]);
        listing
            .results
            .push(u16::try_from(numbers[1]).map_err(|_| format!("{} is not a set of axes", numbers[1]))?);
        return Ok(());
    };
    let mut node = [opcode.told().0, 0, 0, 0];
    node[1..=expected].copy_from_slice(&numbers);
    listing.nodes.push(node);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::axes::{Axes, Axis};
    use crate::expr::{Expr, compose, compose_over};
    use crate::rows::{Each, trace_rows};
    use crate::scalar::Scalar;

    #[test]
    fn every_operation_is_written_and_read() {
        let graph = compose(3, 3, |x| {
            let [a, b, c] = [x[0], x[1], x[2]];
            let unary =
                a.exp().log() + a.log1p() + a.expm1() + a.tanh() + a.sigmoid() + a.erf() + a.normal_cdf();
            let more = a.normal_pdf() + a.softplus() + a.sin() + a.cos() + a.sqrt() + a.rsqrt() + a.abs();
            let more = more + a.gelu() * a.gelu_tanh() + a.atan() * a.lgamma() - a.digamma();
            let binary = b.pow(c) - b.min(c) * b.max(c) / (a.sign() + a.floor());
            let mask = (a.lt(b) & b.le(c)) | !a.eq(c);
            vec![unary + more, Scalar::select(mask, binary, -a), c * 0.1 + f64::NEG_INFINITY]
        });
        let text = graph.to_text().unwrap();
        let read = Graph::parse(&text).unwrap();
        assert_eq!(read.nodes(), graph.nodes());
        assert_eq!(read.outputs(), graph.outputs());
        assert_eq!(read.to_text().unwrap(), text);
        let arguments = ([("x", Axes::FIRST), ("by", Axes::NONE)], [("y", Axes::FIRST), ("z", Axes::NONE)]);
        let rows = trace_rows(&arguments.0, &arguments.1, |x| {
            let all = x[0].sum() * x[0].amax() - x[0].amin() / x[0].prod() + x[0].mean();
            vec![x[0] * all, all + x[1]]
        });
        let text = rows.to_text().unwrap();
        let read = Graph::parse(&text).unwrap();
        assert_eq!((read.nodes(), read.outputs()), (rows.nodes(), rows.outputs()));
        assert_eq!(read.to_text().unwrap(), text);
    }

    #[test]
    fn positions_are_written_and_read() {
        use crate::indexed::{Index as _, Indexed as _};

        let nearest =
            compose_over(&[Axes::at(&[0, 1])], &[Axes::FIRST], |x| vec![x[0].argmin(Axis::new(1)).number()]);
        let text = nearest.to_text().unwrap();
        assert!(text.contains("\nindex 1\n"), "{text}");
        let read = Graph::parse(&text).unwrap();
        assert_eq!((read.to_text().unwrap(), read.position_axes(0)), (text, Axes::of(Axis::new(1))));
    }

    #[test]
    fn attributes_have_their_values() {
        let graph = compose(1, 1, |x| vec![x[0] * Expr::attr("slope", 0.25)]);
        assert_eq!(Graph::parse(&graph.to_text().unwrap()).unwrap().formula(), "y0 = x0 * 0.25");
    }

    #[test]
    fn what_is_wrong_is_told() {
        let first = "it should begin with the axes of its inputs, `inputs 1 1`";
        let errors = [
            ("", first),
            ("input 0", first),
            ("inputs 1\n", "it has no output"),
            ("inputs 65536\noutput 0 1", first),
            ("inputs 1\ninput 0\noutput 0 -1", "line 3, `output 0 -1`: -1 is not a set of axes"),
            (
                "inputs 1\ninput 0\nexp 1\noutput 0 1",
                "node 1, `exp`: expected one of the 1 nodes before it, got 1",
            ),
            ("inputs 1\ninput 0\nadd 0\noutput 0 1", "line 3, `add 0`: expected 2 operands"),
            ("inputs 1\ninput 0\nexp 0 0\noutput 0 1", "line 3, `exp 0 0`: expected 1 operands"),
            ("inputs 1\ninput 0\nfrob 0\noutput 0 1", "line 3, `frob 0`: this is not an operation"),
            ("inputs 1\ninput 0\n\noutput 0 1", "line 3, ``: it says nothing"),
            ("inputs 1\nconstant xyz\noutput 0 1", "line 2, `constant xyz`: `xyz` is not a number"),
        ];
        for (text, expected) in errors {
            assert_eq!(Graph::parse(text).unwrap_err(), expected);
        }
    }
}
