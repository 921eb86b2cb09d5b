//! Shape inference while a graph is built: TensorFlow's partial shapes in and out.
//!
//! The C API tells the values of `type` attributes alone. Those that count tensors follow from how many there are; what
//! depends on others stays unknown here.

use std::ffi::CString;

use opsmith_core::attr::{AttrBase, AttrValue};
use opsmith_core::def::{ArgCount, ArgDef};
use opsmith_core::{Code, DType, Dim, InferenceContext, Op, Result, Shape, Signature};

use super::api::{Api, RawDim, RawShape, ShapeContext, Status};
use super::spec::Binding;

/// Infers the shapes of the outputs.
///
/// # Errors
/// What the op says of shapes that do not fit it.
///
/// # Safety
/// `context` must be a live inference for the op that `binding` stands for.
pub(super) unsafe fn infer(api: &Api, op: &Op, binding: &Binding, context: ShapeContext) -> Result<()> {
    let inference = Inference { api, context, status: Status::new(api) };
    let signature = op.signature();
    // SAFETY: the context and the status are live.
    unsafe { (api.functions.TF_ShapeInferenceContextSetUnknownShape)(context, inference.status.raw()) };
    let mut shapes = inference.inputs()?;
    let Some(counts) = inference.counts(signature, shapes.len()) else { return Ok(()) };
    let (attrs, unknown) = inference.attrs(signature, binding, &counts);
    let mut inputs = Vec::new();
    for arg in &signature.inputs {
        let rest = shapes.split_off(counts.of(arg).unwrap_or(0).min(shapes.len()));
        let own = std::mem::replace(&mut shapes, rest);
        inputs.push((!arg.optional || !own.is_empty()).then_some(own));
    }
    let mut known = InferenceContext::new(signature, &attrs, inputs)?.with_unknown_attrs(unknown);
    match op.infer_shapes(&mut known) {
        Err(error) if error.code() != Code::Unavailable => return Err(error),
        _ => {}
    }
    for arg in signature.outputs.iter().filter(|arg| !arg.optional) {
        for index in known.output_range(&arg.name)? {
            inference.set_output(index, &known.outputs()[index])?;
        }
    }
    Ok(())
}

/// An inference: TensorFlow's functions, each with the errors that it gives.
struct Inference<'a> {
    api: &'a Api,
    context: ShapeContext,
    status: Status<'a>,
}

/// What counts tensors: an attribute, or an optional input's being there.
#[derive(Clone, Copy, PartialEq)]
enum Counter<'a> {
    Attr(usize),
    Presence(&'a str),
}

/// The counters that are known.
struct Counts<'a>(Vec<(Counter<'a>, usize)>);

impl<'a> Counts<'a> {
    fn counter(arg: &'a ArgDef) -> Option<Counter<'a>> {
        match arg.count {
            ArgCount::Attr(attr) | ArgCount::Types(attr) => Some(Counter::Attr(attr)),
            ArgCount::One if arg.optional => Some(Counter::Presence(&arg.name)),
            ArgCount::One => None,
        }
    }

    /// How many tensors an input holds, where that is known.
    fn of(&self, arg: &ArgDef) -> Option<usize> {
        Counts::counter(arg).map_or(Some(1), |counter| self.value(counter))
    }

    fn value(&self, counter: Counter<'_>) -> Option<usize> {
        self.0.iter().find(|(known, _)| *known == counter).map(|(_, count)| *count)
    }

    /// Takes up that these arguments hold `total` tensors together.
    fn solve(&mut self, args: impl Iterator<Item = Option<Counter<'a>>>, total: usize) {
        let (mut rest, mut unknown, mut times) = (total, None, 0);
        for counter in args {
            match counter.map_or(Some(1), |counter| self.value(counter)) {
                Some(count) => rest = rest.saturating_sub(count),
                None if unknown.is_none_or(|other| Some(other) == counter) => {
                    unknown = counter;
                    times += 1;
                }
                None => return,
            }
        }
        if let Some(counter) = unknown {
            self.0.push((counter, rest / times));
        }
    }
}

impl Inference<'_> {
    fn inputs(&self) -> Result<Vec<Shape>> {
        let c = &self.api.functions;
        // SAFETY: the context is live.
        let count = unsafe { (c.TF_ShapeInferenceContextNumInputs)(self.context) };
        let shape = Handle::new(self.api);
        // SAFETY: the function has no preconditions; the dim is freed below.
        let dim: RawDim = unsafe { (c.TF_NewDimensionHandle)() };
        let read = |index: i64| -> Result<Shape> {
            // SAFETY: context, status and handles are live, the positions in range.
            unsafe {
                let (context, shape) = (self.context, shape.raw);
                (c.TF_ShapeInferenceContextGetInput)(context, index as i32, shape, self.status.raw());
                self.status.check()?;
                let Ok(rank) = usize::try_from((c.TF_ShapeInferenceContextRank)(context, shape)) else {
                    return Ok(Shape::unknown());
                };
                let size = |axis: usize| {
                    (c.TF_ShapeInferenceContextDim)(context, shape, axis as i64, dim);
                    u64::try_from((c.TF_DimensionHandleValue)(dim)).map_or(Dim::Unknown, Dim::Known)
                };
                Ok((0..rank).map(size).collect())
            }
        };
        let shapes = (0..count).map(read).collect();
        // SAFETY: the handle is live and ours.
        unsafe { (c.TF_DeleteDimensionHandle)(dim) };
        shapes
    }

    /// How many tensors each list holds; `None` when that does not follow from how many there are.
    fn counts<'s>(&self, signature: &'s Signature, inputs: usize) -> Option<Counts<'s>> {
        let mut counts = Counts(Vec::new());
        let of_inputs = || signature.inputs.iter().map(Counts::counter);
        // An output is always there.
        let of_outputs =
            || signature.outputs.iter().map(|arg| Counts::counter(arg).filter(|_| arg.count.is_list()));
        counts.solve(of_inputs(), inputs);
        if of_outputs().flatten().any(|counter| counts.value(counter).is_none()) {
            counts.solve(of_outputs(), self.num_outputs());
            counts.solve(of_inputs(), inputs);
        }
        let mut all = of_inputs().chain(of_outputs()).flatten();
        all.all(|counter| counts.value(counter).is_some()).then_some(counts)
    }

    /// Asks for ever more until there is none: the C API has no other way to tell.
    fn num_outputs(&self) -> usize {
        const MOST: i32 = 1 << 16;
        let shape = Handle::new(self.api);
        let status = Status::new(self.api);
        let exists = |index: &i32| {
            // SAFETY: context, status and handle are live; a shape that is not set is an unknown one.
            unsafe {
                (self.api.functions.TF_ShapeInferenceContextSetOutput)(
                    self.context,
                    *index,
                    shape.raw,
                    status.raw(),
                );
            }
            status.check().is_ok()
        };
        let count = (0..MOST).take_while(exists).count();
        // SAFETY: the context and the status are live.
        unsafe {
            let c = &self.api.functions;
            (c.TF_ShapeInferenceContextSetUnknownShape)(self.context, self.status.raw());
        }
        count
    }

    /// The attributes, and which of them only have a stand-in.
    fn attrs(
        &self,
        signature: &Signature,
        binding: &Binding,
        counts: &Counts<'_>,
    ) -> (Vec<AttrValue>, Vec<bool>) {
        let of = |(index, def): (usize, &opsmith_core::def::AttrDef)| {
            let count = counts.value(Counter::Attr(index));
            let stand_in = || def.default.clone().unwrap_or(AttrValue::Bool(false));
            match (def.ty.base, def.ty.list, count) {
                (AttrBase::Type, false, _) => match self.dtype(&binding.attrs[index]) {
                    Some(dtype) => (AttrValue::Type(dtype), false),
                    None => (stand_in(), true),
                },
                (AttrBase::Int, false, Some(count)) => (AttrValue::Int(count as i64), false),
                (AttrBase::Type, true, Some(count)) => (AttrValue::Types(vec![DType::Float32; count]), true),
                _ => (stand_in(), true),
            }
        };
        signature.attrs.iter().enumerate().map(of).unzip()
    }

    fn dtype(&self, attr: &str) -> Option<DType> {
        let name = CString::new(attr).ok()?;
        let mut number = 0;
        // SAFETY: context and status are live, the name is a C string, and the number a local.
        unsafe {
            let get = self.api.functions.TF_ShapeInferenceContext_GetAttrType;
            get(self.context, name.as_ptr(), &mut number, self.status.raw());
        }
        self.status.check().ok()?;
        DType::from_u8(u8::try_from(number).ok()?)
    }

    /// Sets the shape of an output: vectors of its dims, one behind the other.
    fn set_output(&self, index: usize, shape: &Shape) -> Result<()> {
        let c = &self.api.functions;
        let Some(dims) = shape.dims() else { return Ok(()) };
        // SAFETY: the context, the status and every handle are live; those that are made here are ours. A size of −1 is
        // TensorFlow's unknown one.
        unsafe {
            let mut whole = Handle { api: self.api, raw: (c.TF_ShapeInferenceContextScalar)(self.context) };
            for dim in dims {
                let size = dim.value().map_or(usize::MAX, |size| size as usize);
                let raw = (c.TF_ShapeInferenceContextVectorFromSize)(self.context, size);
                let (one, longer) = (Handle { api: self.api, raw }, Handle::new(self.api));
                (c.TF_ShapeInferenceContextConcatenateShapes)(
                    self.context,
                    whole.raw,
                    one.raw,
                    longer.raw,
                    self.status.raw(),
                );
                self.status.check()?;
                whole = longer;
            }
            (c.TF_ShapeInferenceContextSetOutput)(self.context, index as i32, whole.raw, self.status.raw());
        }
        self.status.check()
    }
}

/// A shape of TensorFlow's that is ours to free.
struct Handle<'a> {
    api: &'a Api,
    raw: RawShape,
}

impl<'a> Handle<'a> {
    fn new(api: &'a Api) -> Handle<'a> {
        // SAFETY: the function has no preconditions.
        Handle { api, raw: unsafe { (api.functions.TF_NewShapeHandle)() } }
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is live and ours.
        unsafe { (self.api.functions.TF_DeleteShapeHandle)(self.raw) };
    }
}
