//! One-line tests of shape functions, for authors of ops.
//!
//! ```
//! use opsmith_core::testing::ShapeTest;
//! use opsmith_core::{OpDef, infer_error, infer_ok};
//!
//! let def = OpDef::new("Distance").input("x: float").input("y: float").output("z: float");
//! let op = ShapeTest::of(def.shape("(n,p),(m,p)->(n,m)"))?;
//! infer_ok!(op, "[2,3];[4,3]", "[2,4]");
//! infer_ok!(op, "[?,3];?", "[d0_0,?]");
//! infer_ok!(op, "[n,p];[n + 1,p]", "[n,n + 1]");
//! infer_error!(op, "dim 1 of input `y` must equal dim 1 of input `x` (p): 5 ≠ 3", "[2,3];[4,5]");
//! # Ok::<(), opsmith_core::Error>(())
//! ```
//!
//! Inputs are shapes with `;` between them, the elements of lists one by one: `?` is an unknown rank, `[?,3]` has an
//! unknown dim, `[n,3]` a symbolic one, and `-` is an optional input that is absent.
//!
//! Outputs are written alike; beyond that `in0` is the shape of input 0, and in a dim `d0_1` stands for dim 1 of
//! input 0, alone or in arithmetic. `|` parts alternatives: `[d0_0|d1_0]`. That an output takes its dim from an
//! unknown dim of an input is seen in a second inference in which each unknown dim is a symbol of its own.

use std::sync::Arc;

use crate::attr::{AttrBase, AttrType, AttrValue, TensorValue};
use crate::def::{Allowed, ArgCount, ArgDef, AttrDef, Signature};
use crate::shape::{Constraint, Dim, InferenceContext, Shape, ShapeFn};
use crate::{DType, Error, OpDef, Result};

/// Checks that an op's shape function makes of these inputs these outputs: `infer_ok!(op, "[?,3];[3]", "[d0_0]")`.
///
/// `op` is a [`ShapeTest`](crate::testing::ShapeTest); the [module](crate::testing) describes the texts.
#[macro_export]
macro_rules! infer_ok {
    ($op:expr, $inputs:expr, $outputs:expr $(,)?) => {
        $crate::testing::infer_ok(&$op, $inputs, $outputs)
    };
}

/// Checks that an op's shape function refuses these inputs with a message that contains a text:
/// `infer_error!(op, "must have rank 1", "[1,2]")`.
///
/// `op` is a [`ShapeTest`](crate::testing::ShapeTest); the [module](crate::testing) describes the texts.
#[macro_export]
macro_rules! infer_error {
    ($op:expr, $message:expr, $inputs:expr $(,)?) => {
        $crate::testing::infer_error(&$op, $message, $inputs)
    };
}

/// An op whose shape function is tested: its definition, the function, attributes and known inputs.
#[derive(Clone)]
pub struct ShapeTest {
    signature: Signature,
    shape_fn: ShapeFn,
    attrs: Vec<Option<AttrValue>>,
    values: Vec<Option<TensorValue>>,
}

impl ShapeTest {
    /// The op of this definition with this shape function, its attributes at their defaults.
    ///
    /// What has no default and is inferred from inputs gets a value that fits: the dtypes the first that is allowed,
    /// the counts of lists what the texts say.
    pub fn new(
        signature: &Signature,
        shape_fn: impl Fn(&mut InferenceContext<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> ShapeTest {
        let shape_fn: ShapeFn = Arc::new(shape_fn);
        let attrs =
            signature.attrs.iter().map(|attr| attr.default.clone().or_else(|| any_type(attr))).collect();
        ShapeTest { signature: signature.clone(), shape_fn, attrs, values: vec![] }
    }

    /// The op that this states, as [`new`](Self::new) describes. Errors where the statement is not well formed.
    pub fn of(def: OpDef) -> Result<ShapeTest> {
        let op = def.build()?;
        Ok(ShapeTest::new(&op.signature().clone(), move |context| op.infer_shapes(context)))
    }

    /// The same op with another value of an attribute.
    ///
    /// # Panics
    /// When the op has no attribute of this name.
    #[must_use]
    #[track_caller]
    pub fn attr(mut self, name: &str, value: AttrValue) -> ShapeTest {
        let index = self.signature.attr_index(name);
        let index = index.unwrap_or_else(|| panic!("{} has no attribute `{name}`", self.signature.name));
        self.attrs[index] = Some(value);
        self
    }

    /// The same op where the value of this input, by number, is known.
    #[must_use]
    pub fn input_value(mut self, input: usize, value: TensorValue) -> ShapeTest {
        self.values.resize(self.values.len().max(input + 1), None);
        self.values[input] = Some(value);
        self
    }

    /// The shapes of the outputs for these inputs, and what inference assumed of symbols.
    ///
    /// Errors are those of the shape function, of texts that are no shapes, and of attributes that have no value.
    pub fn infer(&self, inputs: &str) -> Result<(Vec<Shape>, Vec<Constraint>)> {
        self.run(&parse_inputs(inputs)?)
    }

    fn run(&self, inputs: &[Option<Shape>]) -> Result<(Vec<Shape>, Vec<Constraint>)> {
        let attrs = self.attrs_for(inputs)?;
        let mut rest = inputs;
        let mut grouped = vec![];
        for arg in &self.signature.inputs {
            let count = match rest {
                [None, ..] => 1,
                _ => crate::shape::context::count(arg.count, &attrs)?.min(rest.len()),
            };
            let (own, after) = rest.split_at(count);
            rest = after;
            grouped.push(own.iter().cloned().collect());
        }
        if !rest.is_empty() {
            let text = format!("{} shapes more than inputs in the test", rest.len());
            return Err(Error::invalid_argument(text).with_op(&self.signature.name));
        }
        let values = self.values.iter().map(Option::as_ref).collect();
        let mut context = InferenceContext::new(&self.signature, &attrs, grouped)?.with_input_values(values);
        (self.shape_fn)(&mut context).map_err(|error| error.with_op(&self.signature.name))?;
        Ok(context.into_parts())
    }

    /// The attributes, the length of a list that none of them says being what the other inputs leave.
    fn attrs_for(&self, inputs: &[Option<Shape>]) -> Result<Vec<AttrValue>> {
        let mut attrs = self.attrs.clone();
        let unsaid = |arg: &&ArgDef| match arg.count {
            ArgCount::One => false,
            ArgCount::Attr(i) | ArgCount::Types(i) => self.attrs[i].is_none(),
        };
        let singles = self.signature.inputs.iter().filter(|arg| !arg.count.is_list()).count();
        let lists = self.signature.inputs.iter().filter(unsaid).count();
        for arg in self.signature.inputs.iter().filter(unsaid) {
            let length = inputs.len().saturating_sub(singles) / lists;
            match arg.count {
                ArgCount::One => {}
                ArgCount::Attr(i) => attrs[i] = Some(AttrValue::Int(length as i64)),
                ArgCount::Types(i) => attrs[i] = Some(AttrValue::Types(vec![DType::Float32; length])),
            }
        }
        let named = attrs.into_iter().zip(&self.signature.attrs);
        let required = |(value, attr): (Option<AttrValue>, &AttrDef)| {
            value.ok_or_else(|| {
                let text = format!("attribute `{}` needs a value in the test", attr.name);
                Error::invalid_argument(text).with_op(&self.signature.name)
            })
        };
        named.map(required).collect()
    }
}

/// A dtype that the attribute allows, if it is a `type`.
fn any_type(attr: &AttrDef) -> Option<AttrValue> {
    if attr.ty != (AttrType { base: AttrBase::Type, list: false }) {
        return None;
    }
    let first = match &attr.allowed {
        Some(Allowed::Types(types)) => types.first().copied(),
        _ => None,
    };
    Some(AttrValue::Type(first.unwrap_or(DType::Float32)))
}

/// What [`infer_ok!`](crate::infer_ok) calls.
///
/// # Panics
/// When the outputs are not these; the message says which output and what it is.
#[track_caller]
pub fn infer_ok(op: &ShapeTest, inputs: &str, outputs: &str) {
    if let Err(message) = check_ok(op, inputs, outputs) {
        panic!("{}({inputs}): {message}", op.signature.name);
    }
}

/// What [`infer_error!`](crate::infer_error) calls.
///
/// # Panics
/// When there is no error, or its message does not contain `message`.
#[track_caller]
pub fn infer_error(op: &ShapeTest, message: &str, inputs: &str) {
    let name = &op.signature.name;
    match op.infer(inputs) {
        Ok((outputs, _)) => {
            panic!("{name}({inputs}): should fail with `{message}`, gives {}", join(&outputs))
        }
        Err(error) if error.message().contains(message) => {}
        Err(error) => {
            panic!("{name}({inputs}): should fail with `{message}`, fails with `{}`", error.message())
        }
    }
}

fn check_ok(op: &ShapeTest, inputs: &str, outputs: &str) -> Result<(), String> {
    let inputs = parse_inputs(inputs).map_err(|error| error.message().to_owned())?;
    compare(op, &inputs, outputs, false)?;
    let named: Vec<_> =
        inputs.iter().enumerate().map(|(i, shape)| Some(name_unknown(i, shape.as_ref()?))).collect();
    if named == inputs {
        return Ok(());
    }
    compare(op, &named, outputs, true)
        .map_err(|message| format!("with a symbol for each unknown dim: {message}"))
}

/// The shape with a symbol `d<input>_<position>` for each unknown dim.
fn name_unknown(input: usize, shape: &Shape) -> Shape {
    let Some(dims) = shape.dims() else { return Shape::unknown() };
    let name = |(i, dim): (usize, &Dim)| match dim {
        Dim::Unknown => Dim::symbol(&format!("d{input}_{i}")),
        known => known.clone(),
    };
    dims.iter().enumerate().map(name).collect()
}

/// Compares the outputs with what is expected. Where unknown dims are `named`, `?` is expected of none in particular.
fn compare(op: &ShapeTest, inputs: &[Option<Shape>], expected: &str, named: bool) -> Result<(), String> {
    let (outputs, _) = op.run(inputs).map_err(|error| format!("fails with `{}`", error.message()))?;
    let expected: Vec<&str> = expected.split(';').map(str::trim).filter(|text| !text.is_empty()).collect();
    if expected.len() != outputs.len() {
        return Err(format!("has {} outputs, {} expected", outputs.len(), expected.len()));
    }
    for (i, (output, text)) in outputs.iter().zip(expected).enumerate() {
        if !shape_is(output, text, inputs, named)? {
            return Err(format!("output {i} should be {text}, is {output}"));
        }
    }
    Ok(())
}

fn shape_is(output: &Shape, text: &str, inputs: &[Option<Shape>], named: bool) -> Result<bool, String> {
    if text == "?" {
        return Ok(named || output.rank().is_none());
    }
    let Some(list) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) else {
        let number = |text: &str| text.trim().strip_prefix("in")?.parse::<usize>().ok();
        let mut same = false;
        for text in text.split('|') {
            let input = number(text).and_then(|i| inputs.get(i));
            same |= input.ok_or_else(|| format!("`{text}` is neither a shape nor an input"))?.as_ref()
                == Some(output);
        }
        return Ok(same);
    };
    let texts = split_dims(list);
    let Some(dims) = output.dims().filter(|dims| dims.len() == texts.len()) else { return Ok(false) };
    for (dim, text) in dims.iter().zip(texts) {
        let mut same = named && text.trim() == "?";
        for text in text.split('|') {
            let lookup = |name: &str| input_dim(name, inputs).unwrap_or_else(|| Dim::symbol(name));
            same |=
                Dim::parse_with(text.trim(), &lookup).map_err(|error| error.message().to_owned())? == *dim;
        }
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The dim that `d0_1` stands for.
fn input_dim(name: &str, inputs: &[Option<Shape>]) -> Option<Dim> {
    let (input, position) = name.strip_prefix('d')?.split_once('_')?;
    let shape = inputs.get(input.parse::<usize>().ok()?)?.as_ref()?;
    shape.dims()?.get(position.parse::<usize>().ok()?).cloned()
}

/// Splits at the commas outside parentheses.
fn split_dims(list: &str) -> Vec<&str> {
    let mut depth = 0;
    let split = |c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    };
    if list.trim().is_empty() { vec![] } else { list.split(split).collect() }
}

fn parse_inputs(text: &str) -> Result<Vec<Option<Shape>>> {
    let shapes = text.split(';').map(str::trim).filter(|text| !text.is_empty());
    shapes.map(|text| if text == "-" { Ok(None) } else { Shape::parse(text).map(Some) }).collect()
}

fn join(shapes: &[Shape]) -> String {
    shapes.iter().map(Shape::to_string).collect::<Vec<_>>().join(";")
}
