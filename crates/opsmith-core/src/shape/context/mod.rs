//! What a shape function sees of a call, and what it says about the outputs.

mod attrs;
mod dims;
mod shapes;

use std::ops::Range;
use std::sync::Arc;

use super::{Constraint, Dim, Relation, Shape};
use crate::attr::{AttrValue, MAX_LIST, TensorValue};
use crate::def::{ArgCount, ArgDef, Signature, did_you_mean};
use crate::{Error, Result, ensure};

/// A shape function: reads the shapes of the inputs from the context and sets those of the outputs.
pub type ShapeFn = Arc<dyn Fn(&mut InferenceContext<'_>) -> Result<()> + Send + Sync>;

/// One call of an op as shape inference sees it.
///
/// Inputs and outputs are numbered as if lists were written out: an op with `x: N * T, y: T` and `N = 2` has inputs 0
/// to 2. An optional input that is absent keeps its number. Positions of dims may be negative, and then count from
/// the end.
///
/// Shapes and dims may be unknown or symbolic. Where a check depends on symbols it passes, and what was taken for
/// granted is recorded in [`constraints`](Self::constraints). All errors name the op.
///
/// ```
/// use std::sync::Arc;
/// use opsmith_core::shape::ShapeFn;
///
/// let rows_of_x_by_rows_of_y: ShapeFn = Arc::new(|c| {
///     let x = c.with_rank(c.input(0)?, 2)?;
///     let y = c.with_rank(c.input(1)?, 2)?;
///     c.merge(&c.dim(&x, 1)?, &c.dim(&y, 1)?)?;
///     let z = c.matrix(c.dim(&x, 0)?, c.dim(&y, 0)?);
///     c.set_output(0, z)
/// });
/// ```
#[derive(Debug)]
pub struct InferenceContext<'a> {
    signature: &'a Signature,
    attrs: &'a [AttrValue],
    /// Whether each attribute is one whose value the caller cannot tell; empty where it can tell all.
    unknown_attrs: Vec<bool>,
    inputs: Vec<Option<Shape>>,
    input_ranges: Vec<Range<usize>>,
    values: Vec<Option<&'a TensorValue>>,
    outputs: Vec<Shape>,
    output_ranges: Vec<Range<usize>>,
    constraints: Vec<Constraint>,
}

/// What must hold of dims, in words, and the input to blame where it does not.
pub(in crate::shape) struct Must {
    text: String,
    input: Option<usize>,
}

impl Must {
    pub(in crate::shape) fn of_input(i: impl Into<Option<usize>>, text: String) -> Must {
        Must { text, input: i.into() }
    }
}

impl From<String> for Must {
    fn from(text: String) -> Must {
        Must { text, input: None }
    }
}

impl<'a> InferenceContext<'a> {
    /// The context of a call of `signature` with these attributes, one for each that it declares, in order.
    ///
    /// `inputs` has one entry for each input that the signature declares: `None` for an optional one that is absent,
    /// else as many shapes as it holds tensors. All outputs begin as unknown shapes.
    ///
    /// Errors when the number of inputs or of shapes in one is not what the signature says.
    pub fn new(
        signature: &'a Signature,
        attrs: &'a [AttrValue],
        inputs: Vec<Option<Vec<Shape>>>,
    ) -> Result<InferenceContext<'a>> {
        let mut context = InferenceContext {
            signature,
            attrs,
            unknown_attrs: vec![],
            inputs: vec![],
            input_ranges: vec![],
            values: vec![],
            outputs: vec![],
            output_ranges: vec![],
            constraints: vec![],
        };
        let (expected, got) = (signature.inputs.len(), inputs.len());
        if expected != got {
            return Err(context.error(format!("takes {expected} inputs, got {got}")));
        }
        for (arg, shapes) in signature.inputs.iter().zip(inputs) {
            context.push_input(arg, shapes)?;
        }
        for arg in &signature.outputs {
            let start = context.outputs.len();
            let end = start + count(arg.count, attrs).map_err(|error| error.with_op(&signature.name))?;
            context.outputs.resize(end, Shape::unknown());
            context.output_ranges.push(start..end);
        }
        Ok(context)
    }

    fn push_input(&mut self, arg: &ArgDef, shapes: Option<Vec<Shape>>) -> Result<()> {
        let start = self.inputs.len();
        match shapes {
            Some(shapes) => {
                let expected =
                    count(arg.count, self.attrs).map_err(|error| error.with_op(&self.signature.name))?;
                if expected != shapes.len() {
                    let (name, got) = (&arg.name, shapes.len());
                    let text = format!("input `{name}` must hold {expected} tensors, got {got}");
                    return Err(self.error(text).naming(name));
                }
                let labelled = |(i, shape): (usize, Shape)| Some(shape.of_input(Some(start + i)));
                self.inputs.extend(shapes.into_iter().enumerate().map(labelled));
            }
            None if arg.optional => self.inputs.push(None),
            None => {
                return Err(self
                    .error(format!("input `{}` is required, got none", arg.name))
                    .naming(&arg.name));
            }
        }
        self.input_ranges.push(start..self.inputs.len());
        Ok(())
    }

    /// The same context where the values of some inputs are known, by input number.
    #[must_use]
    pub fn with_input_values(mut self, values: Vec<Option<&'a TensorValue>>) -> InferenceContext<'a> {
        self.values = values;
        self
    }

    /// The same context where the values of some attributes, `true` at their positions, are not known; those that count
    /// tensors count right all the same. A shape signature takes what depends on them to be unknown; a function that
    /// asks for one gets an `Unavailable` error, and the outputs that it has not set by then stay unknown.
    #[must_use]
    pub fn with_unknown_attrs(mut self, unknown: Vec<bool>) -> InferenceContext<'a> {
        self.unknown_attrs = unknown;
        self
    }

    /// The definition of the op.
    pub fn signature(&self) -> &'a Signature {
        self.signature
    }

    /// The number of inputs, the elements of lists counted one by one.
    pub fn num_inputs(&self) -> usize {
        self.inputs.len()
    }

    /// The number of outputs, the elements of lists counted one by one.
    pub fn num_outputs(&self) -> usize {
        self.outputs.len()
    }

    /// Whether input `i` is there: an optional one may be absent.
    pub fn has_input(&self, i: usize) -> bool {
        self.inputs.get(i).is_some_and(Option::is_some)
    }

    /// The shape of input `i`. Errors when there is none of this number, or it is absent.
    pub fn input(&self, i: usize) -> Result<Shape> {
        match self.inputs.get(i) {
            Some(Some(shape)) => Ok(shape.clone()),
            Some(None) => {
                Err(self.error_of_input(Some(i), format_args!("{} is absent", self.input_label(i))))
            }
            None => {
                Err(self.error(format!("has {} inputs, so there is no input number {i}", self.num_inputs())))
            }
        }
    }

    /// The shape of the input of this name. Errors when there is none, when it is absent or a list.
    pub fn input_by_name(&self, name: &str) -> Result<Shape> {
        let range = self.input_range(name)?;
        if range.len() != 1 {
            let text = format!("input `{name}` is a list of {} tensors, not one", range.len());
            return Err(self.error(text).naming(name));
        }
        self.input(range.start)
    }

    /// The shapes of the tensors in the list input of this name. Errors when there is none or it is absent.
    pub fn input_list(&self, name: &str) -> Result<Vec<Shape>> {
        self.input_range(name)?.map(|i| self.input(i)).collect()
    }

    /// The numbers of the inputs that the argument of this name stands for. Errors when there is none.
    pub fn input_range(&self, name: &str) -> Result<Range<usize>> {
        match self.signature.input_index(name) {
            Some(arg) => Ok(self.input_ranges[arg].clone()),
            None => Err(self.no_such("input", name, &self.signature.inputs)),
        }
    }

    /// The numbers of the outputs that the argument of this name stands for. Errors when there is none.
    pub fn output_range(&self, name: &str) -> Result<Range<usize>> {
        match self.signature.output_index(name) {
            Some(arg) => Ok(self.output_ranges[arg].clone()),
            None => Err(self.no_such("output", name, &self.signature.outputs)),
        }
    }

    fn no_such(&self, what: &str, name: &str, args: &[ArgDef]) -> Error {
        let hint = did_you_mean(name, args.iter().map(|arg| arg.name.as_str()));
        self.error(format!("has no {what} `{name}`{hint}"))
    }

    /// The value of input `i`, where it is a constant that is known.
    pub fn input_value(&self, i: usize) -> Option<&'a TensorValue> {
        self.values.get(i).copied().flatten()
    }

    /// Sets the shape of output `i`. Errors when there is none of this number.
    pub fn set_output(&mut self, i: usize, shape: Shape) -> Result<()> {
        let count = self.num_outputs();
        match self.outputs.get_mut(i) {
            Some(output) => *output = shape,
            None => {
                return Err(self.error(format!("has {count} outputs, so output number {i} cannot be set")));
            }
        }
        Ok(())
    }

    /// Sets the shape of the output of this name; for a list, of each tensor in it. Errors when there is none.
    pub fn set_output_by_name(&mut self, name: &str, shape: Shape) -> Result<()> {
        for i in self.output_range(name)? {
            self.outputs[i] = shape.clone();
        }
        Ok(())
    }

    /// Sets the shapes of the tensors in the list output of this name. Errors when there is none, or of another length.
    pub fn set_output_list(&mut self, name: &str, shapes: Vec<Shape>) -> Result<()> {
        let range = self.output_range(name)?;
        let (expected, got) = (range.len(), shapes.len());
        if expected != got {
            let text = format!("output `{name}` must hold {expected} tensors, got {got} shapes");
            return Err(self.error(text).naming(name));
        }
        for (i, shape) in range.zip(shapes) {
            self.outputs[i] = shape;
        }
        Ok(())
    }

    /// The shapes of the outputs as set so far.
    pub fn outputs(&self) -> &[Shape] {
        &self.outputs
    }

    /// What was assumed about symbolic dims so far.
    pub fn constraints(&self) -> &[Constraint] {
        &self.constraints
    }

    /// The shapes of the outputs and what was assumed, when inference is done.
    pub fn into_parts(self) -> (Vec<Shape>, Vec<Constraint>) {
        (self.outputs, self.constraints)
    }

    /// An `InvalidArgument` error of the op.
    pub fn error(&self, text: impl std::fmt::Display) -> Error {
        Error::invalid_argument(text.to_string()).with_op(&self.signature.name)
    }

    /// Takes `left` and `right` to be equal: an error when they cannot be, a recorded constraint when that depends on
    /// symbols. `message` says what must hold, without the op's name and without the two dims.
    pub fn assume_equal(&mut self, left: &Dim, right: &Dim, message: impl std::fmt::Display) -> Result<()> {
        self.assume(Relation::Equal, left, right, |_| message.to_string().into())
    }

    /// Takes `left` to be at least `right`, as [`assume_equal`](Self::assume_equal) does.
    pub fn assume_at_least(
        &mut self,
        left: &Dim,
        right: &Dim,
        message: impl std::fmt::Display,
    ) -> Result<()> {
        self.assume(Relation::AtLeast, left, right, |_| message.to_string().into())
    }

    /// What must hold is put in words only where it is wanted: most calls are of known sizes that are equal.
    pub(in crate::shape) fn assume(
        &mut self,
        relation: Relation,
        left: &Dim,
        right: &Dim,
        must: impl FnOnce(&Self) -> Must,
    ) -> Result<()> {
        if left == right {
            return Ok(());
        }
        let expr = |dim: &Dim| dim.to_expr().map_err(|error| error.with_op(&self.signature.name));
        let (Some(a), Some(b)) = (expr(left)?, expr(right)?) else { return Ok(()) };
        let holds = match relation {
            Relation::Equal => a == b,
            Relation::AtLeast => a.is_at_least(&b),
        };
        if holds {
            return Ok(());
        }
        let must = must(self);
        let constraint =
            Constraint { relation, left: left.clone(), right: right.clone(), message: must.text };
        let is_false = a.minus(&b).is_ok_and(|difference| difference.as_constant().is_some());
        if is_false {
            return Err(self.error_of_input(must.input, constraint.failure(left, right)));
        }
        if !self.constraints.contains(&constraint) {
            self.constraints.push(constraint);
        }
        Ok(())
    }

    /// An error about input `i`, where there is one.
    pub(in crate::shape) fn error_of_input(&self, i: Option<usize>, text: impl std::fmt::Display) -> Error {
        blaming(self.error(text), &self.signature.inputs, &self.input_ranges, i)
    }

    /// An error about output `i`.
    pub(in crate::shape) fn error_of_output(&self, i: usize, text: impl std::fmt::Display) -> Error {
        blaming(self.error(text), &self.signature.outputs, &self.output_ranges, Some(i))
    }

    /// ``input `x` ``, or ``input `x[2]` `` in a list.
    pub(in crate::shape) fn input_label(&self, i: usize) -> String {
        argument_label("input", &self.signature.inputs, &self.input_ranges, i)
    }

    /// ``output `z` ``, or ``output `z[2]` `` in a list.
    pub(in crate::shape) fn output_label(&self, i: usize) -> String {
        argument_label("output", &self.signature.outputs, &self.output_ranges, i)
    }

    /// What a message calls this shape: the input that it came from, where it did.
    pub(in crate::shape) fn label(&self, shape: &Shape) -> String {
        shape.input().map_or_else(|| format!("shape {shape}"), |i| self.input_label(i))
    }

    /// ``with inputs `x` [2,3], `y` [3]``: for messages about dims that have no name.
    fn with_inputs(&self) -> String {
        let inputs = self.inputs.iter().enumerate().filter_map(|(i, shape)| {
            let label = self.input_label(i);
            Some(format!("{} {}", label.trim_start_matches("input "), shape.as_ref()?))
        });
        format!("with inputs {}", inputs.collect::<Vec<_>>().join(", "))
    }
}

/// How many tensors an argument holds in a call with these attributes.
pub(crate) fn count(count: ArgCount, attrs: &[AttrValue]) -> Result<usize> {
    let count = match count {
        ArgCount::One => Some(1),
        ArgCount::Attr(i) => match attrs.get(i) {
            Some(AttrValue::Int(count)) => usize::try_from(*count).ok(),
            _ => None,
        },
        ArgCount::Types(i) => match attrs.get(i) {
            Some(AttrValue::Types(types)) => Some(types.len()),
            _ => None,
        },
    };
    let count =
        count.ok_or_else(|| Error::internal("an attribute that counts tensors is missing or not a count"))?;
    ensure!(count <= MAX_LIST, ResourceExhausted, "a list of {count} tensors is longer than {MAX_LIST}");
    Ok(count)
}

fn argument<'a>(args: &'a [ArgDef], ranges: &'a [Range<usize>], i: usize) -> Option<(&'a ArgDef, usize)> {
    let found = args.iter().zip(ranges).find(|(_, range)| range.contains(&i));
    found.map(|(arg, range)| (arg, i - range.start))
}

fn blaming(error: Error, args: &[ArgDef], ranges: &[Range<usize>], i: Option<usize>) -> Error {
    match i.and_then(|i| argument(args, ranges, i)) {
        Some((arg, _)) => error.naming(&arg.name),
        None => error,
    }
}

fn argument_label(kind: &str, args: &[ArgDef], ranges: &[Range<usize>], i: usize) -> String {
    match argument(args, ranges, i) {
        Some((arg, element)) if arg.count.is_list() => format!("{kind} `{}[{element}]`", arg.name),
        Some((arg, _)) => format!("{kind} `{}`", arg.name),
        None => format!("{kind} {i}"),
    }
}
