//! Calls on tensors in DLPack's form: what a program has that knows nothing of Opsmith's own.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::RefCell;
use std::ptr::{NonNull, null_mut};

use opsmith_core::abi::dlpack::{
    DLDevice, DLManagedTensorVersioned, DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION, DLPackVersion, DLTensor,
    OpsmithDLPackCall, kDLCPU,
};
use opsmith_core::kernel::{CallInputs, Services};
use opsmith_core::tensor::{Extents, MAX_RANK, Strides, checked_num_elements, row_major_strides};
use opsmith_core::{
    DType, Device, DeviceKind, Error, Op, Plan, Request, Result, Signature, TensorView, bail, ensure,
};
use opsmith_threads::Body;
use smallvec::SmallVec;

use super::{call, infer, read};
use crate::StaticLibrary;
use crate::memory::Scratch;

/// What the memory of an output that we make is aligned to.
const ALIGNMENT: usize = 64;

/// Runs a call.
///
/// # Safety
/// `call` and all that it points to must be valid as `opsmith_core::abi` says.
pub(super) unsafe fn run(library: &'static StaticLibrary, call: *const OpsmithDLPackCall) -> Result<()> {
    // SAFETY: promised by the caller.
    let call = unsafe { read::structure(call, "the call") }?;
    if !call.made.is_null() {
        for index in 0..call.num_outputs {
            // SAFETY: promised by the caller.
            unsafe { call.made.add(index).write(null_mut()) };
        }
    }
    let op = infer::op_at(library, call.op)?;
    // SAFETY: promised by the caller.
    unsafe { compute(op, call) }.map_err(|error| error.with_op(&op.signature().name))
}

/// # Safety
/// As for [`run`].
unsafe fn compute(op: &'static Op, call: &OpsmithDLPackCall) -> Result<()> {
    let signature = op.signature();
    // SAFETY: promised by the caller.
    let (tensors, counts, outputs, attrs) = unsafe {
        let tensors = read::slice(call.tensors, call.num_tensors, "the list of tensors")?;
        let counts: SmallVec<[usize; 8]> = match call.counts.is_null() {
            true => SmallVec::from_elem(1, call.num_tensors),
            false => read::slice(call.counts, call.num_arguments, "the list of counts")?.into(),
        };
        let outputs = match call.given.is_null() {
            true => &[],
            false => read::slice(call.given, call.num_outputs, "the list of outputs")?,
        };
        (tensors, counts, outputs, call::attributes(signature, call.attrs, call.num_attrs)?)
    };
    let name = |index: usize| input_name(signature, &counts, index);
    let mut laid: SmallVec<[Option<Laid>; 8]> = SmallVec::new();
    for (index, &tensor) in tensors.iter().enumerate() {
        // SAFETY: promised by the caller.
        let read = unsafe { Laid::read(tensor) };
        laid.push(read.map_err(|error| error.with_argument("input", &name(index)))?);
    }
    // SAFETY: promised by the caller.
    let views: SmallVec<[Option<TensorView<'_>>; 8]> =
        laid.iter().map(|laid| laid.as_ref().map(|laid| unsafe { laid.view() })).collect();
    let inputs = CallInputs { flat: &views, counts: &counts };
    let plan = op.plan(&Request { inputs, attrs: &attrs, device: DeviceKind::Cpu })?;
    let (made, room) = (plan.output_dtypes().len(), call.num_outputs);
    ensure!(room >= made, InvalidArgument, "the call has room for {room} outputs, but the op has {made}");
    let mut given: SmallVec<[Option<Laid>; 4]> = SmallVec::new();
    for (index, &tensor) in outputs.iter().take(made).enumerate() {
        // SAFETY: promised by the caller.
        let read = unsafe { Laid::read(tensor) };
        given
            .push(read.map_err(|error| error.with_argument("output", output_name(signature, &plan, index)))?);
    }
    check_given(signature, &plan, &given, &views, &name)?;
    let services = DlServices {
        given: &given,
        makes: !call.made.is_null(),
        made: RefCell::default(),
        scratch: Scratch::default(),
    };
    plan.run(op, inputs, call.wanted, &services)?;
    for (index, made) in services.made.into_inner() {
        // SAFETY: `index` is an output's, for each of which there is a place.
        unsafe { call.made.add(index).write(made.give()) };
    }
    Ok(())
}

/// That outputs which the caller gives can be written to, and are nobody else's.
fn check_given(
    signature: &Signature,
    plan: &Plan,
    given: &[Option<Laid>],
    inputs: &[Option<TensorView<'_>>],
    input: &dyn Fn(usize) -> String,
) -> Result<()> {
    // SAFETY: nothing is read.
    let view = |laid: &Option<Laid>| laid.as_ref().map(|laid| unsafe { laid.view() }.byte_range());
    let shares = |a: &std::ops::Range<usize>, b: std::ops::Range<usize>| {
        !a.is_empty() && !b.is_empty() && a.start < b.end && b.start < a.end
    };
    for (index, laid) in given.iter().enumerate() {
        let (Some(laid), Some(own)) = (laid, view(laid)) else { continue };
        let name = output_name(signature, plan, index);
        // SAFETY: nothing is read.
        let output = unsafe { laid.view() };
        ensure!(output.is_contiguous(), InvalidArgument for name, "output `{name}` must be row-major without gaps");
        ensure!(output.is_aligned(), InvalidArgument for name, "output `{name}` is not aligned for {}", laid.dtype);
        let other = |at: &usize| inputs[*at].as_ref().is_some_and(|tensor| shares(&own, tensor.byte_range()));
        if let Some(at) = (0..inputs.len()).find(other) {
            bail!(InvalidArgument for name, "output `{name}` shares memory with input `{}`", input(at));
        }
        let other = |at: &usize| view(&given[*at]).is_some_and(|range| shares(&own, range));
        if let Some(at) = (0..index).find(other) {
            let other = output_name(signature, plan, at);
            bail!(InvalidArgument for name, "output `{name}` shares memory with output `{other}`");
        }
    }
    Ok(())
}

/// The name of the input that holds a tensor.
fn input_name(signature: &Signature, counts: &[usize], index: usize) -> String {
    let mut end = 0usize;
    for (arg, count) in signature.inputs.iter().zip(counts) {
        end = end.saturating_add(*count);
        if index < end {
            return arg.name.clone();
        }
    }
    format!("{index}")
}

/// The name of the output that holds a tensor.
fn output_name<'a>(signature: &'a Signature, plan: &Plan, index: usize) -> &'a str {
    let found = (0..signature.outputs.len()).find(|arg| index < plan.output_offset(arg + 1));
    found.map_or("", |arg| &signature.outputs[arg].name)
}

/// A tensor of DLPack's that has been looked at.
struct Laid {
    dtype: DType,
    data: *mut u8,
    shape: Extents,
    strides: Strides,
}

impl Laid {
    /// Nothing where the pointer is null.
    ///
    /// # Safety
    /// `tensor` must be null or valid, as far as its fields say.
    unsafe fn read(tensor: *const DLTensor) -> Result<Option<Laid>> {
        if tensor.is_null() {
            return Ok(None);
        }
        ensure!(tensor.is_aligned(), InvalidArgument, "its address is not aligned for a DLTensor");
        // SAFETY: promised by the caller.
        let tensor = unsafe { &*tensor };
        let DLDevice { device_type, device_id } = tensor.device;
        ensure!(
            device_type == kDLCPU,
            InvalidArgument,
            "is on a device of kind {device_type} (index {device_id}), not in host memory (kind {kDLCPU})"
        );
        let Some(dtype) = DType::from_dlpack(tensor.dtype) else {
            let theirs = tensor.dtype;
            bail!(
                InvalidArgument,
                "has a dtype of code {}, bits {} and lanes {}, which Opsmith does not have",
                theirs.code,
                theirs.bits,
                theirs.lanes
            );
        };
        let rank = usize::try_from(tensor.ndim).ok().filter(|rank| *rank <= MAX_RANK);
        let Some(rank) = rank else {
            bail!(InvalidArgument, "has {} dims; there may be 0 to {MAX_RANK}", tensor.ndim);
        };
        // SAFETY: promised by the caller.
        let dims = unsafe { read::slice(tensor.shape, rank, "its shape") }?;
        if let Some(dim) = dims.iter().find(|dim| **dim < 0) {
            bail!(InvalidArgument, "has a dim of {dim}");
        }
        let shape: Extents = dims.iter().map(|&dim| dim as usize).collect();
        let strides: Strides = match tensor.strides.is_null() {
            true => row_major_strides(&shape),
            // SAFETY: promised by the caller.
            false => unsafe { std::slice::from_raw_parts(tensor.strides.cast_const(), rank) }
                .iter()
                .map(|&stride| stride as isize)
                .collect(),
        };
        let data = match shape.contains(&0) {
            // Nobody looks at it, but it is to be aligned.
            true => NonNull::<u128>::dangling().as_ptr().cast(),
            false => data(tensor, dtype, &shape, &strides)?,
        };
        Ok(Some(Laid { dtype, data, shape, strides }))
    }

    /// # Safety
    /// The tensor must still be valid.
    unsafe fn view(&self) -> TensorView<'_> {
        // SAFETY: promised by the caller; what it reaches is within the address space.
        unsafe { TensorView::from_raw_parts(self.data, self.dtype, Device::CPU, &self.shape, &self.strides) }
    }
}

/// Where the first element is, once all are known to have an address.
fn data(tensor: &DLTensor, dtype: DType, shape: &[usize], strides: &[isize]) -> Result<*mut u8> {
    ensure!(!tensor.data.is_null(), InvalidArgument, "has shape {shape:?}, but no data");
    let reach = |up: bool| {
        let each = shape.iter().zip(strides).filter(|(_, stride)| (**stride > 0) == up);
        let each = each.map(|(&dim, &stride)| (dim as i128 - 1).checked_mul(stride as i128));
        each.into_iter().try_fold(0i128, |sum, reach| sum.checked_add(reach?))
    };
    let ends = || {
        let first = (tensor.data as usize as i128).checked_add(i128::from(tensor.byte_offset))?;
        let size = dtype.size() as i128;
        let low = first.checked_add(reach(false)?.checked_mul(size)?)?;
        let high = first.checked_add(reach(true)?.checked_add(1)?.checked_mul(size)?)?;
        (low > 0 && high <= isize::MAX as i128 && checked_num_elements(shape).is_some()).then_some(())
    };
    let Some(()) = ends() else {
        let offset = tensor.byte_offset;
        bail!(
            InvalidArgument,
            "has shape {shape:?}, strides {strides:?} and a byte offset of {offset}, which reach beyond all memory"
        );
    };
    Ok(tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize))
}

/// An output of our own.
struct Made {
    dtype: DType,
    shape: Box<[i64]>,
    data: NonNull<u8>,
    layout: Layout,
}

impl Made {
    fn new(dtype: DType, shape: &[usize]) -> Result<Made> {
        let too_much =
            || Error::resource_exhausted(format!("cannot allocate a {dtype} tensor of shape {shape:?}"));
        let bytes = checked_num_elements(shape).and_then(|count| count.checked_mul(dtype.size()));
        let layout = bytes.and_then(|bytes| Layout::from_size_align(bytes.max(1), ALIGNMENT).ok());
        let layout = layout.ok_or_else(too_much)?;
        // SAFETY: the size is not zero.
        let data = NonNull::new(unsafe { alloc(layout) }).ok_or_else(too_much)?;
        // SAFETY: the memory is ours and nothing is in it yet.
        unsafe { opsmith_core::memory::prefer_large_pages(data.as_ptr(), layout.size()) };
        Ok(Made { dtype, shape: shape.iter().map(|&dim| dim as i64).collect(), data, layout })
    }

    /// The tensor for the caller, who gives it back to [`delete`].
    fn give(mut self) -> *mut DLManagedTensorVersioned {
        let Some(dtype) = self.dtype.to_dlpack() else { return null_mut() };
        let dims: Extents = self.shape.iter().map(|&dim| dim as usize).collect();
        let mut strides: Box<[i64]> = row_major_strides(&dims).iter().map(|&stride| stride as i64).collect();
        let dl_tensor = DLTensor {
            data: self.data.as_ptr().cast(),
            device: DLDevice { device_type: kDLCPU, device_id: 0 },
            ndim: self.shape.len() as i32,
            dtype,
            shape: self.shape.as_mut_ptr(),
            strides: strides.as_mut_ptr(),
            byte_offset: 0,
        };
        let managed = DLManagedTensorVersioned {
            version: DLPackVersion { major: DLPACK_MAJOR_VERSION, minor: DLPACK_MINOR_VERSION },
            manager_ctx: null_mut(),
            deleter: Some(delete),
            flags: 0,
            dl_tensor,
        };
        let given = Box::into_raw(Box::new(Exported { managed, _made: self, _strides: strides }));
        // SAFETY: the box stays where it is until `delete`, and nobody else has it yet.
        unsafe {
            (*given).managed.manager_ctx = given.cast();
            &raw mut (*given).managed
        }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // SAFETY: the memory came from `alloc` with this layout and is freed once.
        unsafe { dealloc(self.data.as_ptr(), self.layout) };
    }
}

/// What a caller has been given, with what it points to.
struct Exported {
    managed: DLManagedTensorVersioned,
    _made: Made,
    _strides: Box<[i64]>,
}

/// Takes a tensor back.
unsafe extern "C" fn delete(tensor: *mut DLManagedTensorVersioned) {
    if !tensor.is_null() {
        // SAFETY: it is what `give` gave, and is given back once.
        drop(unsafe { Box::from_raw((*tensor).manager_ctx.cast::<Exported>()) });
    }
}

/// Outputs where the caller has given them, else of our own; our own threads.
struct DlServices<'a> {
    given: &'a [Option<Laid>],
    makes: bool,
    made: RefCell<Vec<(usize, Made)>>,
    scratch: Scratch,
}

// SAFETY: what was given has been checked, and what is made is as large and aligned as it is to be.
unsafe impl Services for DlServices<'_> {
    fn allocate_output(&self, index: usize, dtype: DType, shape: &[usize]) -> Result<*mut u8> {
        if let Some(Some(laid)) = self.given.get(index) {
            let (own, dims) = (laid.dtype, &laid.shape[..]);
            ensure!(
                own == dtype && dims == shape,
                InvalidArgument,
                "is {dtype}{shape:?}, but a tensor {own}{dims:?} is given for it"
            );
            return Ok(laid.data);
        }
        ensure!(
            self.makes,
            InvalidArgument,
            "the call has no tensor for it, and no place for one that is made"
        );
        ensure!(dtype.to_dlpack().is_some(), Unimplemented, "DLPack has no tensors of {dtype}");
        let made = Made::new(dtype, shape)?;
        let data = made.data.as_ptr();
        self.made.borrow_mut().push((index, made));
        Ok(data)
    }

    fn allocate_temp(&self, bytes: usize) -> Result<NonNull<u8>> {
        self.scratch.allocate(bytes)
    }

    fn keep_string(&self, _: &[u8]) -> Result<NonNull<u8>> {
        Err(Error::unimplemented("DLPack has no tensors of text"))
    }

    fn num_threads(&self) -> usize {
        opsmith_threads::num_threads()
    }

    fn parallel_for(&self, total: usize, grain: usize, body: Body<'_>) {
        opsmith_threads::parallel_for(total, grain, body);
    }
}
