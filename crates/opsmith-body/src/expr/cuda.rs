//! Graphs as CUDA C++ kernels.

use std::fmt::Write;

use crate::expr::graph::Graph;
use crate::expr::node::{Binary, Id, Node, Unary};

/// The type of the elements of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CudaType {
    /// `float`.
    Float,
    /// `double`.
    Double,
    /// float16, computed in `float`.
    Half,
    /// bfloat16, computed in `float`.
    Bfloat16,
}

impl CudaType {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Float, Self::Double, Self::Half, Self::Bfloat16];

    /// The type that is computed with, the type in memory, and the functions between them.
    fn prelude(self) -> &'static str {
        match self {
            Self::Float => {
                "typedef float Number;\ntypedef float Stored;\n\
                 DEVICE Number load(Stored s) { return s; }\nDEVICE Stored store(Number x) { return x; }\n"
            }
            Self::Double => {
                "typedef double Number;\ntypedef double Stored;\n\
                 DEVICE Number load(Stored s) { return s; }\nDEVICE Stored store(Number x) { return x; }\n"
            }
            Self::Half => include_str!("half.cu"),
            Self::Bfloat16 => include_str!("bfloat16.cu"),
        }
    }

    /// How many bytes a number has in memory; or, of one that is `computed` with and not rounded, there.
    const fn size(self, computed: bool) -> usize {
        match self {
            Self::Double => 8,
            Self::Float => 4,
            Self::Half | Self::Bfloat16 => {
                if computed {
                    4
                } else {
                    2
                }
            }
        }
    }

    /// What the names of C's functions end in.
    fn suffix(self) -> &'static str {
        if self == Self::Double { "" } else { "f" }
    }
}

/// What a product is rounded with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Products {
    /// By itself, or with what it is added to, as the compiler sees fit.
    Any,
    /// By itself: several kernels compute the same number then, which are compared.
    Alone,
}

/// The most operations of a body whose kernel reads several elements at a time: a longer one computes longer than it reads, and would
/// be compiled as many times.
const PACKED_NODES: usize = 32;

impl Graph {
    /// CUDA C++ source of elementwise kernels, which includes the header `opsmith.cuh`.
    ///
    /// There are two: `NAME_32` and `NAME_64`, whose indices have so many bits; `-DONLY=0` and `-DONLY=1` compile one of them. Any grid
    /// will do; each thread goes on by the size of the grid. The parameters are structures by value:
    /// - `Operands`: the addresses of the inputs, then of the outputs, whose elements lie one after another;
    /// - `Attributes`: one `double` for each of [`attributes`](Self::attributes), at least one;
    /// - `opsmith::Space`: what is gone over, with strides of the inputs, and of nothing if there are none. So many elements are read
    ///   at a time as [`cuda_lanes`](Self::cuda_lanes) says, where they lie side by side.
    ///
    /// The outputs that are marked in `terms`, from the lowest bit on, are not rounded: they are of the type that is computed with.
    ///
    /// # Panics
    /// If `name` is not a C identifier.
    pub fn cuda_source(&self, name: &str, dtype: CudaType, terms: u64) -> String {
        let letters = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        assert!(letters && !name.starts_with(|c: char| c.is_ascii_digit()), "`{name}` is not a C identifier");
        let (inputs, outputs) = (self.input_count(), self.outputs.len());
        let functions = functions(&[("body", self)], dtype, Products::Any);
        let mut source = String::from("#include \"opsmith.cuh\"\n");
        source += &functions;
        let lanes = self.cuda_lanes(dtype, terms);
        for (constant, size) in [("INPUTS", inputs), ("OUTPUTS", outputs), ("LANES", lanes)] {
            let _ = writeln!(source, "#define {constant} {size}");
        }
        let _ = writeln!(source, "#define TERMS {terms:#x}ull");
        source + &include_str!("kernels.cu").replace("NAME", name)
    }

    /// How many elements the kernels of [`cuda_source`](Self::cuda_source) read at a time: as many as 16 bytes have of the largest, or
    /// one where the body is long.
    pub fn cuda_lanes(&self, dtype: CudaType, terms: u64) -> usize {
        let is_long = self.without_detached().nodes.len() > self.input_count() + PACKED_NODES;
        if is_long { 1 } else { 16 / dtype.size(terms != 0) }
    }
}

/// The beginning of a source: functions that compute graphs.
///
/// It defines the types `Number`, that is computed with, and `Stored`, in memory; `load` and `store` from one to the other;
/// `DEVICE`, what functions begin with; `Attributes`, a structure of one `double` for each attribute of the graphs, in
/// their order, or at least one; and for each graph `void NAME(const Number *in, Number *out, const Attributes &attributes)`.
pub(super) fn functions(graphs: &[(&str, &Graph)], dtype: CudaType, products: Products) -> String {
    let graphs: Vec<(&str, Graph)> =
        graphs.iter().map(|(name, graph)| (*name, graph.without_detached())).collect();
    let mut source = String::from("#define DEVICE __device__ __forceinline__\n");
    source += dtype.prelude();
    if products == Products::Alone {
        let letter = if dtype == CudaType::Double { 'd' } else { 'f' };
        let _ = writeln!(
            source,
            "DEVICE Number product(Number a, Number b) {{ return __{letter}mul_rn(a, b); }}"
        );
    }
    let suffix = dtype.suffix();
    let mut nodes = graphs.iter().flat_map(|(_, graph)| &graph.nodes);
    for (op, text) in HELPERS {
        if nodes.clone().any(|node| matches!(node, Node::Unary(o, _) if *o == op)) {
            source += &text.replace("@", suffix);
        }
    }
    debug_assert!(
        nodes.all(|node| !matches!(node, Node::Fold(..))),
        "a fold is a kernel's, not a function's"
    );
    let mut attributes: Vec<&str> = Vec::new();
    for (name, _) in graphs.iter().flat_map(|(_, graph)| &graph.attributes) {
        if !attributes.contains(name) {
            attributes.push(name);
        }
    }
    let _ = writeln!(source, "struct Attributes {{ double value[{}]; }};", attributes.len().max(1));
    for (name, graph) in &graphs {
        let _ = writeln!(
            source,
            "DEVICE void {name}(const Number *in, Number *out, const Attributes &attributes) {{"
        );
        for (index, node) in graph.nodes.iter().enumerate() {
            let node = match *node {
                Node::Attribute(position) => {
                    let (name, _) = graph.attributes[position as usize];
                    let known = attributes.iter().position(|other| *other == name);
                    Node::Attribute(known.unwrap_or_default() as u32)
                }
                other => other,
            };
            let _ = writeln!(source, "    {};", statement(index, node, suffix, products));
        }
        for (position, output) in graph.outputs.iter().enumerate() {
            let _ = writeln!(source, "    out[{position}] = {};", variable(*output));
        }
        source += "}\n";
    }
    source
}

/// Functions that CUDA lacks; `@` stands for the suffix of C's functions.
const HELPERS: [(Unary, &str); 7] = [
    (
        Unary::Sigmoid,
        "DEVICE Number sigmoid(Number x) {\n    Number e = exp@(-fabs@(x));\n    \
         return (x < 0 ? e : Number(1)) / (1 + e);\n}\n",
    ),
    (
        Unary::Softplus,
        "DEVICE Number softplus(Number x) {\n    \
         return (x < 0 ? Number(0) : x) + log1p@(exp@(-fabs@(x)));\n}\n",
    ),
    (
        // With the rounding error of the square, as far tails need it.
        Unary::NormalPdf,
        "DEVICE Number normal_pdf(Number x) {\n    Number square = x * x, rest = fma@(x, x, -square);\n    \
         Number e = Number(0.3989422804014327) * exp@(Number(-0.5) * square);\n    \
         return e == 0 ? e : fma@(e, Number(-0.5) * rest, e);\n}\n",
    ),
    (Unary::Gelu, include_str!("gelu.cu")),
    (Unary::GeluTanh, include_str!("gelu_tanh.cu")),
    (Unary::Digamma, include_str!("digamma.cu")),
    (Unary::Sign, "DEVICE Number sign(Number x) { return fabs(x) > 0 ? copysign(Number(1), x) : x; }\n"),
];

fn variable(id: Id) -> String {
    format!("v{}", id.0)
}

/// A constant as C reads it.
pub(super) fn constant(value: f64) -> String {
    if value.is_finite() {
        return format!("Number({value:?})");
    }
    format!("Number(__longlong_as_double(0x{:x}LL))", value.to_bits())
}

/// The statement that computes a node.
fn statement(index: usize, node: Node, suffix: &str, products: Products) -> String {
    let v = variable;
    let mask = matches!(node, Node::Compare(..) | Node::And(..) | Node::Or(..) | Node::Not(_));
    let value = match node {
        Node::Input(position) => format!("in[{position}]"),
        Node::Attribute(position) => format!("Number(attributes.value[{position}])"),
        Node::Constant(bits) => constant(f64::from_bits(bits)),
        Node::Unary(Unary::Neg, a) => format!("-{}", v(a)),
        Node::Unary(op, a) => {
            let function = match op {
                _ if HELPERS.iter().any(|(helped, _)| *helped == op) => op.name().to_owned(),
                Unary::NormalCdf => format!("normcdf{suffix}"),
                Unary::Abs => format!("fabs{suffix}"),
                _ => format!("{}{suffix}", op.name()),
            };
            format!("{function}({})", v(a))
        }
        Node::Binary(op, a, b) => match op {
            Binary::Add => format!("{} + {}", v(a), v(b)),
            Binary::Sub => format!("{} - {}", v(a), v(b)),
            Binary::Mul if products == Products::Alone => format!("product({}, {})", v(a), v(b)),
            Binary::Mul => format!("{} * {}", v(a), v(b)),
            Binary::Div => format!("{} / {}", v(a), v(b)),
            Binary::Pow => format!("pow{suffix}({}, {})", v(a), v(b)),
            // NaN goes through, as on the CPU.
            Binary::Min => format!("({0} <= {1} || {0} != {0}) ? {0} : {1}", v(a), v(b)),
            Binary::Max => format!("({0} >= {1} || {0} != {0}) ? {0} : {1}", v(a), v(b)),
        },
        Node::Select(m, yes, no) => format!("{} ? {} : {}", v(m), v(yes), v(no)),
        Node::Compare(op, a, b) => format!("{} {} {}", v(a), op.sign(), v(b)),
        Node::And(a, b) => format!("{} && {}", v(a), v(b)),
        Node::Or(a, b) => format!("{} || {}", v(a), v(b)),
        Node::Not(a) => format!("!{}", v(a)),
        Node::Fold(..) | Node::Count(_) | Node::Index(_) | Node::Detached(_) => {
            unreachable!("a graph with folds has passes")
        }
    };
    format!("const {} v{index} = {value}", if mask { "bool" } else { "Number" })
}
