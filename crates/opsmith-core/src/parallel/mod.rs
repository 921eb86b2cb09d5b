//! Free axes: which axes of an op are independent of each other.

mod batch;
mod call;
mod check;
mod names;
mod parse;

use std::fmt;

use crate::shape::{ShapeSignature, SignatureError};
use crate::{Error, Result, Signature};

pub use batch::{Batch, Calls};
pub use call::{FreeAxis, OutputAxis};

/// Which axes of an op are free: cutting all inputs that have such an axis, calling the op on each part, and putting the outputs
/// together along the axis gives what the whole call gives. An output that lacks the axis is the sum over the parts.
///
/// It is written as the names of dims of the op's shape signature (`"n, m"`, `"..., n"`), or as a rule of its own with one parenthesis
/// for each argument, in the order of the definition, inputs before the arrow and outputs after it. In a parenthesis
///
/// - `n` is one dim of the free axis `n`;
/// - `...` is any number of dims, each a free axis; they broadcast by NumPy's rules, and are counted from the end. `i...` are others;
/// - `_` is a dim that is not free, `_...` any number of them, `_*axes` as many as the `int` attribute `axes` says, or as that
///   has numbers, if it is a `list(int)`.
///
/// What attributes say of dims is written behind the dots:
///
/// - `(... but axes)`: those at the positions in the attribute `axes` (an `int` or a `list(int)`, of which an empty one means all) are not
///   free;
/// - `(... less axes)`: they are not there; `(... less axes unless keep_dims)`: where that `bool` is true, they are there;
/// - `(... by perm)`: in the order of `perm`, an empty one turns them around;
/// - `(... with i... at axis)`: the dims `i...` are there in place of the one at `axis`;
/// - `(n, _; transposed)`: where the `bool` attribute behind `;` is true, the last two dims change places.
///
/// `+` before an output, `+(n)`, says that it is the sum over the parts where it lacks an axis, or has 1 in its place, as gradients of
/// what broadcasts have. Among the names of a shape signature, `+m` says that the outputs that lack `m` are such sums.
///
/// ```
/// use opsmith_core::{OpDef, Parallel};
///
/// let def = OpDef::new("Distance").input("x: float").input("y: float").output("z: float");
/// let op = def.shape("(...,n,k),(m,k)->(...,n,m)").parallel("..., n, m").build()?;
/// assert_eq!(op.parallel().unwrap().to_string(), "(..., n, _), (m, _) -> (..., n, m)");
///
/// let axes = op.free_axes(&[], &[Some(3), Some(2)]);
/// let names: Vec<&str> = axes.iter().map(|axis| axis.name.as_str()).collect();
/// assert_eq!(names, ["...[-1]", "n", "m"]);
/// assert_eq!((&axes[1].inputs[..], axes[1].outputs[0].dim), (&[Some(2), None][..], Some(2)));
/// # Ok::<(), opsmith_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parallel {
    inputs: Vec<Argument>,
    outputs: Vec<Argument>,
}

/// The dims of one argument.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Argument {
    /// Whether it is the sum over the parts where it lacks an axis.
    is_sum: bool,
    front: Vec<Item>,
    dots: Option<Dots>,
    back: Vec<Item>,
    /// The attribute that lets the last two dims change places.
    swapped: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    Axis(String),
    Held,
    /// As many as an attribute says, or as many as it has numbers.
    HeldMany(String),
}

/// Any number of dims.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Dots {
    /// What stands before the dots; none for `_...`.
    axes: Option<String>,
    view: View,
}

/// Which of the dims are there, by attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum View {
    Whole,
    But(String),
    Less { at: String, unless: Option<String> },
    By(String),
    With { others: String, at: String },
}

impl Parallel {
    /// Reads what an op states, names or a rule, and checks it.
    ///
    /// # Errors
    /// `InvalidArgument` that names the op and what does not fit.
    pub fn new(text: &str, signature: &Signature, shapes: Option<&ShapeSignature>) -> Result<Parallel> {
        let read = match text.contains("->") {
            true => parse::parse(text).map_err(|error| error.render(text)),
            false => names::read(text, signature, shapes),
        };
        let checked = read.and_then(|parallel| parallel.check(signature).map(|()| parallel));
        checked.map_err(|why| Error::invalid_argument(format!("`parallel`: {why}")).with_op(&signature.name))
    }

    /// Reads the rule of another library's description, which was checked there.
    ///
    /// # Errors
    /// Says where in the text it goes wrong.
    pub fn parse(text: &str) -> Result<Parallel, SignatureError> {
        parse::parse(text)
    }

    /// Whether every dim of every argument is of a free axis and no output is a sum: then nothing is added up, in no order.
    pub fn is_elementwise(&self) -> bool {
        let is_axis = |item: &Item| matches!(item, Item::Axis(_));
        let is_whole = |arg: &Argument| {
            let items = arg.front.iter().chain(&arg.back);
            let dots = arg.dots.as_ref().is_none_or(|dots| {
                dots.axes.is_some() && matches!(dots.view, View::Whole | View::By(_) | View::With { .. })
            });
            dots && !arg.is_sum && items.into_iter().all(is_axis)
        };
        self.arguments().all(is_whole)
    }

    /// Whether every argument has the dims `...`, all of them, and no others. The dims of all arguments may then change their order
    /// alike: each element is computed from the elements at its place, or is the sum of what is.
    pub fn may_permute_dims(&self) -> bool {
        self.arguments().all(|arg| {
            let is_all = |dots: &Dots| dots.axes.as_deref() == Some("") && dots.view == View::Whole;
            arg.dots.as_ref().is_some_and(is_all) && arg.items().next().is_none() && arg.swapped.is_none()
        })
    }

    /// Whether an output may be the sum over the parts.
    pub fn has_sums(&self) -> bool {
        self.outputs.iter().any(|output| output.is_sum)
    }

    /// The free axes in words, for a person: `` `n`, each dim of `...` but those at `axes` ``.
    pub fn words(&self) -> String {
        let mut axes: Vec<Axis<'_>> = Vec::new();
        for axis in self.inputs.iter().flat_map(Argument::axes) {
            if !axes.contains(&axis) {
                axes.push(axis);
            }
        }
        let words = |axis: &Axis<'_>| {
            let own = |dots: &&Dots| axis.dots && dots.axes.as_deref() == Some(axis.name);
            let dots = self.arguments().filter_map(|argument| argument.dots.as_ref()).filter(own);
            let mut held = dots.filter_map(|dots| match &dots.view {
                View::But(at) | View::Less { at, .. } | View::With { at, .. } => Some(at),
                View::Whole | View::By(_) => None,
            });
            let each = if axis.dots { "each dim of " } else { "" };
            format!(
                "{each}`{axis}`{}",
                held.next().map_or(String::new(), |at| format!(" but those at `{at}`"))
            )
        };
        let sum = match self.has_sums() {
            true => "; an output with `+` that lacks one is the sum over the parts",
            false => "",
        };
        format!("{}{sum}", axes.iter().map(words).collect::<Vec<_>>().join(", "))
    }

    fn arguments(&self) -> impl Iterator<Item = &Argument> {
        self.inputs.iter().chain(&self.outputs)
    }
}

impl Argument {
    fn items(&self) -> impl Iterator<Item = &Item> {
        self.front.iter().chain(&self.back)
    }

    /// The free axes that it has: names, and what stands before dots.
    fn axes(&self) -> impl Iterator<Item = Axis<'_>> {
        let named = self.items().filter_map(|item| match item {
            Item::Axis(name) => Some(Axis { name, dots: false }),
            _ => None,
        });
        let dots = self.dots.iter().flat_map(|dots| {
            let others = match &dots.view {
                View::With { others, .. } => Some(others),
                _ => None,
            };
            dots.axes.iter().chain(others).map(|name| Axis { name, dots: true })
        });
        named.chain(dots)
    }
}

/// A free axis, or those that dots stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Axis<'a> {
    name: &'a str,
    dots: bool,
}

impl fmt::Display for Axis<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name, if self.dots { "..." } else { "" })
    }
}

impl fmt::Display for Parallel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |args: &[Argument]| args.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        write!(f, "{} -> {}", list(&self.inputs), list(&self.outputs))
    }
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let item = |item: &Item| match item {
            Item::Axis(name) => name.clone(),
            Item::Held => "_".to_owned(),
            Item::HeldMany(attr) => format!("_*{attr}"),
        };
        let mut items: Vec<String> = self.front.iter().map(item).collect();
        items.extend(self.dots.as_ref().map(ToString::to_string));
        items.extend(self.back.iter().map(item));
        let sum = if self.is_sum { "+" } else { "" };
        let swapped = self.swapped.as_ref().map(|attr| format!("; {attr}")).unwrap_or_default();
        write!(f, "{sum}({}{swapped})", items.join(", "))
    }
}

impl fmt::Display for Dots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}...", self.axes.as_deref().unwrap_or("_"))?;
        match &self.view {
            View::Whole => Ok(()),
            View::But(at) => write!(f, " but {at}"),
            View::Less { at, unless: None } => write!(f, " less {at}"),
            View::Less { at, unless: Some(attr) } => write!(f, " less {at} unless {attr}"),
            View::By(order) => write!(f, " by {order}"),
            View::With { others, at } => write!(f, " with {others}... at {at}"),
        }
    }
}

#[cfg(test)]
mod tests;
