//! From the function that composes to a list of steps.

use std::cell::RefCell;
use std::sync::Arc;

use opsmith::attr::TensorValue;
use opsmith::prelude::*;
use opsmith::{AttrValue, Op};
use opsmith_core::def::{ArgCount, ArgDef, ArgType, Signature};
use opsmith_core::kernel::FromAttr;

use super::Composition;

/// A tensor within a composition: an input, a constant, or what an op gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value {
    pub(super) index: usize,
    dtype: DType,
}

impl Value {
    /// The type of the elements.
    pub fn dtype(self) -> DType {
        self.dtype
    }
}

/// Where a value comes from.
#[derive(Clone)]
pub(super) enum Origin {
    /// The input at this position, and the element of a list.
    Input(usize, usize),
    Constant(Arc<TensorValue>),
    Step,
}

/// One call of an op.
#[derive(Clone)]
pub(super) struct Step {
    pub(super) op: Arc<Op>,
    /// The tensors of each input; none where an optional one is absent.
    pub(super) inputs: Vec<Vec<Option<Value>>>,
    pub(super) attrs: Vec<Option<AttrValue>>,
    /// The tensors of each output.
    pub(super) outputs: Vec<Vec<Value>>,
}

impl Step {
    pub(super) fn reads(&self) -> impl Iterator<Item = Value> {
        self.inputs.iter().flatten().flatten().copied()
    }
}

/// What has been composed so far.
#[derive(Default)]
pub(super) struct Trace {
    pub(super) origins: Vec<Origin>,
    pub(super) steps: Vec<Step>,
}

impl Trace {
    fn value(&mut self, origin: Origin, dtype: DType) -> Value {
        self.origins.push(origin);
        Value { index: self.origins.len() - 1, dtype }
    }
}

/// What a composition is made with: its inputs and attributes, and calls of ops.
pub struct Composer<'a> {
    signature: &'a Signature,
    attrs: &'a [AttrValue],
    inputs: Vec<Vec<Option<Value>>>,
    trace: RefCell<Trace>,
    /// The ops that have been called, and where gradient ops are looked for.
    ops: RefCell<Vec<Arc<Op>>>,
    companions: RefCell<Vec<fn() -> OpDef>>,
}

impl<'a> Composer<'a> {
    /// One for a call of `C`, whose definition this is; bit `i` of `present` is set where input `i` is there.
    pub(super) fn new<C: Composition>(
        signature: &'a Signature,
        attrs: &'a [AttrValue],
        present: u64,
    ) -> Result<Composer<'a>> {
        let mut trace = Trace::default();
        let inputs = signature.inputs.iter().enumerate().map(|(arg, def)| {
            let dtypes = dtypes_of(def, attrs)?;
            if present >> arg & 1 == 0 {
                return Ok(vec![None]);
            }
            let values = dtypes.into_iter().enumerate();
            Ok(values.map(|(element, dtype)| Some(trace.value(Origin::Input(arg, element), dtype))).collect())
        });
        let inputs = inputs.collect::<Result<_>>()?;
        Ok(Composer {
            signature,
            attrs,
            inputs,
            trace: RefCell::new(trace),
            ops: RefCell::default(),
            companions: RefCell::new(C::GRADIENT_OPS.to_vec()),
        })
    }

    /// The definition of the composed op. While a gradient is derived it is the gradient op's, whose inputs are those of the op and more.
    pub fn signature(&self) -> &'a Signature {
        self.signature
    }

    pub(super) fn all_attrs(&self) -> &'a [AttrValue] {
        self.attrs
    }

    fn tensors(&self, name: &str) -> Result<&[Option<Value>]> {
        match self.signature.input_index(name) {
            Some(arg) => Ok(&self.inputs[arg]),
            None => bail!(NotFound, "has no input `{name}`"),
        }
    }

    /// The input of this name.
    ///
    /// # Errors
    /// `NotFound` for no such input, `InvalidArgument` for one that is a list or absent.
    pub fn input(&self, name: &str) -> Result<Value> {
        let value = self.optional_input(name)?;
        value.ok_or_else(|| Error::invalid_argument(format!("input `{name}` is absent")).naming(name))
    }

    /// The input of this name, where it is present.
    ///
    /// # Errors
    /// `NotFound` for no such input, `InvalidArgument` for one that is a list.
    pub fn optional_input(&self, name: &str) -> Result<Option<Value>> {
        let tensors = self.tensors(name)?;
        let is_list = self.signature.inputs.iter().any(|arg| arg.name == name && arg.count.is_list());
        match tensors {
            [value] if !is_list => Ok(*value),
            _ => bail!(InvalidArgument for name, "input `{name}` is a list; use `input_list`"),
        }
    }

    /// The tensors of the input of this name; none of an absent one.
    ///
    /// # Errors
    /// `NotFound` for no such input.
    pub fn input_list(&self, name: &str) -> Result<Vec<Value>> {
        Ok(self.tensors(name)?.iter().copied().flatten().collect())
    }

    /// The value of an attribute.
    ///
    /// # Errors
    /// `NotFound` for no such attribute, `InvalidArgument` for one of another type.
    pub fn attr<V: FromAttr>(&self, name: &str) -> Result<V> {
        let Some(index) = self.signature.attr_index(name) else {
            bail!(NotFound, "has no attribute `{name}`")
        };
        V::from_attr(&self.attrs[index]).ok_or_else(|| {
            let text = format!("attribute `{name}` must be {}, got {}", V::EXPECTED, self.attrs[index]);
            Error::invalid_argument(text).naming(name)
        })
    }

    /// A constant.
    pub fn constant(&self, value: TensorValue) -> Value {
        let dtype = value.dtype;
        self.trace.borrow_mut().value(Origin::Constant(Arc::new(value)), dtype)
    }

    /// A constant vector of int64: a shape, or positions.
    pub fn integers(&self, numbers: &[i64]) -> Value {
        self.constant(TensorValue {
            dtype: DType::Int64,
            shape: vec![numbers.len()],
            bytes: numbers.iter().flat_map(|number| number.to_ne_bytes()).collect(),
            strings: Vec::new(),
        })
    }

    /// Begins a call of an op.
    pub fn call<O: OpDefinition>(&self) -> Call<'_, 'a> {
        let mut companions = self.companions.borrow_mut();
        for companion in O::COMPANIONS {
            if !companions.iter().any(|known| std::ptr::fn_addr_eq(*known, *companion)) {
                companions.push(*companion);
            }
        }
        Call { composer: self, op: O::def().build().map(|op| self.known(op)), inputs: vec![], attrs: vec![] }
    }

    /// Calls an op that gives one tensor, with the defaults of its attributes.
    ///
    /// # Errors
    /// As [`Call::output`].
    pub fn apply<O: OpDefinition>(&self, inputs: &[Value]) -> Result<Value> {
        inputs.iter().fold(self.call::<O>(), |call, input| call.input(*input)).output()
    }

    /// The op of that name that has been made before, or this one.
    fn known(&self, op: Op) -> Arc<Op> {
        let mut ops = self.ops.borrow_mut();
        let known = ops.iter().find(|known| known.signature().name == op.signature().name);
        if let Some(known) = known {
            return known.clone();
        }
        ops.push(Arc::new(op));
        ops[ops.len() - 1].clone()
    }

    /// The gradient op of this name of a called op.
    pub(super) fn gradient_op(&self, name: &str) -> Result<Option<Arc<Op>>> {
        if let Some(known) = self.ops.borrow().iter().find(|op| op.signature().name == name) {
            return Ok(Some(known.clone()));
        }
        for companion in &*self.companions.borrow() {
            let def = companion();
            if def.signature().is_ok_and(|signature| signature.name == name) {
                return Ok(Some(self.known(def.build()?)));
            }
        }
        Ok(None)
    }

    pub(super) fn num_steps(&self) -> usize {
        self.trace.borrow().steps.len()
    }

    pub(super) fn step(&self, index: usize) -> Step {
        self.trace.borrow().steps[index].clone()
    }

    /// Notes a call, and gives the tensors of each output.
    pub(super) fn add(
        &self,
        op: Arc<Op>,
        inputs: Vec<Vec<Option<Value>>>,
        attrs: &[Option<AttrValue>],
    ) -> Result<Vec<Vec<Value>>> {
        let signature = op.signature();
        ensure!(
            !signature.stateful && !signature.inputs.iter().any(|input| input.is_ref),
            Unimplemented,
            "has state or changes an input, which an op within a composition may not"
        );
        let counts: Vec<usize> = inputs.iter().map(Vec::len).collect();
        let dtypes: Vec<Option<DType>> =
            inputs.iter().flatten().map(|value| value.map(Value::dtype)).collect();
        let resolved = signature.resolve_flat((&counts, &dtypes), attrs)?;
        let mut trace = self.trace.borrow_mut();
        let mut outputs = Vec::with_capacity(signature.outputs.len());
        for (def, dtypes) in signature.outputs.iter().zip(resolved.output_dtypes) {
            ensure!(
                !dtypes.contains(&DType::String),
                Unimplemented,
                "output `{}` is text, which a composition does not pass on",
                def.name
            );
            outputs
                .push(dtypes.into_iter().map(|dtype| trace.value(Origin::Step, dtype)).collect::<Vec<_>>());
        }
        let attrs = resolved.attrs.into_iter().map(Some).collect();
        trace.steps.push(Step { op, inputs, attrs, outputs: outputs.clone() });
        Ok(outputs)
    }

    pub(super) fn is_own(&self, value: Value) -> bool {
        value.index < self.trace.borrow().origins.len()
    }

    pub(super) fn is_step(&self, value: Value) -> bool {
        matches!(self.trace.borrow().origins[value.index], Origin::Step)
    }

    pub(super) fn into_trace(self) -> Trace {
        self.trace.into_inner()
    }
}

/// A call of an op within a composition: its inputs in order, and its attributes.
#[must_use]
pub struct Call<'c, 'a> {
    composer: &'c Composer<'a>,
    op: Result<Arc<Op>>,
    inputs: Vec<Vec<Option<Value>>>,
    attrs: Vec<(String, AttrValue)>,
}

impl Call<'_, '_> {
    /// The next input.
    pub fn input(mut self, value: Value) -> Self {
        self.inputs.push(vec![Some(value)]);
        self
    }

    /// The next input, a list.
    pub fn input_list(mut self, values: &[Value]) -> Self {
        self.inputs.push(values.iter().copied().map(Some).collect());
        self
    }

    /// The next input, where it may be absent.
    pub fn optional_input(mut self, value: Option<Value>) -> Self {
        self.inputs.push(vec![value]);
        self
    }

    /// An attribute; those that are not given have their defaults.
    pub fn attr(mut self, name: &str, value: impl Into<AttrValue>) -> Self {
        self.attrs.push((name.to_owned(), value.into()));
        self
    }

    /// The tensors that the op gives, those of lists one by one.
    ///
    /// # Errors
    /// `InvalidArgument` where inputs or attributes do not fit the op's definition, `Unimplemented` for an op that has state,
    /// changes an input or gives text. They name the op.
    pub fn outputs(self) -> Result<Vec<Value>> {
        let op = self.op?;
        let signature = op.signature();
        let mut attrs = vec![None; signature.attrs.len()];
        for (name, value) in self.attrs {
            let index = signature.attr_index(&name).ok_or_else(|| signature.unknown_attr(&name))?;
            attrs[index] = Some(value);
        }
        let is_own = self.inputs.iter().flatten().flatten().all(|value| self.composer.is_own(*value));
        let added = match is_own {
            true => self.composer.add(op.clone(), self.inputs, &attrs),
            false => Err(Error::invalid_argument("an input is a value of another composition")),
        };
        let outputs = added.map_err(|error| error.with_op(&op.signature().name))?;
        Ok(outputs.into_iter().flatten().collect())
    }

    /// The tensor that the op gives.
    ///
    /// # Errors
    /// As [`outputs`](Self::outputs), and `InvalidArgument` where it gives another number of tensors.
    pub fn output(self) -> Result<Value> {
        let op = self.op.clone()?;
        match self.outputs()?[..] {
            [output] => Ok(output),
            ref outputs => {
                let text = format!("gives {} tensors where a composition takes one", outputs.len());
                Err(Error::invalid_argument(text).with_op(&op.signature().name))
            }
        }
    }
}

/// The dtypes of the tensors of an argument, in a call with these attributes.
pub(super) fn dtypes_of(def: &ArgDef, attrs: &[AttrValue]) -> Result<Vec<DType>> {
    let count = match def.count {
        ArgCount::One => Some(1),
        ArgCount::Attr(index) => usize::from_attr(&attrs[index]),
        ArgCount::Types(_) => None,
    };
    let dtypes = match (def.dtype, count) {
        (ArgType::Fixed(dtype), Some(count)) => Some(vec![dtype; count]),
        (ArgType::Attr(index), Some(count)) => {
            DType::from_attr(&attrs[index]).map(|dtype| vec![dtype; count])
        }
        (ArgType::List(index), _) => Vec::from_attr(&attrs[index]),
        _ => None,
    };
    dtypes.ok_or_else(|| Error::internal(format!("the dtypes of `{}` are not known", def.name)))
}
