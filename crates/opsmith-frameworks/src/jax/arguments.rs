//! A call's tensors. Inputs come one after the other, lists flattened, absent ones left out; so do the results, those
//! that nobody wants left out, and behind them what the op changes in place.

use std::ptr::NonNull;
use std::sync::Arc;

use opsmith_core::attr::TensorValue;
use opsmith_core::def::{ArgCount, ArgDef};
use opsmith_core::tensor::{Strides, row_major_strides};
use opsmith_core::{AttrValue, Device, Error, Plan, Result, Signature, TensorView, bail, ensure};
use smallvec::SmallVec;

use super::attrs::Attributes;
use super::ffi::{self, Buffer};
use crate::memory::Scratch;

/// How many tensors each input holds, an absent one being one. What a list's attribute does not tell follows from the
/// number of buffers.
pub(super) fn counts(
    signature: &Signature,
    attrs: &Attributes,
    buffers: usize,
) -> Result<SmallVec<[usize; 8]>> {
    let inputs = &signature.inputs;
    let told = |def: &ArgDef| match def.count {
        ArgCount::One => Some(1),
        ArgCount::Attr(attr) | ArgCount::Types(attr) => match attrs.values[attr].as_ref()? {
            AttrValue::Int(count) => Some(usize::try_from(*count).unwrap_or(usize::MAX)),
            AttrValue::Types(types) => Some(types.len()),
            _ => None,
        },
    };
    let absent = (0..inputs.len()).filter(|arg| !attrs.has_buffer(*arg)).count();
    let (mut rest, mut lists) = (Some(buffers + absent), SmallVec::<[&ArgDef; 4]>::new());
    for def in inputs {
        match told(def) {
            Some(count) => rest = rest.and_then(|rest| rest.checked_sub(count)),
            None => lists.push(def),
        }
    }
    if let Some(other) = lists.iter().find(|def| def.count != lists[0].count) {
        bail!(
            InvalidArgument,
            "inputs `{}` and `{}` are lists; pass the attributes that tell how many tensors they hold",
            lists[0].name,
            other.name
        );
    }
    let each = rest.unwrap_or(0) / lists.len().max(1);
    if rest != Some(each * lists.len()) {
        let names: Vec<&str> = inputs.iter().map(|arg| arg.name.as_str()).collect();
        let absent =
            if absent == 0 { String::new() } else { format!(", {absent} of them absent or given as text") };
        bail!(InvalidArgument, "has the inputs [{}]{absent}, got {buffers} tensors", names.join(", "));
    }
    Ok(inputs.iter().map(|def| told(def).unwrap_or(each)).collect())
}

/// How many tensors are changed in place.
pub(super) fn changed(signature: &Signature, attrs: &Attributes, counts: &[usize]) -> usize {
    let inputs = signature.inputs.iter().zip(counts).enumerate();
    inputs.filter(|(arg, (def, _))| def.is_ref && attrs.has(*arg)).map(|(_, (_, count))| count).sum()
}

/// The strides of each input.
///
/// # Safety
/// The buffers must be XLA's, of the call that runs.
pub(super) unsafe fn strides(buffers: &[&Buffer]) -> SmallVec<[Strides; 8]> {
    // SAFETY: promised by the caller.
    buffers.iter().map(|buffer| row_major_strides(unsafe { buffer.shape() })).collect()
}

/// An input whose value is part of the program, in host memory.
pub(super) struct Constant<'a> {
    input: usize,
    value: &'a TensorValue,
    strides: Strides,
    data: NonNull<u8>,
}

/// The inputs whose values are part of the program, copied to where their elements are aligned.
pub(super) fn constants<'a>(attrs: &'a Attributes, scratch: &Scratch) -> Result<SmallVec<[Constant<'a>; 2]>> {
    let copy = |(input, value): &'a (usize, Arc<TensorValue>)| {
        let data = scratch.allocate(value.bytes.len())?;
        // SAFETY: the new block is as large.
        unsafe { data.as_ptr().copy_from_nonoverlapping(value.bytes.as_ptr(), value.bytes.len()) };
        Ok(Constant { input: *input, value, strides: row_major_strides(&value.shape), data })
    };
    attrs.constants.iter().map(copy).collect()
}

/// The inputs of a call.
pub(super) struct FrameArguments<'a> {
    /// Where the buffers are.
    pub(super) device: Device,
    pub(super) buffers: &'a [&'a Buffer],
    pub(super) strides: &'a [Strides],
    /// The results for what is changed in place.
    pub(super) changed: &'a [&'a Buffer],
    pub(super) constants: &'a [Constant<'a>],
}

/// The inputs where they lie; what is changed in place, where the result for it lies.
///
/// # Safety
/// The buffers must be XLA's, of the call that runs.
pub(super) unsafe fn views<'a>(
    signature: &Signature,
    attrs: &Attributes,
    counts: &[usize],
    given: &FrameArguments<'a>,
) -> Result<SmallVec<[Option<TensorView<'a>>; 8]>> {
    let mut views = SmallVec::new();
    let (mut inputs, mut changed) = (given.buffers.iter().zip(given.strides), given.changed.iter());
    for (arg, (def, &count)) in signature.inputs.iter().zip(counts).enumerate() {
        if !attrs.has(arg) {
            views.push(None);
            continue;
        }
        if let Some(constant) = given.constants.iter().find(|constant| constant.input == arg) {
            let Constant { value, strides, data, .. } = constant;
            let (data, shape) = (data.as_ptr(), value.shape.as_slice());
            // SAFETY: the block has the elements of the value, row-major, and stays for the call.
            let view = unsafe { TensorView::from_raw_parts(data, value.dtype, Device::CPU, shape, strides) };
            views.push(Some(view));
            continue;
        }
        for (buffer, strides) in inputs.by_ref().take(count) {
            let about = |error: Error| error.with_argument("input", &def.name);
            // SAFETY: promised by the caller.
            unsafe {
                let data = match def.is_ref {
                    true => copied(buffer, changed.next().copied(), given.device).map_err(about)?,
                    false => buffer.data,
                };
                let dtype = ffi::dtype(buffer.dtype).map_err(about)?;
                let view = TensorView::from_raw_parts(data, dtype, given.device, buffer.shape(), strides);
                views.push(Some(view));
            }
        }
    }
    Ok(views)
}

/// Where an input may be changed: in the result for it, which has its elements, unless they share their memory.
///
/// # Safety
/// The buffers must be XLA's, of the call that runs.
unsafe fn copied(input: &Buffer, result: Option<&Buffer>, device: Device) -> Result<*mut u8> {
    let Some(result) = result else {
        bail!(InvalidArgument, "is changed in place; its new value is a result, behind those of the outputs");
    };
    // SAFETY: promised by the caller; two buffers are the same or apart.
    unsafe {
        let (expected, shape) = (input.shape(), result.shape());
        ensure!(
            expected == shape && input.dtype == result.dtype,
            InvalidArgument,
            "is changed in place and has shape {expected:?}, but the result for it has shape {shape:?} or another dtype"
        );
        if input.data != result.data {
            ensure!(
                device == Device::CPU,
                InvalidArgument,
                "is changed in place, and on a card nothing is copied: give `input_output_aliases` for it"
            );
            let bytes = expected.iter().product::<usize>() * ffi::dtype(input.dtype)?.size();
            std::ptr::copy_nonoverlapping(input.data, result.data, bytes);
        }
    }
    Ok(result.data)
}

/// The buffer of each output tensor, `None` for one that is not wanted.
pub(super) fn outputs<'a>(
    signature: &Signature,
    plan: &Plan,
    wanted: u64,
    results: &[&'a Buffer],
) -> Result<SmallVec<[Option<&'a Buffer>; 4]>> {
    let mut rest = results.iter().copied();
    let mut outputs = SmallVec::new();
    let mut missing = 0;
    for (arg, def) in signature.outputs.iter().enumerate() {
        let is_wanted = !def.optional || wanted >> arg & 1 == 1;
        for _ in plan.output_offset(arg)..plan.output_offset(arg + 1) {
            let buffer = if is_wanted { rest.next() } else { None };
            missing += usize::from(is_wanted && buffer.is_none());
            outputs.push(buffer);
        }
    }
    if missing > 0 || rest.len() > 0 {
        let expected = results.len() + missing - rest.len();
        let names: Vec<&str> = signature.outputs.iter().map(|arg| arg.name.as_str()).collect();
        let names = names.join(", ");
        bail!(InvalidArgument, "gives {expected} tensors [{names}], the caller expects {}", results.len());
    }
    Ok(outputs)
}
