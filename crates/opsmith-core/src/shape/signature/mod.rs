//! Shape signatures: the shapes of an op's arguments in NumPy's generalised-ufunc notation.

mod bind;
mod infer;
mod parse;

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use super::parse::{Ast, Name};
use super::{ShapeFn, SignatureError};
use crate::attr::{AttrBase, AttrType};
use crate::{Error, Result, Signature};

pub use bind::{Bound, UNKNOWN_DIM};

/// The shapes that an op takes and gives, as `"(n,p),(m,p)->(n,m)"` says them.
///
/// One parenthesis for each argument, in the order of the definition, inputs before the arrow and outputs after it;
/// `()` is a scalar. A list argument has one too, which each of its tensors follows. A dim is
///
/// - a name: equal wherever it occurs; in outputs also the name of an `int` attribute that no input dim has;
/// - a number: `(3)`;
/// - arithmetic over these with `+ - * //`, parentheses, `min(…)` and `max(…)`: `(n + 1)`, `(3 * s, s + f)`; in an
///   input it is checked, and every name of it must be an attribute, stand alone in some input, or have a multiple in one;
/// - a multiple, `(2 * d)` or with an attribute `(heads * d)`: it gives `d` where no input has that alone;
/// - in an output `?`: the kernel finds it, from the data.
///
/// `...` before the dims of an argument stands for any number of batch dims. They are equal in all arguments that have
/// them, not broadcast: a kernel gets views of the tensors as they are.
///
/// ```
/// use opsmith_core::shape::ShapeSignature;
///
/// let signature = ShapeSignature::parse("(n,p),(m,p)->(n,m)")?;
/// assert_eq!(signature.inputs()[0].core_rank(), 2);
///
/// let error = ShapeSignature::parse("(n,p),(m;p)->(n,m)").unwrap_err();
/// assert_eq!(error.offset, 8);
/// assert_eq!(error.message, "expected `,` or `)`, found `;`");
/// # Ok::<(), opsmith_core::shape::SignatureError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ShapeSignature {
    text: String,
    inputs: Vec<ArgShape>,
    outputs: Vec<ArgShape>,
    /// The names that stand alone in an input, then those that have a multiple in one; their positions here are their slots.
    dims: Vec<String>,
    /// The other names, attributes; their slots follow those of `dims`.
    attrs: Vec<Name>,
}

/// The type of attributes that dims are made of.
const INT: AttrType = AttrType { base: AttrBase::Int, list: false };

/// The shape of one argument in a [`ShapeSignature`].
#[derive(Debug, Clone, PartialEq)]
pub struct ArgShape {
    text: String,
    batch: bool,
    dims: Vec<Item>,
}

/// One dim of an argument.
#[derive(Debug, Clone, PartialEq)]
enum Item {
    Fixed(u64),
    /// `?`, in an output.
    Unknown,
    /// A dim's name.
    Slot(usize),
    Computed(Computed),
}

impl Item {
    /// The dim that an input of this size gives.
    fn given(&self) -> Option<usize> {
        match self {
            Item::Slot(slot) | Item::Computed(Computed { gives: Some((slot, _)), .. }) => Some(*slot),
            _ => None,
        }
    }
}

/// Arithmetic, or in an output an attribute.
#[derive(Debug, Clone, PartialEq)]
struct Computed {
    text: String,
    /// Names are slots.
    value: Ast<usize>,
    /// The dim that an input of this size gives, where no input has that alone, and what it is multiplied by.
    gives: Option<(usize, Ast<usize>)>,
}

impl ArgShape {
    /// The number of dims that are written: all but those that `...` stands for.
    pub fn core_rank(&self) -> usize {
        self.dims.len()
    }

    /// Whether it begins with `...`.
    pub fn has_batch_dims(&self) -> bool {
        self.batch
    }

    fn has_computed(&self) -> bool {
        self.dims.iter().any(|item| matches!(item, Item::Computed(_)))
    }

    /// For each dim that is written the name among `dims`, if it is one that stands alone.
    pub(crate) fn names<'a>(&'a self, dims: &'a [String]) -> impl Iterator<Item = Option<&'a str>> {
        self.dims.iter().map(|item| match item {
            Item::Slot(slot) => dims.get(*slot).map(String::as_str),
            _ => None,
        })
    }

    /// Whether the kernel finds one of its dims, from the data.
    pub fn has_unknown(&self) -> bool {
        self.dims.contains(&Item::Unknown)
    }
}

impl fmt::Display for ArgShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl ShapeSignature {
    /// Reads a signature. Errors say where in the text it goes wrong.
    pub fn parse(text: &str) -> Result<ShapeSignature, SignatureError> {
        parse::parse(text, &[])
    }

    /// The signature where names may be int attributes of this op: with `heads` among them, `(heads * d)` gives `d`.
    pub fn of_op(&self, op: &Signature) -> Result<ShapeSignature, SignatureError> {
        let attrs: Vec<&str> =
            op.attrs.iter().filter(|attr| attr.ty == INT).map(|attr| &*attr.name).collect();
        parse::parse(&self.text, &attrs)
    }

    /// The shapes of the inputs, in order.
    pub fn inputs(&self) -> &[ArgShape] {
        &self.inputs
    }

    /// The shapes of the outputs, in order.
    pub fn outputs(&self) -> &[ArgShape] {
        &self.outputs
    }

    /// The names of dims that inputs give, in order of appearance: those that stand alone, then those of multiples.
    pub fn dim_names(&self) -> &[String] {
        &self.dims
    }

    /// The names that must be `int` attributes, and the byte in the text at which each is first used.
    pub fn attr_names(&self) -> impl Iterator<Item = (&str, usize)> {
        self.attrs.iter().map(|name| (&*name.text, name.offset))
    }

    /// Whether every argument begins with `...`, so that a batch of calls is one call with one more batch dim: those of a batch
    /// may differ in what `?` is.
    pub fn is_batchable(&self) -> bool {
        let mut args = self.inputs.iter().chain(&self.outputs);
        args.all(|arg| arg.has_batch_dims() && !arg.has_unknown())
    }

    /// A dim that is computed from the dim of this name, if there is one.
    pub(crate) fn computed_from(&self, name: &str) -> Option<&str> {
        let slot = self.dims.iter().position(|dim| dim == name)?;
        let items = self.inputs.iter().chain(&self.outputs).flat_map(|arg| &arg.dims);
        items.filter_map(|item| if let Item::Computed(dim) = item { Some(dim) } else { None }).find_map(
            |dim| {
                let mut depends = false;
                dim.value.visit_names(&mut |other| depends |= *other == slot);
                depends.then_some(&*dim.text)
            },
        )
    }

    /// Checks that the signature fits a definition: as many arguments, and attributes for the names that no input
    /// gives. Errors name the op and what does not fit.
    pub fn check(&self, op: &Signature) -> Result<()> {
        let args = [("inputs", &self.inputs, &op.inputs), ("outputs", &self.outputs, &op.outputs)];
        for (kind, shapes, args) in args {
            if shapes.len() != args.len() {
                let (expected, got) = (args.len(), shapes.len());
                let text = format!("has {expected} {kind}, but its shape signature `{self}` has {got}");
                return Err(Error::invalid_argument(text).with_op(&op.name));
            }
        }
        match self.attrs.iter().find(|attr| op.attr_index(&attr.text).is_none_or(|i| op.attrs[i].ty != INT)) {
            Some(unknown) => {
                let what = "in its shape signature is neither a dim of an input nor an int attribute";
                let message = format!("`{}` {what}", unknown.text);
                let error = SignatureError::new(unknown.offset, unknown.text.len(), message);
                Err(error.into_error(&self.text).with_op(&op.name))
            }
            None => Ok(()),
        }
    }

    /// The signature as a shape function, for partial and symbolic shapes.
    pub fn shape_fn(&self) -> ShapeFn {
        let signature = self.clone();
        Arc::new(move |context| signature.infer(context))
    }
}

impl fmt::Display for ShapeSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::str::FromStr for ShapeSignature {
    type Err = SignatureError;

    fn from_str(text: &str) -> Result<ShapeSignature, SignatureError> {
        ShapeSignature::parse(text)
    }
}

/// The sizes of a tensor's dims, on the stack up to rank 6.
pub type Sizes = SmallVec<[usize; 6]>;
