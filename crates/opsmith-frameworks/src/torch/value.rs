//! Values that PyTorch hands over, each freed when it is dropped.

use std::ffi::c_char;
use std::sync::Arc;

use opsmith_core::attr::{self, AttrBase, AttrType, AttrValue, PartialShape, TensorValue};
use opsmith_core::space::IndexSpace;
use opsmith_core::{Device, DeviceKind, Error, Result, TensorView, bail, memory};

use super::shim::{ListHandle, Shim, StringHandle, TensorHandle};

/// A tensor that is ours to free.
pub(super) struct OwnedTensor<'s> {
    shim: &'s Shim,
    handle: TensorHandle,
}

impl<'s> OwnedTensor<'s> {
    /// Takes over a tensor.
    ///
    /// # Safety
    /// `handle` must be a live handle that nobody else frees.
    pub(super) unsafe fn new(shim: &'s Shim, handle: TensorHandle) -> OwnedTensor<'s> {
        OwnedTensor { shim, handle }
    }

    /// The tensor, for as long as this owns it.
    pub(super) fn handle(&self) -> TensorHandle {
        self.handle
    }

    /// The tensor, now the caller's to free.
    pub(super) fn into_raw(self) -> TensorHandle {
        std::mem::ManuallyDrop::new(self).handle
    }
}

impl Drop for OwnedTensor<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is live and ours; freeing it cannot fail.
        unsafe { (self.shim.functions.aoti_torch_delete_tensor_object)(self.handle) };
    }
}

/// A tensor's memory and layout. `changed` says that the kernel will write to it.
///
/// # Errors
/// `InvalidArgument` when it is not a strided tensor in host memory or on a card, of a dtype that Opsmith has.
///
/// # Safety
/// `handle` must be live for `'a`.
#[inline(always)]
pub(super) unsafe fn view<'a>(shim: &Shim, handle: TensorHandle, changed: bool) -> Result<TensorView<'a>> {
    let functions = &shim.functions;
    let (mut device, mut code, mut rank) = (0, 0, 0);
    let (mut sizes, mut strides) = (std::ptr::null(), std::ptr::null());
    let mut data: *mut std::ffi::c_void = std::ptr::null_mut();
    // SAFETY: the handle is live and every pointer is to a local of the right type.
    let failed = unsafe {
        (functions.aoti_torch_get_device_type)(handle, &mut device)
            | (functions.aoti_torch_get_dtype)(handle, &mut code)
            | (functions.aoti_torch_get_dim)(handle, &mut rank)
            | (functions.aoti_torch_get_sizes)(handle, &mut sizes)
    };
    let dtype = match shim.dtype(code) {
        Some(dtype) if failed == 0 && (device == shim.cpu || device == shim.cuda) => dtype,
        _ => return Err(unreadable(shim, failed, device, code)),
    };
    // SAFETY: the handle is live.
    let place = if device == shim.cpu { Device::CPU } else { unsafe { card(shim, handle) }? };
    // SAFETY: as above. A tensor that is only read is not asked for mutable memory: that would end the sharing of
    // one that is copied on write.
    let failed = unsafe {
        (functions.aoti_torch_get_strides)(handle, &mut strides)
            | match functions.torch_get_const_data_ptr {
                Some(get) if !changed => get(handle, (&raw mut data).cast()),
                _ => (functions.aoti_torch_get_data_ptr)(handle, &mut data),
            }
    };
    if failed != 0 {
        bail!(InvalidArgument, "expected a dense tensor with strides: {}", shim.last_error());
    }
    let rank = rank as usize;
    let (sizes, strides): (&[usize], &[isize]) = if rank == 0 {
        (&[], &[])
    } else {
        // SAFETY: sizes and strides have `rank` elements and live as long as the tensor. A tensor's sizes are
        // not negative, so an i64 reads as a usize of the same width.
        unsafe {
            (
                std::slice::from_raw_parts(sizes.cast::<usize>(), rank),
                std::slice::from_raw_parts(strides.cast::<isize>(), rank),
            )
        }
    };
    // Tensors of zeros that PyTorch makes for itself, and tensors whose memory was taken away, have none.
    if data.is_null() && !sizes.contains(&0) {
        bail!(InvalidArgument, "expected a tensor with memory");
    }
    // SAFETY: PyTorch keeps the memory of a tensor valid for its sizes and strides; the caller keeps the tensor. The
    // plan copies what is not aligned. That nobody writes to it meanwhile is its caller's to see to, as for any op.
    Ok(unsafe { TensorView::from_raw_parts(data.cast(), dtype, place, sizes, strides) })
}

/// The card that a tensor is on.
///
/// # Safety
/// `handle` must be live, of a tensor on a card.
#[cold]
unsafe fn card(shim: &Shim, handle: TensorHandle) -> Result<Device> {
    let Some(get) = shim.functions.aoti_torch_get_device_index else {
        bail!(Unimplemented, "this PyTorch does not tell which card a tensor is on");
    };
    let mut index = 0;
    // SAFETY: the handle is live and the pointer is to a local of the right type.
    match unsafe { get(handle, &mut index) } {
        0 => Ok(Device { kind: DeviceKind::Cuda, index }),
        _ => bail!(Internal, "PyTorch does not tell which card a tensor is on: {}", shim.last_error()),
    }
}

/// Why a tensor cannot be given to a kernel.
#[cold]
fn unreadable(shim: &Shim, failed: i32, device: i32, code: i32) -> Error {
    if failed != 0 {
        let reason = shim.last_error();
        return Error::invalid_argument(format!("is not a tensor that a kernel can read: {reason}"));
    }
    if device != shim.cpu && device != shim.cuda {
        let name = shim.device_name(device);
        return Error::unimplemented(format!(
            "expected a tensor on device cpu or cuda, got one on device {name}"
        ));
    }
    Error::invalid_argument(format!("has PyTorch's dtype number {code}, which Opsmith does not have"))
}

/// Whether autograd records what is done with a tensor: a view of it is then no leaf of the graph.
///
/// # Safety
/// `handle` must be live.
pub(super) unsafe fn is_recorded(shim: &Shim, handle: TensorHandle) -> bool {
    let functions = &shim.functions;
    let mut own = std::ptr::null_mut();
    // SAFETY: the handle is live; the dispatcher takes the new one over and gives a view back, which it takes over in
    // its turn.
    unsafe {
        if !(functions.aoti_torch_grad_mode_is_enabled)()
            || (functions.aoti_torch_new_tensor_handle)(handle, &mut own) != 0
        {
            return false;
        }
        let mut stack = [own as u64];
        let call = |name: &std::ffi::CStr, stack: &mut [u64; 1]| {
            (functions.aoti_torch_call_dispatcher)(name.as_ptr(), c"".as_ptr(), stack.as_mut_ptr()) == 0
        };
        call(c"aten::alias", &mut stack) && call(c"aten::is_leaf", &mut stack) && stack[0] as u8 == 0
    }
}

/// Tells autograd that a tensor's elements change, so that a backward pass that saved the old ones fails instead of
/// using the new ones. Gives false when PyTorch refuses.
///
/// # Safety
/// `handle` must be live.
pub(super) unsafe fn bump_version(shim: &Shim, handle: TensorHandle) -> bool {
    let functions = &shim.functions;
    let mut own = std::ptr::null_mut();
    // SAFETY: the handle is live; the dispatcher takes the new one over and gives one back, freed here. Swapping a
    // dim with itself changes nothing but the version, and without gradients it is allowed on a leaf.
    unsafe {
        if (functions.aoti_torch_new_tensor_handle)(handle, &mut own) != 0 {
            return false;
        }
        let recording = (functions.aoti_torch_grad_mode_is_enabled)();
        (functions.aoti_torch_grad_mode_set_enabled)(false);
        let mut stack = [own as u64, 0, 0];
        let name = c"aten::transpose_";
        let failed = (functions.aoti_torch_call_dispatcher)(name.as_ptr(), c"".as_ptr(), stack.as_mut_ptr());
        if failed == 0 {
            drop(OwnedTensor::new(shim, stack[0] as TensorHandle));
        }
        (functions.aoti_torch_grad_mode_set_enabled)(recording);
        failed == 0
    }
}

const _: () = assert!(size_of::<usize>() == size_of::<i64>(), "sizes are read in place");

/// A list that is ours to free.
pub(super) struct OwnedList<'s> {
    shim: &'s Shim,
    handle: ListHandle,
}

impl<'s> OwnedList<'s> {
    /// Takes over a list.
    ///
    /// # Safety
    /// `handle` must be a live list that nobody else frees.
    pub(super) unsafe fn new(shim: &'s Shim, handle: ListHandle) -> OwnedList<'s> {
        OwnedList { shim, handle }
    }

    /// An empty list with room for `len` elements.
    pub(super) fn with_capacity(shim: &'s Shim, len: usize) -> Result<OwnedList<'s>> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is to a local of the right type.
        let failed = shim.functions.torch_new_list_reserve_size.map(|new| unsafe { new(len, &mut handle) });
        match failed {
            Some(0) => Ok(OwnedList { shim, handle }),
            _ => Err(list_failure(shim)),
        }
    }

    /// How many elements it has.
    pub(super) fn len(&self) -> Result<usize> {
        let mut len = 0;
        // SAFETY: the list is live and the pointer is to a local of the right type.
        let failed = self.shim.functions.torch_list_size.map(|size| unsafe { size(self.handle, &mut len) });
        if failed == Some(0) { Ok(len) } else { Err(list_failure(self.shim)) }
    }

    /// The element at `index`, which is the caller's to free.
    pub(super) fn get(&self, index: usize) -> Result<u64> {
        let mut word = 0;
        let get = self.shim.functions.torch_list_get_item;
        // SAFETY: the list is live and the pointer is to a local of the right type.
        let failed = get.map(|get| unsafe { get(self.handle, index, &mut word) });
        if failed == Some(0) { Ok(word) } else { Err(list_failure(self.shim)) }
    }

    /// Adds a tensor, which the list takes over.
    pub(super) fn push(&mut self, tensor: OwnedTensor<'s>) -> Result<()> {
        let push = self.shim.functions.torch_list_push_back;
        let word = tensor.into_raw() as u64;
        // SAFETY: the list is live, and the tensor was ours to give away.
        let failed = push.map(|push| unsafe { push(self.handle, word) });
        if failed == Some(0) { Ok(()) } else { Err(list_failure(self.shim)) }
    }

    /// The list, now the caller's to free.
    pub(super) fn into_raw(self) -> ListHandle {
        std::mem::ManuallyDrop::new(self).handle
    }
}

impl Drop for OwnedList<'_> {
    fn drop(&mut self) {
        if let Some(delete) = self.shim.functions.torch_delete_list {
            // SAFETY: the list is live and ours; freeing it cannot fail.
            unsafe { delete(self.handle) };
        }
    }
}

fn list_failure(shim: &Shim) -> Error {
    Error::internal(format!("PyTorch's list functions failed: {}", shim.last_error()))
}

/// A string that is ours to free.
struct OwnedString<'s> {
    shim: &'s Shim,
    handle: StringHandle,
}

impl OwnedString<'_> {
    fn text(&self) -> Result<Arc<str>> {
        let functions = &self.shim.functions;
        let (mut len, mut data): (usize, *const c_char) = (0, std::ptr::null());
        let (Some(length), Some(c_str)) = (functions.torch_string_length, functions.torch_string_c_str)
        else {
            bail!(Unimplemented, "this PyTorch does not pass strings; 2.10 is the first that does");
        };
        // SAFETY: the string is live and the pointers are to locals of the right types.
        let failed = unsafe { length(self.handle, &mut len) | c_str(self.handle, &mut data) };
        if failed != 0 || data.is_null() {
            bail!(Internal, "PyTorch's string functions failed: {}", self.shim.last_error());
        }
        // SAFETY: the string has `len` bytes at `data` while it lives.
        let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) };
        attr::text(bytes)
    }
}

impl Drop for OwnedString<'_> {
    fn drop(&mut self) {
        if let Some(delete) = self.shim.functions.torch_delete_string {
            // SAFETY: the string is live and ours; freeing it cannot fail.
            unsafe { delete(self.handle) };
        }
    }
}

/// The word that an optional argument holds, or none.
///
/// # Safety
/// `word` must be the word of an argument of an optional type, and is used up.
pub(super) unsafe fn take_optional(shim: &Shim, word: u64) -> Option<u64> {
    let boxed = word as *mut u64;
    if boxed.is_null() {
        return None;
    }
    // SAFETY: a word that is not zero is a pointer to a word that C++'s `new` made; it is read, then freed once.
    unsafe {
        let inner = boxed.read();
        match shim.functions.torch_delete_stable_ivalue {
            Some(delete) => drop(delete(boxed)),
            None => (shim.cpp.delete)(boxed.cast()),
        }
        Some(inner)
    }
}

/// The value of an attribute.
///
/// # Safety
/// `word` must be the word of an argument of the schema type that stands for `ty`, and is used up.
pub(super) unsafe fn take_attr(shim: &Shim, ty: AttrType, word: u64) -> Result<AttrValue> {
    // SAFETY: passed on from the caller; elements of a list are words of its element type.
    unsafe {
        if !ty.list {
            return match ty.base {
                AttrBase::Shape => Ok(AttrValue::Shape(take_shape(shim, word)?)),
                AttrBase::String => Ok(AttrValue::String(take_string(shim, word)?)),
                AttrBase::Tensor => Ok(AttrValue::Tensor(take_tensor(shim, word)?)),
                AttrBase::Int => Ok(AttrValue::Int(word as i64)),
                AttrBase::Float => Ok(AttrValue::Float(f64::from_bits(word))),
                AttrBase::Bool => Ok(AttrValue::Bool(word as u8 != 0)),
                AttrBase::Type => Ok(AttrValue::Type(dtype(shim, word)?)),
            };
        }
        match ty.base {
            AttrBase::Shape => elements(shim, word, |word| take_shape(shim, word)).map(AttrValue::Shapes),
            AttrBase::String => elements(shim, word, |word| take_string(shim, word)).map(AttrValue::Strings),
            AttrBase::Tensor => elements(shim, word, |word| take_tensor(shim, word)).map(AttrValue::Tensors),
            AttrBase::Int => elements(shim, word, |word| Ok(word as i64)).map(AttrValue::Ints),
            AttrBase::Float => elements(shim, word, |word| Ok(f64::from_bits(word))).map(AttrValue::Floats),
            AttrBase::Bool => elements(shim, word, |word| Ok(word as u8 != 0)).map(AttrValue::Bools),
            AttrBase::Type => elements(shim, word, |word| dtype(shim, word)).map(AttrValue::Types),
        }
    }
}

unsafe fn elements<T>(shim: &Shim, word: u64, take: impl Fn(u64) -> Result<T>) -> Result<Vec<T>> {
    // SAFETY: the caller gives the word of a list.
    let list = unsafe { OwnedList::new(shim, word as ListHandle) };
    let length = list.len()?;
    attr::list(length, (0..length).map(|index| take(list.get(index)?)))
}

unsafe fn take_shape(shim: &Shim, word: u64) -> Result<PartialShape> {
    // SAFETY: passed on from the caller.
    let dims = unsafe { elements(shim, word, |word| Ok(word as i64)) }?;
    let dim = |dim: i64| match dim {
        -1 => Ok(None),
        _ => u64::try_from(dim).map(Some).map_err(|_| {
            Error::invalid_argument(format!("expected dims of -1 (unknown) or at least 0, got {dim}"))
        }),
    };
    dims.into_iter().map(dim).collect::<Result<_>>().map(Some)
}

unsafe fn take_string(shim: &Shim, word: u64) -> Result<Arc<str>> {
    OwnedString { shim, handle: word as StringHandle }.text()
}

fn dtype(shim: &Shim, word: u64) -> Result<opsmith_core::DType> {
    let code = word as i32;
    shim.dtype(code).ok_or_else(|| {
        Error::invalid_argument(format!("is PyTorch's dtype number {code}, which Opsmith does not have"))
    })
}

unsafe fn take_tensor(shim: &Shim, word: u64) -> Result<Arc<TensorValue>> {
    // SAFETY: the caller gives the word of a tensor.
    let tensor = unsafe { OwnedTensor::new(shim, word as TensorHandle) };
    // SAFETY: the tensor lives until the end of this function.
    let view = unsafe { view(shim, tensor.handle(), false) }?;
    if view.device() != Device::CPU {
        bail!(InvalidArgument, "expected a tensor on device cpu, got one on {}", view.device());
    }
    Ok(Arc::new(TensorValue {
        dtype: view.dtype(),
        shape: view.shape().to_vec(),
        bytes: row_major_bytes(view)?,
        strings: Vec::new(),
    }))
}

/// A copy of a tensor's elements, row-major.
fn row_major_bytes(view: TensorView<'_>) -> Result<Vec<u8>> {
    let size = view.dtype().size();
    let mut bytes = Vec::new();
    memory::reserve(&mut bytes, view.num_elements().saturating_mul(size), "a tensor")?;
    let space = IndexSpace::new(view.shape(), &[view.layout()])?;
    for place in (0..space.len()).map(|index| space.place(0, index)) {
        // SAFETY: the place is that of an element that shape and strides reach.
        bytes.extend(unsafe {
            std::slice::from_raw_parts(view.data_ptr().offset(place * size as isize), size)
        });
    }
    Ok(bytes)
}
