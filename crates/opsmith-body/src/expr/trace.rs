//! Tracing: a body run on numbers that write down what is done with them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Not, Sub};

use crate::axes::{Axes, Axis};
use crate::body::Body;
use crate::expr::functions::with_functions;
use crate::expr::graph::{Argument, Graph};
use crate::expr::node::{Binary, Compare, Id, Node, Unary};
use crate::scalar::{Mask, Scalar};

/// A graph that is being recorded.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) nodes: Vec<Node>,
    known: HashMap<Node, Id>,
    attributes: Vec<(&'static str, f64)>,
    /// Whether a function was taken apart that numbers compute as a whole.
    is_taken_apart: bool,
    /// The axes that each node lies on, and each input.
    axes: Vec<Axes>,
    inputs: Vec<Axes>,
    /// The sizes that axes have of their own, and which axes may be no longer than which others.
    sizes: Vec<Option<usize>>,
    limits: Vec<(Axis, Axis)>,
    /// The axes whose positions are told apart, and the positions that numbers are taken from.
    exact: Axes,
    taken: Vec<(Axis, usize)>,
    /// The axes along which what was folded along them is added up or multiplied again.
    refolded: Axes,
    /// The numbers that are to be saved for gradients.
    saved: Vec<Id>,
}

impl Recorder {
    /// The number of a node: the same for equal nodes.
    pub(crate) fn intern(&mut self, node: Node) -> Id {
        *self.known.entry(node).or_insert_with(|| {
            let axes = node.axes(|position| self.inputs[position as usize], |id| self.axes[id.index()]);
            self.nodes.push(node);
            self.axes.push(axes);
            Id(self.nodes.len() as u32 - 1)
        })
    }

    /// The axes that a node lies on.
    pub(crate) fn axes(&self, id: Id) -> Axes {
        self.axes[id.index()]
    }

    /// Has every node that would compute the same as `id` from now on be `other`.
    fn replace(&mut self, id: Id, other: Id) {
        self.known.insert(self.nodes[id.index()], other);
    }

    fn attribute(&mut self, name: &'static str, value: f64) -> Id {
        let known = self.attributes.iter().position(|(n, _)| *n == name);
        let position = known.unwrap_or_else(|| {
            self.attributes.push((name, value));
            self.attributes.len() - 1
        });
        self.intern(Node::Attribute(position as u32))
    }
}

thread_local! {
    static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
}

/// Does something with the recording of this thread.
fn with<R>(act: impl FnOnce(&mut Recorder) -> R) -> R {
    RECORDER.with_borrow_mut(|recorder| {
        act(recorder.as_mut().expect("an `Expr` exists only while a body is traced"))
    })
}

/// Puts back what was recorded before, also when a body panics.
struct Restore(Option<Recorder>);

impl Drop for Restore {
    fn drop(&mut self) {
        RECORDER.set(self.0.take());
    }
}

/// Records a computation from inputs to outputs, on axes that may have sizes of their own.
pub(crate) fn record(
    inputs: Vec<Argument>,
    outputs: Vec<Argument>,
    sizes: &[Option<usize>],
    computation: impl FnOnce(&[Expr]) -> Vec<Expr>,
) -> Graph {
    let axes = inputs.iter().map(|argument| argument.axes).collect();
    let recorder = Recorder { inputs: axes, sizes: sizes.to_vec(), ..Recorder::default() };
    let restore = Restore(RECORDER.replace(Some(recorder)));
    let numbers: Vec<Expr> = (0..inputs.len()).map(|k| node(Node::Input(k as u32))).collect();
    let results: Vec<Id> = computation(&numbers).into_iter().map(|output| output.0).collect();
    let recorder = RECORDER.take().unwrap_or_default();
    drop(restore);
    let all = [results.as_slice(), &recorder.saved].concat();
    let mut graph = Graph::new(&recorder.nodes, &all, recorder.attributes, (inputs, outputs));
    graph.is_faithful = !recorder.is_taken_apart;
    (graph.limits, graph.exact, graph.taken) = (recorder.limits, recorder.exact, recorder.taken);
    graph.refolded = recorder.refolded;
    graph.saved = graph.outputs.split_off(results.len());
    graph
}

/// Traces a body.
///
/// ```
/// use opsmith_body::{Body, Scalar, trace};
///
/// struct Swish;
///
/// impl Body<1, 1> for Swish {
///     fn eval<S: Scalar>(&self, [x]: [S; 1]) -> [S; 1] {
///         [x * x.sigmoid()]
///     }
/// }
///
/// let graph = trace(&Swish).with_names(&["x"], &["y"]);
/// assert_eq!(graph.formula(), "y = x * sigmoid(x)");
/// assert_eq!(
///     graph.gradient().formula(),
///     "t0 = sigmoid(x)\nx_grad = y_grad * t0 + x * y_grad * t0 * (1 - t0)"
/// );
/// ```
pub fn trace<B: Body<IN, OUT>, const IN: usize, const OUT: usize>(body: &B) -> Graph {
    compose(IN, OUT, |inputs| {
        let mut numbers = [Expr::of(0.0); IN];
        numbers.copy_from_slice(inputs);
        body.eval(numbers).to_vec()
    })
}

/// Traces a computation that is no [`Body`]: graphs are put together from graphs by [`Graph::eval`].
///
/// ```
/// use opsmith_body::compose;
///
/// let square = compose(1, 1, |x| vec![x[0] * x[0]]);
/// let fourth = compose(1, 1, |x| square.eval(&square.eval(x)));
/// assert_eq!(fourth.formula(), "t0 = x0 * x0\ny0 = t0 * t0");
/// ```
pub fn compose(inputs: usize, outputs: usize, computation: impl FnOnce(&[Expr]) -> Vec<Expr>) -> Graph {
    compose_over(&vec![Axes::FIRST; inputs], &vec![Axes::FIRST; outputs], computation)
}

/// The same from inputs to outputs that lie on these axes: graphs are put together by [`Graph::again`].
pub fn compose_over(
    inputs: &[Axes],
    outputs: &[Axes],
    computation: impl FnOnce(&[Expr]) -> Vec<Expr>,
) -> Graph {
    let arguments = |letter: char, all: &[Axes]| {
        all.iter().enumerate().map(|(k, &axes)| Argument { name: format!("{letter}{k}"), axes }).collect()
    };
    record(arguments('x', inputs), arguments('y', outputs), &[], computation)
}

impl Graph {
    /// Records the computation once more, from these numbers of the recording, which lie on the axes of its inputs or on fewer.
    ///
    /// # Panics
    /// If there are more or fewer inputs than the graph has, or if nothing is recorded.
    pub fn again(&self, inputs: &[Expr]) -> Vec<Expr> {
        let values = self.values(inputs, of_axis);
        self.outputs.iter().map(|id| values[id.index()].number()).collect()
    }

    /// The same of a function of rows, along an axis in the place of the first one.
    ///
    /// # Panics
    /// As [`again`](Self::again).
    pub fn again_along(&self, axis: Axis, inputs: &[Expr]) -> Vec<Expr> {
        let along = |node: Node| match node {
            Node::Fold(op, _, a) => Node::Fold(op, axis, a),
            Node::Count(_) => Node::Count(axis),
            Node::Index(_) => Node::Index(axis),
            other => other,
        };
        let values = self.values(inputs, |node, operand| of_axis(along(node), operand));
        self.outputs.iter().map(|id| values[id.index()].number()).collect()
    }
}

/// A node that is about an axis, of this operand, in the recording.
pub(crate) fn of_axis(of: Node, operand: Option<Expr>) -> Expr {
    match (of, operand) {
        (Node::Fold(op, axis, _), Some(a)) => node(Node::Fold(op, axis, a.0)),
        _ => node(of),
    }
}

/// A number that is a node of the graph which this thread records.
///
/// Making one when nothing is traced panics.
#[derive(Clone, Copy, Debug)]
pub struct Expr(pub(crate) Id);

/// A mask that is such a node.
#[derive(Clone, Copy, Debug)]
pub struct MaskExpr(pub(crate) Id);

impl Mask for MaskExpr {}

impl MaskExpr {
    /// The node under an outermost `!`, and whether there was one.
    pub(crate) fn without_not(self) -> (Id, bool) {
        with(|r| match r.nodes[self.0.index()] {
            Node::Not(inner) => (inner, true),
            _ => (self.0, false),
        })
    }
}

/// The axes that a node of the recording lies on.
pub(crate) fn axes_of(id: Id) -> Axes {
    with(|r| r.axes(id))
}

/// A node of the recording.
pub(crate) fn node_at(id: Id) -> Node {
    with(|r| r.nodes[id.index()])
}

pub(crate) fn is_constant(number: Expr) -> bool {
    node_at(number.0).constant().is_some()
}

/// The number that stands for what this node computes, if it is another one.
pub(crate) fn replaced(node: Node) -> Option<Expr> {
    with(|r| r.known.get(&node).filter(|id| r.nodes[id.index()] != node).map(|id| Expr(*id)))
}

/// Has whatever would compute the same as `number` from now on be `other`.
pub(crate) fn replace(number: Expr, other: Expr) {
    with(|r| r.replace(number.0, other.0));
}

/// Says that the positions along an axis are told apart.
pub(crate) fn exact(axis: Axis) {
    with(|r| r.exact = r.exact.with(axis));
}

/// Says that a number is taken from a position along an axis.
pub(crate) fn taken(axis: Axis, position: usize) {
    with(|r| r.taken.push((axis, position)));
}

/// Says that a number that does not lie on an axis is added up or multiplied along it: which tells of a mistake where that is so
/// because it has been folded along it.
pub(crate) fn repeated(number: Id, axis: Axis) {
    with(|r| {
        let (mut open, mut seen) = (vec![number], vec![false; r.nodes.len()]);
        while let Some(id) = open.pop() {
            if std::mem::replace(&mut seen[id.index()], true) {
                continue;
            }
            let node = r.nodes[id.index()];
            if matches!(node, Node::Fold(_, folded, _) if folded == axis) {
                r.refolded = r.refolded.with(axis);
            }
            open.extend(node.operands().filter(|operand| !r.axes[operand.index()].has(axis)));
        }
    });
}

/// Says that a number is to be saved for gradients.
pub(crate) fn save(number: Expr) {
    with(|r| {
        if !r.saved.contains(&number.0) {
            r.saved.push(number.0);
        }
    });
}

/// The size that an axis has of its own, if any; it must be at most that of another one.
pub(crate) fn size_within(axis: Axis, most: Axis) -> Option<usize> {
    with(|r| {
        r.limits.push((axis, most));
        r.sizes.get(axis.index()).copied().flatten()
    })
}

pub(crate) fn node(node: Node) -> Expr {
    Expr(with(|r| r.add(node)))
}

fn mask(node: Node) -> MaskExpr {
    MaskExpr(with(|r| r.add(node)))
}

impl BitAnd for MaskExpr {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        mask(Node::And(self.0, other.0))
    }
}

impl BitOr for MaskExpr {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        mask(Node::Or(self.0, other.0))
    }
}

impl Not for MaskExpr {
    type Output = Self;
    fn not(self) -> Self {
        mask(Node::Not(self.0))
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident),*) => {$(
        impl $trait for Expr {
            type Output = Self;
            fn $method(self, other: Self) -> Self {
                node(Node::Binary(Binary::$trait, self.0, other.0))
            }
        }

        impl $trait<f64> for Expr {
            type Output = Self;
            fn $method(self, constant: f64) -> Self {
                $trait::$method(self, Self::of(constant))
            }
        }
    )*};
}

operators!(Add add, Sub sub, Mul mul, Div div);

impl Neg for Expr {
    type Output = Self;
    fn neg(self) -> Self {
        node(Node::Unary(Unary::Neg, self.0))
    }
}

macro_rules! unary {
    ({} $($op:ident $method:ident),*) => {$(
        fn $method(self) -> Self {
            node(Node::Unary(Unary::$op, self.0))
        }
    )*};
}

macro_rules! binary {
    ($($method:ident $op:ident)*) => {$(
        fn $method(self, other: Self) -> Self {
            node(Node::Binary(Binary::$op, self.0, other.0))
        }
    )*};
}

macro_rules! compare {
    ($($method:ident $op:ident)*) => {$(
        fn $method(self, other: Self) -> MaskExpr {
            mask(Node::Compare(Compare::$op, self.0, other.0))
        }
    )*};
}

impl Scalar for Expr {
    type Mask = MaskExpr;

    fn of(constant: f64) -> Self {
        node(Node::Constant(constant.to_bits()))
    }
    fn attr(name: &'static str, value: f64) -> Self {
        Self(with(|r| r.attribute(name, value)))
    }
    with_functions! { unary {} }
    binary! { pow Pow min Min max Max }
    compare! { lt Lt le Le eq Eq }
    fn select(mask: MaskExpr, yes: Self, no: Self) -> Self {
        node(Node::Select(mask.0, yes.0, no.0))
    }
    fn detached(self) -> Self {
        node(Node::Detached(self.0))
    }
    fn mul_add(self, factor: Self, term: Self) -> Self {
        // As two nodes it is rounded twice.
        with(|r| r.is_taken_apart = true);
        self * factor + term
    }
}
