//! Graphs as formulas.

use crate::axes::Axis;
use crate::expr::graph::Graph;
use crate::expr::node::{Binary, Compare, Fold, Id, Node, Unary};

/// How tightly the outermost operator of a text binds.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Binds {
    Loosely,
    Sum,
    Product,
    Sign,
    Atom,
}

impl Graph {
    /// The formulas of the outputs, one a line; what is used more than once is a line before, as `t0`, `t1`, ….
    pub fn formula(&self) -> String {
        let names = self.names();
        let mut texts: Vec<(String, Binds)> = Vec::with_capacity(self.nodes.len());
        let mut lines = Vec::new();
        for (node, name) in self.nodes.iter().zip(&names) {
            let text = self.text(*node, &texts);
            texts.push(match name {
                Some(name) => {
                    lines.push(format!("{name} = {}", text.0));
                    (name.clone(), Binds::Atom)
                }
                None => text,
            });
        }
        for (output, name) in self.outputs.iter().zip(&self.results) {
            let text = &texts[output.index()].0;
            if *text != name.name {
                lines.push(format!("{} = {text}", name.name));
            }
        }
        lines.join("\n")
    }

    /// The names of the nodes that get a line: those that are used more than once, by the output that they are if any.
    fn names(&self) -> Vec<Option<String>> {
        let mut uses = vec![0; self.nodes.len()];
        for id in self.nodes.iter().flat_map(|n| n.operands()).chain(self.outputs.iter().copied()) {
            uses[id.index()] += 1;
        }
        let mut temporaries = (0..).map(|k| format!("t{k}")).filter(|name| !self.is_taken(name));
        let name = |(index, node): (usize, &Node)| {
            let leaf = matches!(node, Node::Input(_) | Node::Attribute(_) | Node::Constant(_))
                || matches!(node, Node::Count(_) | Node::Index(_));
            let output = self.outputs.iter().position(|o| o.index() == index);
            match (leaf || uses[index] < 2, output) {
                (true, _) => None,
                (false, Some(position)) => Some(self.results[position].name.clone()),
                (false, None) => temporaries.next(),
            }
        };
        self.nodes.iter().enumerate().map(name).collect()
    }

    fn is_taken(&self, name: &str) -> bool {
        self.inputs.iter().chain(&self.results).any(|argument| argument.name == name)
            || self.attributes.iter().any(|(n, _)| *n == name)
    }

    /// The name of an axis, which no argument or attribute has; none if there is but one.
    fn axis(&self, axis: Axis) -> Option<String> {
        let name = self.axis_names.get(axis.index())?;
        Some(if self.is_taken(name) { format!("{name}_axis") } else { name.clone() })
    }

    /// A function of an axis.
    fn of_axis(&self, function: &str, axis: Axis) -> String {
        self.axis(axis).map_or_else(|| function.to_owned(), |name| format!("{function}({name})"))
    }

    /// What a number is divided by, which is multiplied by the reciprocal.
    fn divisor(&self, id: Id) -> Option<Id> {
        match self.nodes[id.index()] {
            Node::Binary(Binary::Div, one, b) if self.nodes[one.index()].constant() == Some(1.0) => Some(b),
            _ => None,
        }
    }

    fn text(&self, node: Node, texts: &[(String, Binds)]) -> (String, Binds) {
        let plain = |id: Id| texts[id.index()].0.as_str();
        let within = |id: Id, least: Binds| {
            let (text, binds) = &texts[id.index()];
            if *binds < least { format!("({text})") } else { text.clone() }
        };
        let call = |name: &str, arguments: &[Id]| {
            let arguments: Vec<&str> = arguments.iter().map(|id| plain(*id)).collect();
            (format!("{name}({})", arguments.join(", ")), Binds::Atom)
        };
        let infix = |a: Id, sign: &str, b: Id, left: Binds, right: Binds| {
            (format!("{} {sign} {}", within(a, left), within(b, right)), left)
        };
        match node {
            Node::Input(position) => (self.inputs[position as usize].name.clone(), Binds::Atom),
            Node::Attribute(position) => (self.attributes[position as usize].0.to_owned(), Binds::Atom),
            Node::Constant(bits) => {
                let value = f64::from_bits(bits);
                let binds = if value.is_sign_negative() { Binds::Sign } else { Binds::Atom };
                (value.to_string(), binds)
            }
            Node::Unary(Unary::Neg, a) => (format!("-{}", within(a, Binds::Atom)), Binds::Sign),
            Node::Unary(op, a) => call(op.name(), &[a]),
            Node::Binary(Binary::Add, a, b) => infix(a, "+", b, Binds::Sum, Binds::Sum),
            Node::Binary(Binary::Sub, a, b) => infix(a, "-", b, Binds::Sum, Binds::Product),
            Node::Binary(Binary::Mul, a, b)
                if texts[b.index()].1 == Binds::Product && self.divisor(b).is_some() =>
            {
                let b = self.divisor(b).unwrap_or(b);
                infix(a, "/", b, Binds::Product, Binds::Sign)
            }
            Node::Binary(Binary::Mul, a, b) => infix(a, "*", b, Binds::Product, Binds::Product),
            Node::Binary(Binary::Div, a, b) => infix(a, "/", b, Binds::Product, Binds::Sign),
            Node::Binary(Binary::Pow, a, b) => call("pow", &[a, b]),
            Node::Binary(Binary::Min, a, b) => call("min", &[a, b]),
            Node::Binary(Binary::Max, a, b) => call("max", &[a, b]),
            Node::Select(mask, yes, no) => call("select", &[mask, yes, no]),
            Node::Compare(op, a, b) => (infix(a, op.sign(), b, Binds::Sum, Binds::Sum).0, Binds::Loosely),
            Node::And(a, b) => (infix(a, "&", b, Binds::Sum, Binds::Sum).0, Binds::Loosely),
            Node::Or(a, b) => (infix(a, "|", b, Binds::Sum, Binds::Sum).0, Binds::Loosely),
            Node::Not(a) => (format!("!{}", within(a, Binds::Atom)), Binds::Sign),
            Node::Fold(op, axis, a) => match self.axis(axis) {
                Some(name) => (format!("{}({}, {name})", op.name(), plain(a)), Binds::Atom),
                None => call(op.name(), &[a]),
            },
            Node::Count(axis) => (self.of_axis("count", axis), Binds::Atom),
            Node::Index(axis) => (self.of_axis("index", axis), Binds::Atom),
            Node::Detached(a) => call("detached", &[a]),
        }
    }
}

impl Fold {
    /// Its name in formulas.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Max => "amax",
            Self::Min => "amin",
            Self::Product => "prod",
        }
    }
}

impl Compare {
    /// Its sign, in formulas and in C.
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Eq => "==",
        }
    }
}
